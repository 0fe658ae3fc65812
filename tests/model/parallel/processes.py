"""The rank processes that this process has started, as listed in ``/proc``."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def ranks_alive() -> list[int]:
    """Ids of the living rank processes that this process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"parallel.rank" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found
