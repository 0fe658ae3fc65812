"""Shared parts of the compiled loops: their compilation, and numbers as bits.

torch's half-width floats reach numba as integers of their bits: bfloat16 as ``uint16``, float16 as
``int16`` (``as_numpy``). ``widen`` and ``narrow`` go between those and float32.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numba
import numpy as np
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numpy.typing import NDArray
from torch import Tensor

from app.core.kernels import kernel
from app.model.cpu.kernels.llvm import FLOAT, I32, intrinsic, rounded

Floats = NDArray[np.float32]
Rows = NDArray[Any]
"""Values of half or single width, see ``as_numpy``."""

ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)
"""Arguments for compiled functions, which are compiled once more for a literal."""

_F = TypeVar("_F", bound=Callable[..., object])

_NUMBA: Any = numba.config
_POOL = threading.Lock()
_MADE: list[Any] = []
"""Functions with an address, which is valid as long as they exist."""

_REASSOCIATE = {"reassoc", "contract", "nsz"}
"""Sums may be added up in any order, so that they become SIMD; NaN and infinities stay."""


def compiled(*, reassociate: bool = False, parallel: bool = False) -> Callable[[_F], _F]:
    """Compile on first call, without the GIL, kept on disk where some folder is writable."""
    options: dict[str, Any] = {"error_model": "numpy", "parallel": parallel}
    if reassociate:
        options["fastmath"] = _REASSOCIATE
    return kernel(**options)


@functools.cache
def address_of(function: Callable[..., object], signature: str) -> int:
    """The address of ``function``, a C function of that signature that never returns to Python.

    Compiled on the first call, as it may use instructions that not every processor has. Code that
    calls it by its address compiles quickly, since it is not inlined there.
    """
    make: Any = numba.cfunc
    try:
        made = make(signature, cache=True, error_model="numpy")(function)
    except RuntimeError:  # there is no folder to keep it in
        made = make(signature, error_model="numpy")(function)
    _MADE.append(made)
    address: int = made.address
    return address


@contextlib.contextmanager
def spreading(wanted: bool) -> Iterator[int]:
    """Number of threads for a parallel loop within the block: torch's number, or 1.

    1 if they are not ``wanted``, or if another thread of the process runs such a loop: some
    systems' libraries for numba's pool must not be entered twice.
    """
    threads = min(torch.get_num_threads(), _NUMBA.NUMBA_NUM_THREADS) if wanted else 1
    if threads == 1 or not _POOL.acquire(blocking=False):
        yield 1
        return
    try:
        numba.set_num_threads(threads)
        yield threads
    finally:
        _POOL.release()


NUMBERS: Mapping[torch.dtype, Any] = {
    torch.float32: np.float32,
    torch.bfloat16: np.uint16,
    torch.float16: np.int16,
}
"""Types of the numbers of ``as_numpy``."""


def as_numpy(tensor: Tensor) -> NDArray[Any]:
    """The tensor's memory as the loops take it; float32, bfloat16 or float16, on the CPU."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy()
    if tensor.dtype == torch.float16:
        return tensor.view(torch.int16).numpy()
    assert tensor.dtype == torch.float32
    return tensor.numpy()


_WIDTHS = (types.float32, types.uint16, types.int16)


@intrinsic
def widen(_context: Any, bits: Any) -> Any:
    """The float32 that a value of ``as_numpy`` stands for."""

    def emit(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        (value,) = arguments
        if bits == types.uint16:
            return builder.bitcast(builder.shl(builder.zext(value, I32), I32(16)), FLOAT)
        if bits == types.int16:
            return builder.fpext(builder.bitcast(value, ir.HalfType()), FLOAT)
        return value

    return (types.float32(bits), emit) if bits in _WIDTHS else None


@intrinsic
def narrow(_context: Any, number: Any, like: Any) -> Any:
    """``number``, a float32, as ``like``'s type, rounded to the nearest (ties to even)."""

    def emit(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        value, _like = arguments
        if like == types.int16:
            return builder.bitcast(builder.fptrunc(value, ir.HalfType()), ir.IntType(16))
        if like == types.float32:
            return value
        return builder.trunc(builder.lshr(rounded(builder, value), I32(16)), ir.IntType(16))

    return (like(number, like), emit) if number == types.float32 and like in _WIDTHS else None


@intrinsic
def float_of_bits(_context: Any, bits: Any) -> Any:
    """The float32 with the bits of an int32. numba's ``view`` gives ``exp2`` other last bits."""

    def emit(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], FLOAT)

    return (types.float32(bits), emit) if bits == types.int32 else None
