"""Ranks as threads of one process, which exchange tensors through a list."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
_Lock = type(threading.Lock())


class _Board:
    def __init__(self, size: int, turns: AbstractContextManager[object]) -> None:
        self.turns = turns
        """Held while a rank computes."""
        self.barrier = threading.Barrier(size, timeout=300)
        self.places: list[Tensor] = [torch.empty(0)] * size


class ThreadGroup:
    """A ``Group`` whose ranks are threads; sums are added in the order of the ranks."""

    def __init__(self, rank: int, size: int, board: _Board) -> None:
        self.rank = rank
        self.size = size
        self._board = board

    def sum(self, tensor: Tensor) -> Tensor:
        total = torch.stack(self._all(tensor)).sum(0)
        return tensor.copy_(total)

    def gather(self, tensor: Tensor) -> Tensor:
        return torch.cat(self._all(tensor), -1)

    def broadcast(self, tensor: Tensor) -> Tensor:
        return tensor.copy_(self._all(tensor)[0])

    def empty_ids(self, count: int) -> Tensor:
        return torch.empty(count, dtype=torch.int64)

    def least(self, number: int) -> int:
        return min(int(each) for each in self._all(torch.tensor(number)))

    def _all(self, tensor: Tensor) -> list[Tensor]:
        board = self._board
        board.places[self.rank] = tensor.clone()
        with ExitStack() as stack:
            if isinstance(board.turns, _Lock):
                board.turns.release()
                stack.callback(board.turns.acquire)
            board.barrier.wait()
            found = list(board.places)
            board.barrier.wait()
        assert all(each.shape == tensor.shape for each in found), "ranks send different shapes"
        return found


def lone_rank(rank: int, size: int) -> ThreadGroup:
    """A rank that cannot exchange anything."""
    return ThreadGroup(rank, size, _Board(size, nullcontext()))


def on_all_ranks(
    size: int, run: Callable[[ThreadGroup], T], *, one_at_a_time: bool = False
) -> list[T]:
    """Results of ``run`` in each of ``size`` ranks; raises the error of a rank that fails.

    With ``one_at_a_time`` only one rank computes at a time, until it exchanges tensors.
    """
    board = _Board(size, threading.Lock() if one_at_a_time else nullcontext())

    def rank(number: int) -> T:
        try:
            with board.turns:
                return run(ThreadGroup(number, size, board))
        except BaseException:
            board.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        running = [pool.submit(rank, number) for number in range(size)]
    failed = [each.exception() for each in running if each.exception() is not None]
    for error in failed:
        if not isinstance(error, threading.BrokenBarrierError):
            assert error is not None
            raise error
    return [each.result() for each in running]
