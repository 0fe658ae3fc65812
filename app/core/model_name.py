"""How a model is named: a folder, a name on the Hugging Face Hub, or a GGUF file.

A GGUF file is given by its path, or as ``repository:file.gguf`` of the Hub.
"""

from __future__ import annotations

from pathlib import PurePath


def is_gguf(model: str) -> bool:
    return model.endswith(".gguf")


def gguf_stem(model: str) -> str:
    """The file's name alone, without its ending."""
    return PurePath(model.rpartition(":")[2]).stem
