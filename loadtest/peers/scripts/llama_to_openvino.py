"""Writes a Hugging Face model as OpenVINO's IR: ``llama_to_openvino.py FOLDER TARGET``.

optimum-intel's export with the cache inside the model; the weights stay in bfloat16, and
OpenVINO's own tokenizer and detokenizer come beside them.
"""

import os
import sys
from pathlib import Path

from optimum.exporters.openvino import main_export


def main() -> None:
    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    main_export(
        str(folder),
        target,
        task="text-generation-with-past",
        stateful=True,
        convert_tokenizer=True,
        library_name="transformers",
        local_files_only=True,
    )
    os.utime(target)


if __name__ == "__main__":
    main()
