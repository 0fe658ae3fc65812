"""Calls of ``scans``: every span and some of its heads is an item, shared out among threads.

A call is a record of numbers and addresses, and an item is done by a function that is known by its
address alone, see ``records.share``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from app.model.cpu.kernels import scans
from app.model.cpu.kernels.compiled import address_of, compiled
from app.model.cpu.kernels.records import at, memory, record

CALL = record(
    "spans", "rows", "reads", "save_starts", "save_rows", "save_slots",
    "chunks", "tokens", "slots", "states", "heads", "sources", "height", "width",
    "extra", "x", "a", "b", "c", "d", "out",
)  # fmt: skip
"""Sizes, and the addresses of what a step reads and saves (see ``scans``), of the states
[slots, heads, height, width], and of what is particular to a scan. ``heads`` are shared out."""

_f32: Any = np.float32
_i64: Any = np.int64


@compiled()
def _span(call: Any, item: int) -> Any:
    """Arguments of every scan for its item: first and end row, slot, saves, and heads."""
    s, chunk = item % call.spans, item // call.spans
    rows = memory(at(call.rows), (call.spans + 1,), _i64)
    starts = memory(at(call.save_starts), (call.spans + 1,), _i64)
    saves = starts[call.spans]
    return (
        rows[s], rows[s + 1], memory(at(call.reads), (call.spans,), _i64)[s],
        memory(at(call.save_rows), (saves,), _i64),
        memory(at(call.save_slots), (saves,), _i64), starts[s], starts[s + 1],
        call.heads * chunk // call.chunks, call.heads * (chunk + 1) // call.chunks,
    )  # fmt: skip


def _delta_rule(number: Any) -> Callable[[int, int], None]:
    def run(call_at: int, item: int) -> None:
        call = memory(at(call_at), (1,), CALL)[0]
        first, end, read, save_rows, save_slots, save, last, head, end_head = _span(call, item)
        keys = (call.tokens, call.sources, call.width)
        values = (call.tokens, call.heads, call.height)
        by_channel = call.extra >= 2
        scans.delta_item(
            memory(at(call.x), keys, number),
            memory(at(call.a), keys, number),
            memory(at(call.b), values, number),
            memory(at(call.c), (call.tokens, call.heads, call.width if by_channel else 1), _f32),
            memory(at(call.d), (call.tokens, call.heads), _f32),
            call.extra % 2 == 1,
            memory(at(call.states), (call.slots, call.heads, call.height, call.width), _f32),
            first, end, read, save_rows, save_slots, save, last, head, end_head,
            memory(at(call.out), values, number),
        )  # fmt: skip

    return run


def _mamba2(number: Any) -> Callable[[int, int], None]:
    def run(call_at: int, item: int) -> None:
        call = memory(at(call_at), (1,), CALL)[0]
        first, end, read, save_rows, save_slots, save, last, head, end_head = _span(call, item)
        values = (call.tokens, call.heads, call.height)
        groups = (call.tokens, call.sources, call.width)
        scans.mamba2_item(
            memory(at(call.x), values, number),
            memory(at(call.a), (call.tokens, call.heads), _f32),
            memory(at(call.b), (call.heads,), _f32),
            memory(at(call.c), groups, number),
            memory(at(call.d), groups, number),
            memory(at(call.extra), (call.heads,), _f32),
            memory(at(call.states), (call.slots, call.heads, call.height, call.width), _f32),
            first, end, read, save_rows, save_slots, save, last, head, end_head,
            memory(at(call.out), values, _f32),
        )  # fmt: skip

    return run


def _mamba1(number: Any) -> Callable[[int, int], None]:
    def run(call_at: int, item: int) -> None:
        call = memory(at(call_at), (1,), CALL)[0]
        first, end, read, save_rows, save_slots, save, last, head, end_head = _span(call, item)
        scans.mamba1_item(
            memory(at(call.x), (call.tokens, call.heads), number),
            memory(at(call.a), (call.tokens, call.heads), _f32),
            memory(at(call.b), (call.heads, call.width), _f32),
            memory(at(call.c), (call.tokens, call.width), number),
            memory(at(call.d), (call.tokens, call.width), number),
            memory(at(call.states), (call.slots, call.heads, call.width), _f32),
            first, end, read, save_rows, save_slots, save, last, head, end_head,
            memory(at(call.out), (call.tokens, call.heads), _f32),
        )  # fmt: skip

    return run


def _convolve(number: Any) -> Callable[[int, int], None]:
    def run(call_at: int, item: int) -> None:
        call = memory(at(call_at), (1,), CALL)[0]
        first, end, read, save_rows, save_slots, save, last, head, end_head = _span(call, item)
        scans.convolve_item(
            memory(at(call.x), (call.tokens, call.heads), number),
            memory(at(call.a), (call.height + 1, call.heads), _f32),
            memory(at(call.b), (call.heads,), _f32),
            call.extra == 1,
            memory(at(call.states), (call.slots, call.height, call.heads), number),
            first, end, read, save_rows, save_slots, save, last, head, end_head,
            memory(at(call.out), (call.tokens, call.heads), number), head,
        )  # fmt: skip

    return run


_SCANS = {"delta_rule": _delta_rule, "mamba2": _mamba2, "mamba1": _mamba1, "convolve": _convolve}


@functools.cache
def address_of_scan(scan: str, number: Any) -> int:
    """The address of the function that does an item; compiled on the first call.

    ``number`` is the type of the model's activations in ``compiled.as_numpy``.
    """
    return address_of(_SCANS[scan](number), "void(int64, int64)")
