"""Unpickling beside a thread that must not wait.

To read a pickle of a megabyte takes the interpreter's lock for tens of milliseconds, and while any
thread computes in Python, the engine's thread waits for the lock after every operation of torch (up
to ``sys.getswitchinterval()`` each time). So a pickle is read frame by frame (64 KiB; PEP 3154),
with pauses in which the engine has the interpreter to itself.
"""

from __future__ import annotations

import gc
import io
import pickle
import time
from collections.abc import Callable
from typing import Any

_SLICE = 0.001
"""Seconds of work after which a pause is due."""
_PAUSE_RATIO = 4.0
"""Length of a pause by that of the work before it."""
_LONGEST_PAUSE = 0.02


class _PacedFile(io.BytesIO):
    """Pauses before it hands out what is to be worked on next."""

    def __init__(
        self, data: bytes, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        super().__init__(data)
        self._clock = clock
        self._sleep = sleep
        self._resumed = clock()

    def read(self, size: int | None = -1, /) -> bytes:
        self._pause()
        return super().read(size)

    def readinto(self, buffer: Any, /) -> int:
        self._pause()
        return super().readinto(buffer)

    def _pause(self) -> None:
        worked = self._clock() - self._resumed
        if worked >= _SLICE:
            self._sleep(min(worked * _PAUSE_RATIO, _LONGEST_PAUSE))
            self._resumed = self._clock()


def load_paced(
    data: bytes,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Any:
    """``pickle.loads(data)`` in slices, which takes about five times as long. Trusted data only.

    What was read is hidden from the garbage collector (``gc.freeze``): a collection would visit
    all of it with the lock held, which takes a second for a full cache. Constraints hold no cycles,
    so counting references frees them all the same. Not for two threads at a time.
    """
    collects = gc.isenabled()
    gc.collect(1)  # young garbage; what is frozen is not looked at again
    gc.disable()
    try:
        value = pickle.Unpickler(_PacedFile(data, clock, sleep)).load()
        gc.freeze()
    finally:
        if collects:
            gc.enable()
    return value
