"""The embedded demo model: its corpus, its training, its weights.

`MODEL_PATH` is a folder that `AutoModelForCausalLM.from_pretrained` and
`AutoTokenizer.from_pretrained` read. README.md says what the model is good for.
"""

from pathlib import Path
from typing import Final

MODEL_PATH: Final = Path(__file__).parent / "weights"
"""Folder of the weights, the tokenizer and the chat template."""

__all__ = ["MODEL_PATH"]
