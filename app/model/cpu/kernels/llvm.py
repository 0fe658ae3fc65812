"""LLVM code for what numba cannot express: addresses, declarations, functions of integers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as numba_intrinsic

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
FLOAT, VOID = ir.FloatType(), ir.VoidType()

Emit = Callable[..., Any]
_code: Any = cgutils


intrinsic: Callable[[Emit], Emit] = numba_intrinsic
"""numba's decorator, with a type: of a function from types to a signature and its code."""


def of_integers(result: Any) -> Callable[[Emit], Emit]:
    """Decorates ``emit(builder, *arguments)``, which writes the code of a function of int64s.

    Compiled loops call that function with the arguments alone; ``result`` is its numba type.
    """

    def decorate(emit: Emit) -> Emit:
        signature = inspect.signature(emit)
        kinds = [types.int64] * (len(signature.parameters) - 1)

        def typing(_context: Any, *_: Any) -> Any:
            return result(*kinds), generate

        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            value = emit(builder, *arguments)
            return context.get_dummy_value() if result is types.void else value

        typing.__name__ = emit.__name__
        # There numba sees how many arguments there are; the builder stands for the context.
        typing.__signature__ = signature  # type: ignore[attr-defined]
        return intrinsic(typing)

    return decorate


def declare(builder: Any, result: Any, arguments: list[Any], name: str, **options: Any) -> Any:
    """The function ``name``: an LLVM intrinsic, or one that is linked in or defined here."""
    kind = ir.FunctionType(result, arguments, **options)
    return _code.get_or_insert_function(builder.module, kind, name)


def defined(
    builder: Any, name: str, arguments: list[Any], write: Callable[[Any], None], result: Any = VOID
) -> Any:
    """A function that ``write`` writes on the first call; neither inlined nor specialised."""
    function = declare(builder, result, arguments, f"leapjson_{name}")
    if function.is_declaration:
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        write(function)
    return function


def pointer(builder: Any, address: Any, kind: Any = I64) -> Any:
    """An int64 as a pointer to a ``kind``."""
    return builder.inttoptr(address, kind.as_pointer())


def prefetch(builder: Any, address: Any) -> None:
    """Begin to fetch the cache line at an address for reading."""
    function = declare(builder, VOID, [I8.as_pointer(), I32, I32, I32], "llvm.prefetch.p0")
    to_read, near, data = I32(0), I32(3), I32(1)
    builder.call(function, [pointer(builder, address, I8), to_read, near, data])


@of_integers(types.void)
def copy(builder: Any, source: Any, target: Any, size: Any) -> None:
    """Copy ``size`` bytes between addresses. numba's assignment to a slice compiles for long: its
    error has texts of both shapes."""
    kinds = [I8.as_pointer(), I8.as_pointer(), I64, ir.IntType(1)]
    function = declare(builder, VOID, kinds, "llvm.memcpy.p0.p0.i64")
    places = [pointer(builder, each, I8) for each in (target, source)]
    builder.call(function, [*places, size, ir.IntType(1)(0)])


def rounded(builder: Any, value: Any) -> Any:
    """A float32, or a vector of them, as words with its bfloat16 (ties to even) in the upper half,
    and anything in the lower one."""
    count = getattr(value.type, "count", None)
    kind = I32 if count is None else ir.VectorType(I32, count)

    def word(number: int) -> Any:
        return ir.Constant(kind, number if count is None else [number] * count)

    bits = builder.bitcast(value, kind)
    odd = builder.and_(builder.lshr(bits, word(16)), word(1))
    nearest = builder.add(builder.add(bits, word(0x7FFF)), odd)
    # A NaN's low bits could carry over and make a number of it.
    nan = builder.fcmp_unordered("uno", value, value)
    return builder.select(nan, word(0x7FC00000), nearest)
