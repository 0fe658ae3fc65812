"""Names of models: a folder, a name on the Hugging Face Hub, or a GGUF file.

A GGUF file is given by its path, as ``repository:file.gguf`` of the Hub, or as llama.cpp and Ollama
name one: ``owner/name-GGUF:Q4_K_M``, with or without ``hf.co/`` before it.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath

PART = re.compile(r"-(\d{5})-of-(?!0{5})(\d{5})\.gguf$")
"""Suffix of the name of a part of a file in several parts: its number and their count."""
_ON_HUB = re.compile(
    r"(?:(?:https?://)?(?:hf\.co|huggingface\.co)/)?([\w.-]+/[\w.-]+)(?::([\w./-]+))?"
)


def is_gguf(model: str) -> bool:
    """Whether the name is one of a GGUF file, there or not."""
    return model.endswith(".gguf") or gguf_on_hub(model) is not None


def gguf_on_hub(model: str) -> tuple[str, str] | None:
    """The repository, and a file's name or part of it (``Q4_K_M``), or "" if there is none.

    None for other names, for existing files and folders, and for repositories that are neither
    named ``...-GGUF`` nor followed by a colon.
    """
    found = _ON_HUB.fullmatch(model)
    if found is None or Path(model).exists():
        return None
    repository, name = found[1], found[2] or ""
    if not name and (repository.endswith(".gguf") or not repository.lower().endswith("-gguf")):
        return None
    return repository, name


def gguf_stem(model: str) -> str:
    """Name of a GGUF file's model: the file name without suffix and part number; for a name on the
    Hub without a file, that name."""
    if not model.endswith(".gguf"):
        return model
    return PART.sub("", PurePath(model.rpartition(":")[2]).name).removesuffix(".gguf")
