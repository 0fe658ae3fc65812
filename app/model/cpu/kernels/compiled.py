"""What the compiled loops share: how they are compiled, and numbers as bits.

torch's half-width floats reach numba as integers of their bits: bfloat16 as ``uint16``, float16 as
``int16`` (``as_numpy``). ``widen`` and ``narrow`` go between those and float32.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numba
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj
from numpy.typing import NDArray

from app.core.kernels import kernel

_F = TypeVar("_F", bound=Callable[..., object])

_NUMBA: Any = numba.config
_arrays: Any = arrayobj
_code: Any = cgutils
_POOL = threading.Lock()

_REASSOCIATE = {"reassoc", "contract", "nsz"}
"""Sums may be added up in any order, so that they become SIMD; NaN and infinities stay."""


def compiled(*, reassociate: bool = False, parallel: bool = False) -> Callable[[_F], _F]:
    """Compile on first call, without the GIL, kept on disk where some folder is writable."""
    options: dict[str, Any] = {"error_model": "numpy", "parallel": parallel}
    if reassociate:
        options["fastmath"] = _REASSOCIATE
    return kernel(**options)


@contextlib.contextmanager
def spreading(wanted: bool) -> Iterator[int]:
    """How many threads a parallel loop may run on while the block lasts: torch's number, or 1.

    1 where they are not ``wanted``, or another thread of the process runs such a loop: some
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


def as_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """The tensor's memory as the loops take it; float32, bfloat16 or float16, on the CPU."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy()
    if tensor.dtype == torch.float16:
        return tensor.view(torch.int16).numpy()
    assert tensor.dtype == torch.float32
    return tensor.numpy()


def _widen(_context: Any, bits: Any) -> Any:
    def emit(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        (value,) = arguments
        if bits == types.uint16:
            whole = builder.shl(
                builder.zext(value, ir.IntType(32)), ir.Constant(ir.IntType(32), 16)
            )
            return builder.bitcast(whole, ir.FloatType())
        if bits == types.int16:
            return builder.fpext(builder.bitcast(value, ir.HalfType()), ir.FloatType())
        return value

    return (types.float32(bits), emit) if bits in _WIDTHS else None


def _narrow(_context: Any, number: Any, like: Any) -> Any:
    def emit(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        value, _like = arguments
        if like == types.int16:
            return builder.bitcast(builder.fptrunc(value, ir.HalfType()), ir.IntType(16))
        if like == types.float32:
            return value
        word = ir.IntType(32)
        bits = builder.bitcast(value, word)
        odd = builder.and_(builder.lshr(bits, ir.Constant(word, 16)), ir.Constant(word, 1))
        rounded = builder.add(builder.add(bits, ir.Constant(word, 0x7FFF)), odd)
        # A NaN's low bits could carry over and make a number of it.
        nan = builder.fcmp_unordered("uno", value, value)
        rounded = builder.select(nan, ir.Constant(word, 0x7FC00000), rounded)
        return builder.trunc(builder.lshr(rounded, ir.Constant(word, 16)), ir.IntType(16))

    return (like(number, like), emit) if number == types.float32 and like in _WIDTHS else None


def _float_of_bits(_context: Any, bits: Any) -> Any:
    def emit(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return (types.float32(bits), emit) if bits == types.int32 else None


def _prefetch(_context: Any, row: Any, index: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, at = arguments
        address = builder.gep(_arrays.make_array(row)(context, builder, values).data, [at])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = _code.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        to_read, near, data = (ir.Constant(word, flag) for flag in (0, 3, 1))
        builder.call(function, [builder.bitcast(address, byte), to_read, near, data])
        return context.get_dummy_value()

    return types.void(row, types.intp), emit


_WIDTHS = (types.float32, types.uint16, types.int16)

_intrinsic: Any = intrinsic  # its type is that of the function from types to code

widen: Callable[[Any], Any] = _intrinsic(_widen)
"""The float32 that a value of ``as_numpy`` stands for."""

narrow: Callable[[Any, Any], Any] = _intrinsic(_narrow)
"""``narrow(number, like)``: a float32 as ``like``'s type, rounded to the nearest (ties to even)."""

float_of_bits: Callable[[Any], Any] = _intrinsic(_float_of_bits)
"""The float32 with the bits of an int32."""

prefetch: Callable[[Any, int], None] = _intrinsic(_prefetch)
"""``prefetch(row, i)``: begin to fetch the cache line of ``row[i]``; out of bounds does nothing."""
