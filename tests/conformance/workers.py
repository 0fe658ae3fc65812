"""Worker processes that can be killed: one task at a time each, with a time limit.

Workers are forked, so the engines and their tables over a vocabulary are built once, and a killed
worker is replaced quickly.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any

from tests.conformance.trials import Judge, Trial
from tools.datasets import Case


@dataclass
class _Worker:
    process: ForkProcess
    pipe: Connection
    task: int | None = None
    ahead: list[str] = field(default_factory=list)
    """Judges of the task without a result yet; the first has been running since ``since``."""
    since: float = 0.0


def run(
    cases: Sequence[Case], judges: Mapping[str, Judge], *, workers: int, seconds: float
) -> Iterator[tuple[int, str, Trial]]:
    """Yields each judge's result on each case: (index of the case, name of the judge, trial).

    The judges of a case run one after the other in one process, so their times are comparable. A
    judge that takes longer than ``seconds`` is killed and counts as ``time-out``; one that ends its
    process counts as ``crash``.
    """
    waiting = list(range(len(cases)))[::-1]
    spawn: Callable[[], _Worker] = lambda: _spawn(cases, judges)  # noqa: E731
    pool = [spawn() for _ in range(workers)]
    while True:
        for worker in pool:
            if worker.task is None and waiting:
                _assign(worker, waiting.pop(), list(judges))
        busy = [worker for worker in pool if worker.task is not None]
        if not busy:
            break
        ready = wait([worker.pipe for worker in busy], timeout=0.2)
        for place, worker in enumerate(pool):
            if worker.task is None:
                continue
            if worker.pipe in ready:
                trial = _receive(worker)
            elif time.monotonic() - worker.since > seconds:
                trial = Trial("time-out")
            else:
                continue
            yield worker.task, worker.ahead.pop(0), trial
            worker.since = time.monotonic()
            if trial.outcome == "time-out" or not worker.process.is_alive():
                pool[place] = _replace(worker, spawn)
            elif not worker.ahead:
                worker.task = None
    for worker in pool:
        _stop(worker)


def _spawn(cases: Sequence[Case], judges: Mapping[str, Judge]) -> _Worker:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, cases, judges), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _serve(pipe: Connection, cases: Sequence[Case], judges: Mapping[str, Judge]) -> None:
    gc.freeze()  # keeps the parent's tables out of garbage collection
    while True:
        task: tuple[int, list[str]] = pipe.recv()
        for name in task[1]:
            pipe.send(judges[name](cases[task[0]]))


def _assign(worker: _Worker, task: int, ahead: list[str]) -> None:
    worker.task, worker.ahead, worker.since = task, ahead, time.monotonic()
    worker.pipe.send((task, ahead))


def _receive(worker: _Worker) -> Trial:
    try:
        trial: Any = worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        return Trial("crash", reason=f"the process exited with code {worker.process.exitcode}")
    assert isinstance(trial, Trial)
    return trial


def _replace(worker: _Worker, spawn: Callable[[], _Worker]) -> _Worker:
    """A new worker, which continues with the judges that have no result yet."""
    task, ahead = worker.task, worker.ahead
    _stop(worker)
    fresh = spawn()
    if ahead and task is not None:
        _assign(fresh, task, ahead)
    return fresh


def _stop(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join()
    worker.pipe.close()
