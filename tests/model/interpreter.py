"""Triton's interpreter, set right where it is not what a GPU does, and quicker.

It cuts float32 off to bfloat16 where the hardware rounds to the nearest, forgets what rounding to 8
bits carries, and multiplies the bits of bfloat16 tiles as integers. Its products go through BLAS,
whose sums depend on where in a tile a row is. Before each call between
functions of a kernel it replaces those of ``triton.language`` by interpreted ones, although the
kernel's start has done so: nine tenths of a test's time (Triton 3.6 and 3.7).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter


def _to_float32(bits: Any) -> Any:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _to_bfloat16(values: Any) -> Any:
    rounded = torch.from_numpy(np.array(values, dtype=np.float32)).bfloat16()
    return rounded.view(torch.int16).numpy().view(np.uint16)


def _products(a: Any, b: Any, dtype: Any) -> Any:
    """``a @ b``, the same sums for every row, wherever it is: BLAS has other loops at its edges."""
    if a.ndim != 2 or dtype != np.float32:
        return np.einsum("...mk,...kn->...mn", a, b, dtype=dtype)
    total = np.zeros((a.shape[0], b.shape[1]), dtype=dtype)
    for column, row in zip(a.T.astype(dtype), b.astype(dtype), strict=True):
        total += column[:, None] * row
    return total


@contextmanager
def rounding_as_a_gpu_does() -> Iterator[None]:
    """Within it interpreted kernels have the bfloat16, the E4M3 and the infinities of a GPU."""
    builder: Any = interpreter.InterpreterBuilder
    cast, dot, convert = builder.cast_impl, builder.create_dot, interpreter._convert_float

    def exact_cast(self: Any, src: Any, to: Any) -> Any:
        kinds = (src.dtype.scalar, to.scalar)
        if kinds == (tl.bfloat16, tl.float32):
            return interpreter.TensorHandle(_to_float32(src.data), tl.float32)
        if kinds == (tl.float32, tl.bfloat16):
            return interpreter.TensorHandle(_to_bfloat16(src.data), tl.bfloat16)
        return cast(self, src, to)

    def exact_convert(values: Any, of: Any, to: Any, rounding: Any) -> Any:
        if (of, to) != (tl.float32, tl.float8e4nv):
            return convert(values, of, to, rounding)
        numbers = torch.from_numpy(np.array(values, dtype=np.float32)).to(torch.float8_e4m3fn)
        return numbers.view(torch.uint8).numpy()

    def exact_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        sides = [
            interpreter.TensorHandle(_to_float32(side.data), tl.float32)
            if side.dtype.scalar == tl.bfloat16
            else side
            for side in (a, b)
        ]
        with mock.patch.object(np, "matmul", _products):
            return dot(self, *sides, *others)

    with (
        np.errstate(over="ignore"),  # exp(x) of a large x is infinity on a GPU, and no warning
        mock.patch.object(builder, "cast_impl", exact_cast),
        mock.patch.object(builder, "create_dot", exact_dot),
        mock.patch.object(interpreter, "_convert_float", exact_convert),
    ):
        yield


def hasten() -> None:
    """Let calls between functions of kernels replace only what is not replaced yet."""
    patch_language: Any = interpreter._patch_lang

    def call(self: Any, *given: Any, **named: Any) -> Any:
        modules = [each for each in self.fn.__globals__.values() if each is tl or each is tl.core]
        if any(tl.core.is_builtin(each.load) for each in modules):
            patch_language(self.fn)
        return self.rewrite()(*given, **named)

    interpreter.InterpretedFunction.__call__ = call
