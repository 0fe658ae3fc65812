"""Threads that share a forward pass, and stay awake while it lasts.

A pass is some sixty short jobs, one after the other. To wake a sleeping core takes longer than many
of them (50 to 100 us in a virtual machine), so the helpers of a team spin for a moment before they
sleep. The items of a job are claimed one by one: a helper whose core is busy with something else
takes fewer of them, and nobody waits for a helper that has not come.

One word of the board holds the number of the job in its upper half and, in its lower half, how many
items nobody has claimed. A claim is a compare-and-swap of that word for one less, which fails if
anything has changed since it was read. So a claim is always for the job that is described at the
time, and that description stays until all the job's items are done.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from app.model.cpu.kernels.compiled import compiled
from app.model.cpu.kernels.llvm import I32, I64, VOID, declare, of_integers, pointer

Board = NDArray[np.int64]
"""The shared state of a team; each number has a cache line of its own."""

WORD, DONE, SLEEPERS, CLOSED = 0, 8, 16, 24
_BOARD = 32
_SPINS_BEFORE_SLEEP = 6000
"""Looks at the board before a helper sleeps: some 100 us."""
_SPINS_BEFORE_YIELD = 2000
"""Looks at the board before a thread that waits for the last items yields its core."""
_FUTEX, _WAIT, _WAKE = 202, 128, 129  # x86-64 Linux; private to the process
_ALL = 1 << 30


def new_board() -> Board:
    room = np.zeros(_BOARD + 8, dtype=np.int64)
    start = -room.ctypes.data % 64 // 8
    return room[start : start + _BOARD]


@of_integers(types.int64)
def _read(builder: Any, address: Any) -> Any:
    return builder.load_atomic(pointer(builder, address), "acquire", 8)


@of_integers(types.void)
def _publish(builder: Any, address: Any, value: Any) -> None:
    builder.store_atomic(value, pointer(builder, address), "seq_cst", 8)


@of_integers(types.void)
def _add(builder: Any, address: Any, value: Any) -> None:
    builder.atomic_rmw("add", pointer(builder, address), value, "seq_cst")


@of_integers(types.int64)
def _exchange(builder: Any, address: Any, old: Any, new: Any) -> Any:
    """Compare-and-swap: 1 if ``old`` was replaced by ``new``, else 0."""
    pair = builder.cmpxchg(pointer(builder, address), old, new, "seq_cst", "seq_cst")
    return builder.zext(builder.extract_value(pair, 1), I64)


@of_integers(types.void)
def _pause(builder: Any) -> None:
    builder.call(declare(builder, VOID, [], "llvm.x86.sse2.pause"), [])


@of_integers(types.void)
def _yield_core(builder: Any) -> None:
    builder.call(declare(builder, I32, [], "sched_yield"), [])


@of_integers(types.void)
def _futex(builder: Any, address: Any, operation: Any, value: Any) -> None:
    """Sleep while the 32 bits at the address equal ``value``, or wake so many threads."""
    system_call = declare(builder, I64, [I64], "syscall", var_arg=True)
    builder.call(system_call, [I64(_FUTEX), address, operation, value, I64(0)])


@compiled()
def publish(board: Board, items: int) -> None:
    """Publish a job of ``items`` items, whose description is written already."""
    base = board.ctypes.data
    _publish(base + 8 * DONE, 0)
    number = (_read(base + 8 * WORD) >> 32) + 1
    _publish(base + 8 * WORD, ((number & 0x7FFFFFFF) << 32) | items)
    if _read(base + 8 * SLEEPERS) > 0:
        _futex(base + 8 * WORD + 4, _WAKE, _ALL)


@compiled()
def claim(board: Board) -> int:
    """Claim an item: returns how many were left, this one included; 0 if none was."""
    base = board.ctypes.data + 8 * WORD
    while True:
        word = _read(base)
        left: int = word & 0xFFFFFFFF
        if left == 0 or _exchange(base, word, word - 1):
            return left


@compiled()
def done(board: Board) -> None:
    """Count a claimed item as done."""
    _add(board.ctypes.data + 8 * DONE, 1)


@compiled()
def wait_for(board: Board, items: int) -> None:
    """Wait until ``items`` items are done."""
    base = board.ctypes.data
    looks = 0
    while _read(base + 8 * DONE) < items:
        looks += 1
        if looks < _SPINS_BEFORE_YIELD:
            _pause()
        else:
            _yield_core()


@compiled()
def next_item(board: Board) -> int:
    """As ``claim``, but waits for a job to come; 0 once the team is closed. For helpers."""
    base = board.ctypes.data
    looks = 0
    while True:
        left = claim(board)
        if left > 0:
            return left
        if _read(base + 8 * CLOSED):
            return 0
        looks += 1
        if looks < _SPINS_BEFORE_SLEEP:
            _pause()
            continue
        _add(base + 8 * SLEEPERS, 1)
        word = _read(base + 8 * WORD)
        if word & 0xFFFFFFFF == 0 and not _read(base + 8 * CLOSED):
            _futex(base + 8 * WORD + 4, _WAIT, word >> 32)
        _add(base + 8 * SLEEPERS, -1)
        looks = 0


@compiled()
def close(board: Board) -> None:
    """End the helpers' threads."""
    base = board.ctypes.data
    _publish(base + 8 * CLOSED, 1)
    _publish(base + 8 * WORD, ((_read(base + 8 * WORD) >> 32) + 1) << 32)
    _futex(base + 8 * WORD + 4, _WAKE, _ALL)
