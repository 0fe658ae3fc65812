"""The run: every arm with every workload and load, the arms in turn within each repetition.

Arms are interleaved because the speed of a machine drifts: a slow minute affects all arms alike.
The first arm changes with every repetition.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import httpx

from app.core.progress import SILENCE, Progress, Stage
from app.terminal.screen import open_screen
from loadtest.answers import Answer
from loadtest.connection import Connection
from loadtest.dialects import UnsupportedConstraintError
from loadtest.drive import Closed, Load, Prepared, Round, drive, prepared
from loadtest.server_metrics import difference, read_counts
from loadtest.targets import Arm, Target, running, served_model
from loadtest.workloads import Nonces, Workload

_SHARED_OFFSET = 1_200_000
"""Offset between the numbers of arms that share a server. Rotating texts stay the same; generated
documents differ, so that no arm finds another arm's prompts in the prefix cache."""
MOST_REQUESTS = 1_200
"""Maximum requests of a round."""
_WARM_UP_CLIENTS = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of measurements."""

    arms: Sequence[Arm]
    workloads: Sequence[Workload]
    loads: Sequence[Load]
    repeats: int
    requests: int
    """Requests of each round; at least two for each client of a closed loop, and at most the size
    of a finite workload."""
    warm_up: int
    """Warm-up requests for each arm and workload, before its first round."""
    run: str
    """Part of all nonces, so that they differ from other runs'."""
    cache: Literal["warm", "cold"] = "warm"
    """Cold: every request has a different schema, in all workloads."""
    temperature: float = 1.0
    seed: int = 0
    model: str | None = None
    """Model named in requests; by default the first one that the server lists."""
    api_key: str | None = None

    def size(self, load: Load) -> int:
        return max(self.requests, 2 * load.clients) if isinstance(load, Closed) else self.requests


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload under one load."""

    workload: str
    load: Load


@dataclass(frozen=True, slots=True)
class MeasuredRound:
    """A round of one arm, and the growth of the server's counters."""

    repeat: int
    answers: Sequence[Answer]
    seconds: float
    counts: dict[str, float]


@dataclass(slots=True)
class Results:
    """Rounds by cell and arm, in the order of measurement."""

    rounds: dict[tuple[Cell, str], list[MeasuredRound]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Arms and workloads that were not measured, with reasons."""

    @property
    def cells(self) -> list[Cell]:
        return list(dict.fromkeys(cell for cell, _ in self.rounds))


class _NoAnswersError(Exception):
    """A server answered none of the warm-up requests; the message has its error."""


@dataclass(frozen=True, slots=True)
class _Site:
    """A running server."""

    url: str
    model: str
    client: httpx.Client
    """Client for requests that are not measured."""


class Measurement:
    """Executes a plan; ``tell`` is called with a line about each step."""

    def __init__(
        self,
        plan: Plan,
        runner: Callable[..., Round],
        tell: Callable[[str], None],
        progress: Progress = SILENCE,
    ) -> None:
        self._plan = plan
        self._run = runner
        self._tell = tell
        self._progress = progress
        self._done = 0
        self._nonces = Nonces(plan.run)
        self._headers = {"authorization": f"Bearer {plan.api_key}"} if plan.api_key else {}
        self._warm: set[tuple[str, str]] = set()
        self._unsupported: set[tuple[str, str]] = set()
        """Arms and workloads that are not measured; the notes have the reasons."""
        self.results = Results()

    def together(self, model: Path | None, logs: Path) -> Results:
        """Measure with all servers running at the same time; starts each target once."""
        plan = self._plan
        with ExitStack() as stack, self._rounds() as stage:
            sites: dict[Target, _Site] = {}
            for arm in plan.arms:
                if arm.target not in sites:
                    sites[arm.target] = self._start(stack, arm, model, logs)
            for workload in plan.workloads:
                for load in plan.loads:
                    for repeat in range(plan.repeats):
                        for arm in self._order(repeat):
                            self._measure(arm, sites[arm.target], workload, load, repeat)
                            self._count(stage)
        return self.results

    def one_at_a_time(self, model: Path | None, logs: Path) -> Results:
        """Start, measure and stop one server after the other, in each repetition."""
        plan = self._plan
        with self._rounds() as stage:
            for repeat in range(plan.repeats):
                for arm in self._order(repeat):
                    self._warm.clear()
                    with ExitStack() as stack:
                        site = self._start(stack, arm, model, logs)
                        for workload in plan.workloads:
                            for load in plan.loads:
                                self._measure(arm, site, workload, load, repeat)
                                self._count(stage)
        return self.results

    def _rounds(self) -> AbstractContextManager[Stage]:
        plan = self._plan
        count = len(plan.arms) * len(plan.workloads) * len(plan.loads) * plan.repeats
        return self._progress.stage("measuring", count, unit="rounds")

    def _count(self, stage: Stage) -> None:
        self._done += 1
        stage.reach(self._done)

    def _start(self, stack: ExitStack, arm: Arm, model: Path | None, logs: Path) -> _Site:
        if not arm.target.url:
            self._tell(f"starting {arm.name}")
        url = stack.enter_context(running(arm.target, model, logs / arm.name.replace("/", "_")))
        client = httpx.Client(base_url=url, headers=self._headers, timeout=60)
        stack.enter_context(client)
        return _Site(url, self._plan.model or served_model(client), client)

    def _order(self, repeat: int) -> Iterator[Arm]:
        arms = self._plan.arms
        first = repeat % len(arms)
        yield from (*arms[first:], *arms[:first])

    def _measure(self, arm: Arm, site: _Site, workload: Workload, load: Load, repeat: int) -> None:
        if (arm.name, workload.name) in self._unsupported:
            return
        cell = Cell(workload.name, load)
        mine = arm.instead or workload
        size = min(self._plan.size(load), getattr(mine, "size", MOST_REQUESTS))
        try:
            if (arm.name, workload.name) not in self._warm:
                self._warm_up(arm, site, mine)
                self._warm.add((arm.name, workload.name))
            numbers = self._numbers(arm, self._plan.loads.index(load), repeat, size)
            requests = self._prepare(arm, site, mine, numbers, (cell, repeat))
        except (UnsupportedConstraintError, _NoAnswersError) as error:
            self._unsupported.add((arm.name, workload.name))
            self.results.notes.append(f"{arm.name}, {workload.name}: {error}")
            self._tell(self.results.notes[-1])
            return
        before = read_counts(site.client)
        result = self._run(self._connector(site), load, requests, repeat)
        counts = difference(before, read_counts(site.client))
        measured = MeasuredRound(repeat, result.answers, result.seconds, counts)
        self.results.rounds.setdefault((cell, arm.name), []).append(measured)
        bad = sum(answer.outcome != "valid" for answer in result.answers)
        self._tell(
            f"{workload.name}, {load}, repetition {repeat + 1}, {arm.name}: {size} requests in "
            f"{result.seconds:.2f} s" + (f", {bad} not valid" if bad else "")
        )

    def _warm_up(self, arm: Arm, site: _Site, workload: Workload) -> None:
        if not self._plan.warm_up:
            return
        numbers = range(self._plan.warm_up)
        requests = self._prepare(arm, site, workload, numbers, ("warm-up", workload.name))
        load = Closed(min(_WARM_UP_CLIENTS, len(numbers)))
        result = self._run(self._connector(site), load, requests, 0)
        if not any(answer.complete for answer in result.answers):
            raise _NoAnswersError(
                f"none of the first requests was answered: {result.answers[0].detail}"
            )

    def _numbers(self, arm: Arm, load: int, repeat: int, size: int) -> range:
        """Numbers of requests, unique on a server for each load, repetition and arm."""
        sharing = [each.name for each in self._plan.arms if each.target == arm.target]
        rounds = 1 + load * self._plan.repeats + repeat
        start = sharing.index(arm.name) * _SHARED_OFFSET + rounds * MOST_REQUESTS
        return range(start, start + size)

    def _prepare(
        self, arm: Arm, site: _Site, workload: Workload, numbers: range, place: object
    ) -> list[Prepared]:
        plan = self._plan
        fresh = plan.cache == "cold" or workload.always_fresh
        requests = []
        for number in numbers:
            nonce = self._nonces.nonce(arm.name, place, number) if fresh else ""
            request = arm.dialect.asked(workload.request(number, nonce))
            seed = plan.seed + number % _SHARED_OFFSET
            body = arm.dialect.body(request, site.model, seed, plan.temperature)
            requests.append(prepared(request, {**body, **arm.body}))
        return requests

    def _connector(self, site: _Site) -> Callable[[], Connection]:
        return lambda: Connection(site.url, self._headers)


def run_blocking(
    connect: Callable[[], Connection], load: Load, requests: Sequence[Prepared], seed: int
) -> Round:
    """``drive`` in its own event loop: uvloop's if installed, since it uses less CPU time."""
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        return runner.run(drive(connect, load, requests, seed))


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not available on Windows
        return None
    return uvloop.new_event_loop


def measure(
    plan: Plan,
    *,
    model: Path | None = None,
    logs: Path,
    one_at_a_time: bool = False,
    tell: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> Results:
    """Execute ``plan``; see ``Measurement``.

    A workload that a server does not support is noted; the others are measured. Raises RuntimeError
    if a server does not start, ``NotInstalled`` if its packages are missing, ValueError if it needs
    a model.
    """
    progress = open_screen(sys.stderr, still=True).progress
    run = Measurement(plan, run_blocking, tell, progress)
    return (run.one_at_a_time if one_at_a_time else run.together)(model, logs)
