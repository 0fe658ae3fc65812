"""Triton's interpreter, corrected where it differs from a GPU, and made faster.

The interpreter truncates float32 to bfloat16 where the hardware rounds to nearest, drops carries
when it rounds to 8 bits, and multiplies the bits of bfloat16 tiles as integers. Its products use
BLAS, whose sums depend on the place of a row in the tile. Before each call between functions of a
kernel it patches ``triton.language`` again, although the start of the kernel has done so: nine
tenths of a test's time (Triton 3.6 and 3.7).
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
    """``a @ b`` with the same order of sums for every row; BLAS has other loops at the edges."""
    if a.ndim != 2 or dtype != np.float32:
        return np.einsum("...mk,...kn->...mn", a, b, dtype=dtype)
    total = np.zeros((a.shape[0], b.shape[1]), dtype=dtype)
    for column, row in zip(a.T.astype(dtype), b.astype(dtype), strict=True):
        total += column[:, None] * row
    return total


@contextmanager
def rounding_as_a_gpu_does() -> Iterator[None]:
    """Within the block interpreted kernels have bfloat16, E4M3 and infinities as on a GPU."""
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
        np.errstate(over="ignore"),  # on a GPU exp(x) of a large x is infinity, without a warning
        mock.patch.object(builder, "cast_impl", exact_cast),
        mock.patch.object(builder, "create_dot", exact_dot),
        mock.patch.object(interpreter, "_convert_float", exact_convert),
    ):
        yield


def hasten() -> None:
    """Make interpreted kernels faster: patch ``triton.language`` only if it is not patched."""
    patch_language: Any = interpreter._patch_lang

    def call(self: Any, *given: Any, **named: Any) -> Any:
        modules = [each for each in self.fn.__globals__.values() if each is tl or each is tl.core]
        if any(tl.core.is_builtin(each.load) for each in modules):
            patch_language(self.fn)
        return self.rewrite()(*given, **named)

    interpreter.InterpretedFunction.__call__ = call


DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""Where tests run kernels: on a GPU if there is one, else interpreted."""
if DEVICE.type == "cpu":
    hasten()
