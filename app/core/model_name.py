"""How a model is named: a folder, a name on the Hugging Face Hub, or a GGUF file.

A GGUF file is given by its path, or as ``repository:file.gguf`` of the Hub.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import PurePath

from app.core.errors import UnsupportedModel

_READER = (5, 23)
"""The first transformers whose reader of GGUF files knows all that is served from them."""


def is_gguf(model: str) -> bool:
    return model.endswith(".gguf")


def gguf_stem(model: str) -> str:
    """The file's name alone, without its ending."""
    return PurePath(model.rpartition(":")[2]).stem


def reads_gguf() -> bool:
    """Whether transformers is recent enough for it."""
    major, minor = version("transformers").split(".")[:2]
    return (int(major), int(minor)) >= _READER


def require_gguf_reader() -> None:
    """Raises ``UnsupportedModel`` unless ``reads_gguf``."""
    if not reads_gguf():
        raise UnsupportedModel(
            f"GGUF files take transformers>={'.'.join(map(str, _READER))}; here is "
            f"{version('transformers')}"
        )
