"""The interpreter of a server: waits between its threads (decision 22), and its memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SERIAL_SECONDS = 0.001
"""Switch interval without overlapping steps: the engine's thread, back from the device, waits up
to this long for a thread that computes."""
OVERLAPPED_SECONDS = 0.005
"""Switch interval where the device already has its next step: fewer switches cost less."""

_YOUNG = 10_000
"""Objects between young collections: the event loop frees 2,500 after a step of 256 answers."""
_TIMES, _RARELY = 2, 100
"""Young collections per middle one, which keeps those short, and middle ones per old one: large
requests leave many objects, but none of ours in cycles."""


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

    A collection holds the GIL: for a second, if it visits all modules and weights.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _TIMES, _RARELY)
