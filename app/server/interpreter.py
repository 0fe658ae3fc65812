"""Waits between threads that share one interpreter; measured in decision 22."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SERIAL_SECONDS = 0.001
"""Switch interval where steps follow one another: the engine's thread, back from the device, waits
so long for one that computes."""
OVERLAPPED_SECONDS = 0.005
"""The same where the device already has its next step: fewer switches cost less."""

_YOUNG = 10_000
"""A step of 256 answers leaves some 2,500 objects to the event loop, which frees them."""
_TIMES, _RARELY = 2, 100
"""Young collections between two of the middle generation, which is so kept short, and of those
between two of the oldest: large requests leave many objects, and none of ours in cycles."""


@contextmanager
def importing() -> Iterator[None]:
    """Keep imported modules out of garbage collection: they stay loaded, and visiting them takes a
    quarter of the import time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def settle_collector() -> None:
    """Keep existing objects, and short-lived ones between threads, out of garbage collection.

    A collection holds the interpreter; with modules and weights to visit, for a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _TIMES, _RARELY)
