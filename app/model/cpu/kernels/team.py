"""Threads that share out a forward pass among them, and stay awake while it lasts.

A pass is some sixty short pieces of work, one after the other. To wake a sleeping core for each
takes longer than many of them (50 to 100 us in a virtual machine), so the helpers of a team spin
for a moment before they sleep. The items of a job are claimed one by one: a helper whose core does
something else just now takes fewer, and nobody waits for one that has not come.

``word`` holds the number of the job in its upper half and the items nobody has claimed in its
lower half. An item is claimed by exchanging the word for one less, which fails when anything has
changed since it was read; so a claim is for the job whose description lies there, and that
stays until all its items are done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from app.model.cpu.kernels.compiled import compiled

Board = NDArray[np.int64]
"""What a team shares; each number has a cache line of its own."""

WORD, DONE, SLEEPERS, CLOSED = 0, 8, 16, 24
_BOARD = 32
_SPINS = 6000
"""Looks at the board before a helper sleeps: some 100 us."""
_PATIENCE = 2000
"""Looks at the board before one that waits for others offers its core to them."""
_FUTEX, _WAIT, _WAKE = 202, 128, 129  # x86-64 Linux; private to the process

_code: Any = cgutils
_intrinsic: Any = intrinsic
_I64 = ir.IntType(64)


def new_board() -> Board:
    room = np.zeros(_BOARD + 8, dtype=np.int64)
    start = -room.ctypes.data % 64 // 8
    return room[start : start + _BOARD]


def _define(count: int, emit: Callable[..., Any], result: Any = types.int64) -> Any:
    """An intrinsic of ``count`` whole numbers, the first of which is an address."""

    def emitted(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return emit(builder, *arguments)

    def one(_context: Any, a: Any) -> Any:
        return result(types.int64), emitted

    def two(_context: Any, a: Any, b: Any) -> Any:
        return result(types.int64, types.int64), emitted

    def three(_context: Any, a: Any, b: Any, c: Any) -> Any:
        return result(types.int64, types.int64, types.int64), emitted

    function = (one, two, three)[count - 1]
    function.__name__ = emit.__name__
    return _intrinsic(function)


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _I64.as_pointer())


def _emit_read(builder: Any, address: Any) -> Any:
    return builder.load_atomic(_pointer(builder, address), "acquire", 8)


def _emit_publish(builder: Any, address: Any, value: Any) -> Any:
    builder.store_atomic(value, _pointer(builder, address), "seq_cst", 8)
    return value


def _emit_add(builder: Any, address: Any, value: Any) -> Any:
    return builder.atomic_rmw("add", _pointer(builder, address), value, "seq_cst")


def _emit_exchange(builder: Any, address: Any, old: Any, new: Any) -> Any:
    pair = builder.cmpxchg(_pointer(builder, address), old, new, "seq_cst", "seq_cst")
    return builder.zext(builder.extract_value(pair, 1), _I64)


def _emit_pause(builder: Any, address: Any) -> Any:
    kind = ir.FunctionType(ir.VoidType(), [])
    builder.call(_code.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
    return address


def _emit_give_way(builder: Any, address: Any) -> Any:
    kind = ir.FunctionType(ir.IntType(32), [])
    builder.call(_code.get_or_insert_function(builder.module, kind, "sched_yield"), [])
    return address


def _system_call(builder: Any, *arguments: Any) -> Any:
    kind = ir.FunctionType(_I64, [_I64], var_arg=True)
    return builder.call(
        _code.get_or_insert_function(builder.module, kind, "syscall"), [_I64(_FUTEX), *arguments]
    )


def _emit_sleep(builder: Any, address: Any, seen: Any) -> Any:
    return _system_call(builder, address, _I64(_WAIT), seen, _I64(0))


def _emit_wake(builder: Any, address: Any) -> Any:
    return _system_call(builder, address, _I64(_WAKE), _I64(1 << 30))


_read = _define(1, _emit_read)
_publish = _define(2, _emit_publish)
_add = _define(2, _emit_add)
_exchange = _define(3, _emit_exchange)
_pause = _define(1, _emit_pause)
_give_way = _define(1, _emit_give_way)
_sleep = _define(2, _emit_sleep)
"""While the 32 bits at the address are as seen."""
_wake = _define(1, _emit_wake)


@compiled()
def publish(board: Board, items: int) -> None:
    """Offer a job of so many items, whose description is written already."""
    base = board.ctypes.data
    _publish(base + 8 * DONE, 0)
    number = (_read(base + 8 * WORD) >> 32) + 1
    _publish(base + 8 * WORD, ((number & 0x7FFFFFFF) << 32) | items)
    rouse(board)


@compiled()
def rouse(board: Board) -> None:
    """Wake the helpers that sleep, so that they are there when a job comes."""
    base = board.ctypes.data
    if _read(base + 8 * SLEEPERS) > 0:
        _wake(base + 8 * WORD + 4)


@compiled()
def claim(board: Board) -> int:
    """How many items of the job on offer were left with the one claimed; 0 where all are."""
    base = board.ctypes.data + 8 * WORD
    while True:
        word = _read(base)
        left: int = word & 0xFFFFFFFF
        if left == 0 or _exchange(base, word, word - 1):
            return left


@compiled()
def done(board: Board) -> None:
    """Say that a claimed item is done."""
    _add(board.ctypes.data + 8 * DONE, 1)


@compiled()
def wait_for(board: Board, items: int) -> None:
    """Until so many items are done."""
    base = board.ctypes.data
    looks = 0
    while _read(base + 8 * DONE) < items:
        looks += 1
        if looks < _PATIENCE:
            _pause(base)
        else:
            _give_way(base)


@compiled()
def next_item(board: Board) -> int:
    """For a helper: ``claim``, however long it takes to find any; 0 once the team is closed."""
    base = board.ctypes.data
    looks = 0
    while True:
        left = claim(board)
        if left > 0:
            return left
        if _read(base + 8 * CLOSED):
            return 0
        looks += 1
        if looks < _SPINS:
            _pause(base)
            continue
        _add(base + 8 * SLEEPERS, 1)
        word = _read(base + 8 * WORD)
        if word & 0xFFFFFFFF == 0 and not _read(base + 8 * CLOSED):
            _sleep(base + 8 * WORD + 4, word >> 32)
        _add(base + 8 * SLEEPERS, -1)
        looks = 0


@compiled()
def close(board: Board) -> None:
    """Send the helpers home."""
    base = board.ctypes.data
    _publish(base + 8 * CLOSED, 1)
    _publish(base + 8 * WORD, ((_read(base + 8 * WORD) >> 32) + 1) << 32)
    _wake(base + 8 * WORD + 4)
