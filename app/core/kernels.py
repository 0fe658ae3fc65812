"""Loops that numba compiles, for the layers that have some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_F = TypeVar("_F", bound=Callable[..., object])


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
