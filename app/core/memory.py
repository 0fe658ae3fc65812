"""The allocator's memory."""

from __future__ import annotations

import ctypes


def return_freed_memory() -> None:
    """Give pages of freed memory back to the system; work on much data leaves 100s of MiB of them.

    Other threads wait for milliseconds at most, when they allocate.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc's
        trim(0)
