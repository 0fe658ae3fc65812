"""Where numba cannot be imported: a stand-in with which everything can be imported.

Loops for which numba is asked run as the Python they are written in, hundreds of times slower; what
is written for LLVM directly cannot run. Those are loops of the CPU: figures of the device do not
need them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

_MODULES = (
    "llvmlite", "llvmlite.ir", "numba", "numba.core", "numba.core.cgutils", "numba.core.event",
    "numba.extending", "numba.np", "numba.np.arrayobj", "numba.types",
)  # fmt: skip


class _Anything:
    """What a module has that is not there: to be called, subscripted, joined and passed on."""

    def __call__(self, *_: Any, **__: Any) -> _Anything:
        return self

    def __bool__(self) -> bool:
        return False

    def __getitem__(self, _: Any) -> _Anything:
        return self

    def __getattr__(self, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _StandIn(ModuleType):
    __path__: list[str] = []  # noqa: RUF012 (what makes it a package)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}", _Anything())


def stand_in() -> None:
    """Put the stand-in in numba's place, where numba cannot be imported.

    It may be there and refuse: each of its versions knows some versions of numpy.
    """
    try:
        import numba  # noqa: F401
    except Exception as error:
        for name in [*sys.modules]:
            if name.partition(".")[0] in ("numba", "llvmlite"):
                del sys.modules[name]
        _replace(str(error))


def _replace(why: str) -> None:
    for name in _MODULES:
        sys.modules[name] = _StandIn(name)
    made: Any = sys.modules["numba"]
    made.njit, made.prange, made.__version__ = _as_it_is, range, f"missing: {why}"
    sys.modules["llvmlite.ir"].Type = object  # type: ignore[attr-defined]
    events: Any = sys.modules["numba.core.event"]
    events.Listener, events.install_listener = object, lambda *_: contextlib.nullcontext()
    made.config = SimpleNamespace(
        NUMBA_NUM_THREADS=1, OPT=3, CACHE_DIR="", CPU_NAME=None, CPU_FEATURES=None
    )


def _as_it_is(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    return function if function is not None else _as_it_is


def is_missing() -> bool:
    """Whether the stand-in stands where numba should."""
    return isinstance(sys.modules.get("numba"), _StandIn)
