"""AMX's instructions on any processor, as Intel's manual defines them, for compiled loops in tests.

Products of weights that are packed inside ``emulated`` call functions of Python for them. Each
thread has its own tiles.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
import pytest
from llvmlite import binding  # type: ignore[import-untyped]
from numpy.typing import NDArray

from app.core.kernels import has
from app.model.cpu.kernels import amx, panels, quantized_products
from app.model.cpu.kernels.llvm import defined

_Bytes = NDArray[np.uint8]


class _Tiles(threading.local):
    def __init__(self) -> None:
        self.numbers = np.zeros((8, 16, 64), dtype=np.uint8)
        self.rows: list[int] = []
        self.sizes: list[int] = []

    def __getitem__(self, number: int) -> _Bytes:
        return self.numbers[number, : self.rows[number], : self.sizes[number]]


_TILES = _Tiles()


def _memory(address: int, count: int) -> _Bytes:
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))


def _ldtilecfg(address: int) -> None:
    config = _memory(address, 64)
    assert config[0] == 1, "palette"
    _TILES.sizes = config[16:32].view(np.uint16).tolist()
    _TILES.rows = config[48:56].tolist()
    assert max(_TILES.sizes) <= 64
    assert max(_TILES.rows) <= 16
    _TILES.numbers[:] = 0


def _tilerelease() -> None:
    _TILES.rows = []


def _tilezero(tile: int) -> None:
    _TILES[tile][:] = 0


def _tileloadd64(tile: int, address: int, stride: int) -> None:
    _TILES.numbers[tile] = 0
    for row, into in enumerate(_TILES[tile]):
        into[:] = _memory(address + row * stride, len(into))


def _tilestored64(tile: int, address: int, stride: int) -> None:
    for row, values in enumerate(_TILES[tile]):
        _memory(address + row * stride, len(values))[:] = values


def _operands(sums: int, a: int, b: int) -> tuple[_Bytes, _Bytes, _Bytes]:
    out, rows, columns = (_TILES[tile].copy() for tile in (sums, a, b))
    assert len(rows) == len(out)
    assert rows.shape[1] == 4 * len(columns)
    assert columns.shape[1] == out.shape[1]
    return out, rows, columns


def _flushed(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Denormal numbers are zeros."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.float32(0), values)


def _tdpbf16ps(sums: int, a: int, b: int) -> None:
    out, *parts = _operands(sums, a, b)
    rows, columns = (
        _flushed((part.copy().view(np.uint16).astype(np.uint32) << 16).view(np.float32))
        for part in parts
    )
    totals = np.zeros((2, len(out), out.shape[1] // 4), dtype=np.float32)
    for pair in range(len(columns)):
        for odd in range(2):
            # The product has 16 bits and is exact; in float64 the sum is rounded once more only.
            product = np.outer(rows[:, 2 * pair + odd], columns[pair, odd::2]).astype(np.float64)
            totals[odd] = _flushed((product + totals[odd]).astype(np.float32))
    found = _flushed(out.view(np.float32)) + _flushed(totals[0] + totals[1])
    _TILES[sums][:] = _flushed(found).view(np.uint8)


def _tdpbsud(sums: int, a: int, b: int) -> None:
    out, rows, columns = _operands(sums, a, b)
    signed = rows.view(np.int8).astype(np.int32)
    for word in range(len(columns)):
        for byte in range(4):
            part = np.outer(signed[:, 4 * word + byte], columns[word, byte::4].astype(np.int32))
            out.view(np.int32)[:] += part.astype(np.int32)
    _TILES[sums][:] = out


_INSTRUCTIONS: tuple[tuple[Callable[..., None], list[Any]], ...] = (
    (_ldtilecfg, [ctypes.c_int64]),
    (_tilerelease, []),
    (_tilezero, [ctypes.c_uint8]),
    (_tileloadd64, [ctypes.c_uint8, ctypes.c_int64, ctypes.c_int64]),
    (_tilestored64, [ctypes.c_uint8, ctypes.c_int64, ctypes.c_int64]),
    (_tdpbf16ps, [ctypes.c_uint8] * 3),
    (_tdpbsud, [ctypes.c_uint8] * 3),
)
_FUNCTIONS = {
    made.__name__[1:]: ctypes.CFUNCTYPE(None, *kinds)(made) for made, kinds in _INSTRUCTIONS
}
_PREFIX = "leapjson_emulated_"
_KEPT: list[Any] = []


@functools.cache
def _address_of(function: Callable[..., object], signature: str) -> int:
    made: Any = numba.cfunc(signature, error_model="numpy")(function)  # not cached on disk
    _KEPT.append(made)
    return int(made.address)


@contextmanager
def emulated() -> Iterator[None]:
    """Weights that are packed inside have products by AMX, and rows of bfloat16."""
    for name, function in _FUNCTIONS.items():
        binding.add_symbol(f"{_PREFIX}{name}", ctypes.cast(function, ctypes.c_void_p).value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amx, "PREFIX", _PREFIX)
        patch.setattr(amx, "missing", lambda: "")
        patch.setattr(panels, "widened", lambda: False)
        patch.setattr(panels, "has", lambda feature: feature.startswith("amx") or has(feature))
        for module in (amx, panels, quantized_products):
            patch.setattr(module, "address_of", _address_of)
        for module in (amx, panels):
            # Beside the loops of this processor, which have the same names.
            patch.setattr(
                module,
                "defined",
                lambda builder, name, *args: defined(builder, f"emulated_{name}", *args),
            )
        yield
