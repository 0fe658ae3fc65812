"""GGUF files on the Hugging Face Hub, found by a part of their name."""

from __future__ import annotations

import os
import re
from pathlib import Path

from app.core.errors import UnsupportedModel
from app.core.gguf_file import parts_of
from app.core.model_name import PART, gguf_on_hub, is_gguf
from app.core.progress import SILENCE, Progress

_DEFAULTS = ("Q4_K_M", "Q8_0")
"""Preferred files of a repository if none is named, as in llama.cpp; else the first one."""
_NO_MODELS = re.compile(r"mmproj|imatrix", re.IGNORECASE)


def file_on_disk(model: str, progress: Progress = SILENCE) -> str:
    """Path of the model: ``model`` itself, unless it names a GGUF file on the Hub.

    That file, with all its parts, is downloaded to the Hub's cache; if the Hub cannot be reached,
    the cached file is used. Raises ``UnsupportedModel``.
    """
    on_hub = gguf_on_hub(model)
    if on_hub is None:
        if is_gguf(model) and not Path(parts_of(model)[0]).exists():
            raise UnsupportedModel(
                f"there is no file {model}; write a GGUF file on the Hub as "
                "owner/repository:Q4_K_M or owner/repository:file.gguf"
            )
        is_path = os.path.exists(model) or model.startswith(("/", "./", "../", "~"))
        if is_path and not is_gguf(model) and not os.access(Path(model, "config.json"), os.R_OK):
            raise UnsupportedModel(
                f"{model} is not the folder of a model: its config.json is missing or not "
                "readable; a GGUF file is named by its own path, which ends in .gguf"
            )
        return model
    from transformers.utils.hub import cached_file

    from app.model.checkpoints.progress_hooks import reporting_downloads

    repository, name = on_hub
    try:
        names = parts_of(_chosen(repository, name))
        with reporting_downloads(progress) as downloads:
            paths = [cached_file(repository, each, tqdm_class=downloads) for each in names]
    except (OSError, ValueError) as error:
        raise UnsupportedModel(
            f"cannot find {name or 'a GGUF file'} in {repository}: {error}"
        ) from error
    return str(paths[0])


def _chosen(repository: str, name: str) -> str:
    """Name of the file in the repository; if it has several parts, of the first."""
    if name.endswith(".gguf"):
        return name
    there = [file for file in _files(repository) if file.endswith(".gguf")]
    found = [file for file in there if not _NO_MODELS.search(Path(file).name)]
    firsts = [file for file in found if parts_of(file)[0] == file]
    for wanted in [name] if name else _DEFAULTS:
        # Q4_K_M is neither in IQ4_K_M nor in Q4_K_M_L; the shortest name is the plainest.
        pattern = re.compile(rf"(?<![A-Za-z0-9]){re.escape(wanted)}(?![A-Za-z0-9_])", re.IGNORECASE)
        if fitting := [file for file in firsts if pattern.search(Path(file).name)]:
            return min(fitting, key=lambda file: (len(PART.sub("", file)), file))
    if name or not firsts:
        raise ValueError(f"its GGUF files are {', '.join(sorted(firsts)) or 'none'}")
    return min(firsts)


def _files(repository: str) -> list[str]:
    """Raises ``OSError`` where neither the Hub nor its cache has the repository."""
    from huggingface_hub import list_repo_files, snapshot_download

    try:
        return list(list_repo_files(repository))
    except Exception as error:  # the client raises several families of errors
        try:
            cached = Path(snapshot_download(repository, local_files_only=True))
        except OSError:
            raise OSError(f"error from the Hub: {error}") from error
        return [str(file.relative_to(cached)) for file in cached.rglob("*.gguf")]
