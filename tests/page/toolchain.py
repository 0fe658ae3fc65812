"""Node and the page's pinned packages, if they are available."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

PAGE: Final = Path(__file__).parents[2] / "page"
_INSTALL_SECONDS = 600


def need_packages() -> None:
    """Skip the test without Node, or if the packages are not installed and cannot be."""
    if (why := _missing()) is not None:
        pytest.skip(why)


def node(*arguments: str | Path) -> str:
    """Run ``node``; returns its output. Raises ``AssertionError`` if it fails."""
    ran = subprocess.run(
        ["node", *map(str, arguments)], cwd=PAGE, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@cache
def _missing() -> str | None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "Node or npm is not installed"
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline"]
    with (PAGE / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes would remove each other's packages
        if _installed() == _pinned():
            return None
        try:
            subprocess.run(
                command, cwd=PAGE, capture_output=True, check=True, timeout=_INSTALL_SECONDS
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return "the page's packages cannot be installed; npm needs a network"
    return None


def _pinned() -> dict[str, str]:
    """Pinned versions by folder, without optional packages."""
    return _versions(json.loads((PAGE / "package-lock.json").read_text()))


def _installed() -> dict[str, str]:
    lock = PAGE / "node_modules" / ".package-lock.json"
    return _versions(json.loads(lock.read_text())) if lock.is_file() else {}


def _versions(lock: dict[str, Any]) -> dict[str, str]:
    packages = lock["packages"].items()
    return {folder: p["version"] for folder, p in packages if folder and not p.get("optional")}
