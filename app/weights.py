"""A short identity of the weights that a server runs, found without reading all of them."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from app.core.gguf_file import parts_of

_PLACES = 64
_SAMPLE = 1 << 12
"""Bytes read at each of these places in a file: a quarter of a megabyte, however large it is."""


def weights_identity(model: str) -> str:
    """The same for the same weights, wherever and whenever they were stored.

    Of a folder the names, sizes and samples of its safetensors: training changes those all over,
    but an edit of a few numbers may go unnoticed. The same of a GGUF file, in all its parts. Of a
    model of the Hub its commit.
    """
    place = Path(model)
    if not place.exists():
        from app.model.checkpoints.loading import read_config

        return str(getattr(read_config(model), "_commit_hash", None))
    digest = blake2b(digest_size=16)
    parts = [Path(part) for part in parts_of(model)]
    for path in sorted(place.glob("*.safetensors")) if place.is_dir() else parts:
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for number in range(_PLACES):
                file.seek(size * number // _PLACES)
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
