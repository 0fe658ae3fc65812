"""Loops that numba compiles, for the layers that have some."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching, event

from app.core.progress import Progress, Stage

_F = TypeVar("_F", bound=Callable[..., object])

_CONFIG: Any = numba.config
if "NUMBA_OPT" not in os.environ:  # as fast as 3, compiled in three quarters of the time
    _CONFIG.OPT = type(_CONFIG.OPT)(2)

_PASS = "numba:run_pass"
"""What numba tells of every pass over a function that it compiles, and of none that it has kept."""


_APP = Path(__file__).parents[1]
_LOCATOR: Any = caching._SourceFileBackedLocatorMixin
_own_stamp = _LOCATOR.get_source_stamp


@functools.cache
def _sources(folder: Path) -> str:
    """A digest of the folder's files, and in ``app`` of those beside it that have loops, too."""
    digest = hashlib.sha256()
    ours = _APP in folder.parent.parents
    for path in sorted(folder.parent.rglob("*.py") if ours else folder.glob("*.py")):
        text = path.read_bytes()
        if path.parent == folder or b"\n@kernel(" in text or b"\n@compiled(" in text:
            digest.update(text)
    return digest.hexdigest()


def _stamp(self: Any) -> object:
    """By what numba knows whether a loop that it has kept is that of the sources.

    Its own is of the one file that has the loop, though what others have is compiled into it:
    after an update of those it would go on with their old code.
    """
    return _own_stamp(self), _sources(Path(self._py_file).parent)


_LOCATOR.get_source_stamp = _stamp


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
