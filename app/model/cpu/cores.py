"""Cores and memory that a container may use; torch counts those of the machine."""

from __future__ import annotations

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_MEMORY = Path("/sys/fs/cgroup/memory.max")


def granted_cores(quota: Path = _QUOTA) -> int:
    """Cores this process may run on, by its affinity and the limit of its control group (v2).

    A limit of 2.5 cores counts as 2: threads beyond it are stopped for the rest of each period, and
    the others would wait for them. Source: Linux, Documentation/admin-guide/cgroup-v2.rst.
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    try:
        limit, period = quota.read_text().split()
        if limit != "max":
            cores = min(cores, max(1, math.floor(int(limit) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        pass  # no control group, or an older kind
    return cores


def granted_memory(limit: Path = _MEMORY) -> int:
    """Bytes of memory this process may use: the machine's, or the limit of its control group (v2).

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(memory, int(limit.read_text()))
    except (OSError, ValueError):  # no control group, an older kind, or "max"
        return memory
