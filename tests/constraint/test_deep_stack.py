"""Room on Python's stack for deep recursion: ``with_room_on_stack``."""

from __future__ import annotations

import resource

import pytest

from app.constraint.schema.lowering.builder import with_room_on_stack as with_room

_ROUNDS = 2_000


def _nothing() -> None:
    return None


def _loop_at_every_depth(depth: int) -> None:
    for _ in range(_ROUNDS):
        _nothing()
    if depth:
        _loop_at_every_depth(depth - 1)


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_no_depth_maps_memory_anew_in_every_round_of_a_loop() -> None:
    before = _faults()
    with_room(lambda: _loop_at_every_depth(300))
    assert _faults() - before < _ROUNDS / 2


def test_results_and_errors_come_through() -> None:
    assert with_room(lambda: "result") == "result"
    with pytest.raises(ValueError, match="reason"):
        with_room(lambda: int("reason"))


def test_rooms_may_lie_in_one_another() -> None:
    assert with_room(lambda: with_room(lambda: 1) + with_room(lambda: 2)) == 3
