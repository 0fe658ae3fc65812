"""A stand-in for numba: everything can be imported, even if numba cannot.

Functions for numba run as the Python they are written in, hundreds of times slower; code that is
written for LLVM directly cannot run. These are loops of the CPU: figures of the device do not need
them.
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
    """Any attribute of a missing module: it can be called, subscripted and passed on."""

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
    """Install the stand-in if numba cannot be imported.

    An installed numba may refuse to load: each version supports only some versions of numpy.
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
    made.njit, made.prange, made.__version__ = _uncompiled, range, f"missing: {why}"
    sys.modules["llvmlite.ir"].Type = object  # type: ignore[attr-defined]
    events: Any = sys.modules["numba.core.event"]
    events.Listener, events.install_listener = object, lambda *_: contextlib.nullcontext()
    made.config = SimpleNamespace(
        NUMBA_NUM_THREADS=1, OPT=3, CACHE_DIR="", CPU_NAME=None, CPU_FEATURES=None
    )


def _uncompiled(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    return function if function is not None else _uncompiled


def is_missing() -> bool:
    """Whether the stand-in replaces numba."""
    return isinstance(sys.modules.get("numba"), _StandIn)
