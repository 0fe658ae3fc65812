"""What threads that share one interpreter make each other wait for; measured in decision 22."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SERIAL_SECONDS = 0.001
"""Switch interval where steps follow one another: the engine's thread, back from the device, waits
so long for one that computes."""
OVERLAPPED_SECONDS = 0.005
"""The same where the device has its next step by then: who is interrupted less gets more done."""

_YOUNG = 10_000
"""A step of 256 answers leaves some 2,500 objects to the event loop, which frees them."""


@contextmanager
def importing() -> Iterator[None]:
    """Spare the collector modules while they are imported, and ever after: they stay. To look at
    them again and again takes a quarter of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def settle_collector() -> None:
    """Spare the collector what is there by now, and what is only on its way between threads.

    A collection holds the interpreter; with modules and weights to visit, for a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)
