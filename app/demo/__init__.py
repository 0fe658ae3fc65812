"""The embedded demo model: its weights, and its page, README.md.

`MODEL_PATH` is a folder that `AutoModelForCausalLM.from_pretrained` and
`AutoTokenizer.from_pretrained` read. Corpus, training and evaluation are in tools/demo_model.
"""

from pathlib import Path
from typing import Final

MODEL_PATH: Final = Path(__file__).parent / "weights"
"""Folder of the weights, the tokenizer and the chat template."""

__all__ = ["MODEL_PATH"]
