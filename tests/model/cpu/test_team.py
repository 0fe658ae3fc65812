"""A team does every item of every job once, by any of its threads, which end when it closes."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from app.model.cpu.kernels import panels, team
from app.model.cpu.layers import PanelLinear
from app.model.cpu.workspace import CpuTeam

pytestmark = pytest.mark.skipif(not panels.runs_here(), reason="needs AVX2 on Linux")

Counts = NDArray[np.int64]
compiled: Callable[..., Callable[..., Callable[..., Any]]] = numba.njit


@compiled(nogil=True)
def help_counting(board: team.Board, items: Counts, counts: Counts) -> None:
    while True:
        left = team.next_item(board)
        if left == 0:
            return
        counts[items[0] - left] += 1
        team.done(board)


@compiled(nogil=True)
def lead(board: team.Board, items: Counts, counts: Counts, jobs: int, most: int) -> int:
    """Run jobs of 1 to ``most`` items; returns the number of items not done exactly once."""
    wrong = 0
    for job in range(jobs):
        size = 1 + job % most
        counts[:] = 0
        items[0] = size
        team.publish(board, size)
        while True:
            left = team.claim(board)
            if left == 0:
                break
            counts[size - left] += 1
            team.done(board)
        team.wait_for(board, size)
        for i in range(size):
            wrong += counts[i] != 1
        for i in range(size, len(counts)):
            wrong += counts[i] != 0
    return wrong


@pytest.mark.parametrize("helpers", [0, 1, 3])
def test_every_item_of_every_job_is_done_once(helpers: int) -> None:
    board, items, counts = team.new_board(), np.zeros(1, np.int64), np.zeros(64, np.int64)
    threads = [
        threading.Thread(target=help_counting, args=(board, items, counts), daemon=True)
        for _ in range(helpers)
    ]
    for thread in threads:
        thread.start()
    for _ in range(5):
        assert lead(board, items, counts, 2000, 40) == 0
        time.sleep(0.01)  # long enough for helpers to fall asleep
    team.close(board)
    for thread in threads:
        thread.join(timeout=300)
        assert not thread.is_alive()


def test_the_helper_threads_end_with_the_last_layer_that_needs_them() -> None:
    def helpers() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t.name.startswith("leapjson-pass")]

    gc.collect()
    before = set(helpers())
    layer = PanelLinear(torch.nn.Linear(64, 64, dtype=torch.bfloat16), CpuTeam(3))
    own = [each for each in helpers() if each not in before]
    assert len(own) == 2
    del layer
    gc.collect()
    for thread in own:
        thread.join(timeout=300)
        assert not thread.is_alive(), sys._current_frames().get(thread.ident or 0)
