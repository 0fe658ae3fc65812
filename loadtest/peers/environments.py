"""One environment for each set of pinned packages, in the ignored folder ``.peers``."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from loadtest.installing import NotInstalled, run

HERE: Final = Path(__file__).resolve().parent
FOLDER: Final = HERE.parents[1] / ".peers"
REQUIREMENTS: Final = HERE / "requirements"
OFFLINE: Final = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Variables that stop peers from sending telemetry or downloading anything."""

LLAMA_CPP_SOURCE: Final = "llama-cpp-python==0.3.36"
"""Its source distribution contains all of llama.cpp, including the server."""
_LLAMA_CPP_OPTIONS: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
_UNUSED_PACKAGES: Final = ("torchvision", "torchaudio", "torchcodec")
"""Unused dependencies. The registry's packages are built for torch with CUDA; with torch for the
CPU, libraries that find them fail to import them."""


def install(name: str) -> Path:
    """The environment ``name``; installed if it is missing or its pins have changed.

    Takes minutes and gigabytes of disk. Raises ``NotInstalled`` with the end of pip's output.
    """
    folder = FOLDER / name
    if is_installed(name):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(folder)])
    python = str(folder / "bin" / "python")
    run([python, "-m", "pip", "install", "-q", "-r", str(_requirements(name))])
    run([python, "-m", "pip", "uninstall", "-q", "-y", *_UNUSED_PACKAGES])
    if name == "llama-cpp":
        _build_llama_cpp(folder)
    (folder / ".installed").write_text(_digest(name))
    return folder


def is_installed(name: str) -> bool:
    """Whether the environment exists, with the current pins."""
    stamp = FOLDER / name / ".installed"
    return stamp.exists() and stamp.read_text() == _digest(name)


def variables(threads: int, more: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a peer's process."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ
    }
    return {**kept, **OFFLINE, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1", **more}


def _build_llama_cpp(folder: Path) -> None:
    """Unpack and compile llama.cpp's server; needs cmake and a C++ compiler. 10 CPU minutes."""
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            raise NotInstalled(f"{tool} is needed to compile llama.cpp")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "download", "-q", "--no-deps"]
    package = LLAMA_CPP_SOURCE.partition("==")[0]
    run([*pip, "--no-binary", package, "-d", str(folder), LLAMA_CPP_SOURCE])
    archive = next(folder.glob("*.tar.gz"))
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    archive.unlink()
    source = next(folder.glob("*/vendor/llama.cpp"))
    build = folder / "build"
    run(["cmake", "-S", str(source), "-B", str(build), *_LLAMA_CPP_OPTIONS])
    run(["cmake", "--build", str(build), "--target", "llama-server", "-j", str(os.cpu_count())])


def _requirements(name: str) -> Path:
    return REQUIREMENTS / f"{name}.txt"


def _digest(name: str) -> str:
    lines = _requirements(name).read_text().splitlines()
    included = [line.removeprefix("-r ") for line in lines if line.startswith("-r ")]
    files = [_requirements(name), *(REQUIREMENTS / each for each in included)]
    content = b"".join(file.read_bytes() for file in files)
    if name == "llama-cpp":
        content += " ".join((LLAMA_CPP_SOURCE, *_LLAMA_CPP_OPTIONS)).encode()
    return hashlib.sha256(content).hexdigest()
