from __future__ import annotations

import os
import random
from pathlib import Path

from app.demo import MODEL_PATH
from app.server.backend import weights_identity

WEIGHTS = random.Random(1).randbytes(3_000_000)


def folder_of(path: Path, *files: bytes) -> str:
    path.mkdir()
    for number, content in enumerate(files):
        (path / f"model-{number}.safetensors").write_bytes(content)
    return str(path)


def test_the_same_weights_are_the_same_wherever_and_whenever_they_were_stored(
    tmp_path: Path,
) -> None:
    here = folder_of(tmp_path / "a", WEIGHTS, b"few")
    there = folder_of(tmp_path / "b", WEIGHTS, b"few")
    (tmp_path / "b" / "README.md").write_text("a copy")
    os.utime(tmp_path / "b" / "model-0.safetensors", (1, 1))
    assert weights_identity(here) == weights_identity(there)


def test_weights_that_were_trained_on_in_the_same_folder_are_others(tmp_path: Path) -> None:
    trained = bytes(byte ^ 1 for byte in WEIGHTS)
    found = {
        weights_identity(folder_of(tmp_path / str(number), *files))
        for number, files in enumerate(
            [
                (WEIGHTS, b"few"),
                (trained, b"few"),
                (WEIGHTS[:1000] + trained[1000:], b"few"),
                (WEIGHTS + b"\0", b"few"),
                (WEIGHTS, b"new"),
                (WEIGHTS,),
            ]
        )
    }
    assert len(found) == 6


def test_the_embedded_model_has_weights() -> None:
    folder = MODEL_PATH
    assert weights_identity(str(folder)) != weights_identity(str(folder.parent))
