"""Loops that numba compiles, for the layers that have some."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import numba
from numba.core import event

from app.core.progress import Progress, Stage

_F = TypeVar("_F", bound=Callable[..., object])

_PASS = "numba:run_pass"
"""What numba tells of every pass over a function that it compiles, and of none that it has kept."""


def kernel(**options: Any) -> Callable[[_F], _F]:
    """Compile on first call, without the GIL; kept on disk where some folder is writable.

    ``options`` are those of ``numba.njit``.
    """

    def compile(function: _F) -> _F:
        try:
            return cast(_F, numba.njit(cache=True, nogil=True, **options)(function))
        except RuntimeError:  # there is no folder to keep it in
            return cast(_F, numba.njit(nogil=True, **options)(function))

    return compile


@contextlib.contextmanager
def telling_compilations(progress: Progress) -> Iterator[None]:
    """While the block lasts, what is compiled is a stage that begins with the first of it."""
    with contextlib.ExitStack() as stages:
        listener = _Compilations(
            lambda: stages.enter_context(progress.stage("compiling for this processor"))
        )
        with event.install_listener(_PASS, listener):
            yield


class _Compilations(event.Listener):
    """Counts the functions that are compiled, each for the types of its arguments."""

    def __init__(self, begin: Callable[[], Stage]) -> None:
        self._begin = begin
        self._stage: Stage | None = None
        self._seen: set[tuple[str, str, str]] = set()
        self._lock = threading.Lock()

    def on_start(self, event: Any) -> None:
        told = event.data
        function = (told["module"], told["qualname"], str(told["args"]))
        with self._lock:
            if function in self._seen:
                return
            self._seen.add(function)
            if self._stage is None:
                self._stage = self._begin()
            self._stage.reach(len(self._seen), now=told["qualname"].rpartition(".")[2])

    def on_end(self, event: Any) -> None:
        pass
