"""Compile the kernels that most tests run: ``python -m tests.warm_up float32|bfloat16``.

numba keeps what it compiled beside the sources. Where nothing is kept, as in a fresh clone, this
takes a minute for each of the two; without it both workers of pytest, the servers that they start
and the compile workers of those would each compile the same.
"""

from __future__ import annotations

import sys
from typing import Literal

from app.constraint import Compiler
from app.demo import MODEL_PATH
from app.model.composition import load_runner
from app.model.config import ModelConfig
from tests.fakes import ByteVocabulary


def main(dtype: Literal["float32", "bfloat16"]) -> None:
    load_runner(ModelConfig(str(MODEL_PATH), dtype=dtype, device="cpu")).close()
    if dtype == "float32":  # masks need no model; bfloat16 takes as long with its panels
        Compiler(ByteVocabulary())


if __name__ == "__main__":
    main("float32" if sys.argv[1] == "float32" else "bfloat16")
