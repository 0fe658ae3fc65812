"""Unpickling of a worker's answer in slices, with pauses between them."""

from __future__ import annotations

import gc
import pickle
from itertools import count
from typing import Any

from app.serving.workers.pool import load_paced

VALUE: Any = {
    "names": [f"name {i}" for i in range(30_000)],
    "pairs": {(i, "x"): i for i in range(99)},
}


def test_a_value_read_in_slices_equals_the_written_value() -> None:
    for protocol in (4, 5):
        data = pickle.dumps(VALUE, protocol=protocol)
        assert load_paced(data, sleep=lambda seconds: None) == VALUE


def test_there_is_a_pause_after_every_slice_of_work() -> None:
    ticks = count()
    pauses: list[float] = []
    data = pickle.dumps(VALUE, protocol=5)
    load_paced(data, clock=lambda: float(next(ticks)), sleep=pauses.append)
    assert len(pauses) >= len(data) >> 16, "a frame holds 64 KiB"


def test_a_pause_is_bounded_however_long_the_work_took() -> None:
    ticks = count(step=1000)
    pauses: list[float] = []
    load_paced(pickle.dumps(VALUE), clock=lambda: float(next(ticks)), sleep=pauses.append)
    assert max(pauses) < 0.1


def test_garbage_collection_pauses_while_reading_and_the_value_is_frozen() -> None:
    running: list[bool] = []
    ticks = count()
    frozen = gc.get_freeze_count()
    value = load_paced(
        pickle.dumps([(i, str(i)) for i in range(30_000)]),
        clock=lambda: float(next(ticks)),
        sleep=lambda seconds: running.append(gc.isenabled()),
    )
    assert not any(running)
    assert gc.isenabled()
    assert gc.get_freeze_count() - frozen > len(value) // 2
    gc.unfreeze()


def test_a_small_value_is_read_without_a_pause() -> None:
    pauses: list[float] = []
    assert load_paced(pickle.dumps("ready"), clock=lambda: 0.0, sleep=pauses.append) == "ready"
    assert pauses == []
