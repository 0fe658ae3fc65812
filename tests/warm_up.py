"""Compile the kernels that most tests run, unless they are compiled for the current sources.

numba keeps compiled kernels beside the sources. In a fresh clone this takes most of a minute;
without it, each process that runs tests, each server of a test and each compile worker would
compile the same kernels. Set-up starts this program and does not wait for it; a second run waits
for the first.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".cache" / "kernels"
"""A file that is touched when the kernels of the current sources have been compiled."""


def main() -> None:
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = KEPT.stat().st_mtime if KEPT.exists() else 0
        if all(source.stat().st_mtime < kept for source in (ROOT / "app").rglob("*.py")):
            return
        masks = multiprocessing.Process(target=_compile_masks)
        masks.start()
        _compile_models()
        masks.join()
        if masks.exitcode == 0:
            KEPT.touch()
        sys.exit(masks.exitcode)


def _compile_masks() -> None:
    from app.constraint import Compiler
    from tests.fakes import ByteVocabulary

    Compiler(ByteVocabulary())


def _compile_models() -> None:
    from app.demo import MODEL_PATH
    from app.model.composition import load_runner
    from app.model.config import ModelConfig

    for dtype in ("float32", "bfloat16"):
        load_runner(ModelConfig(str(MODEL_PATH), dtype=dtype, device="cpu")).close()


if __name__ == "__main__":
    main()
