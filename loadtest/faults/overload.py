"""Three times as many requests as the server can answer: accepted ones stay fast."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass, field

from loadtest.connection import Connection, NoAnswerError
from loadtest.drive import TIMEOUT
from loadtest.faults.client import CHAT
from loadtest.faults.findings import Report, quantile
from loadtest.faults.setting import Setting
from loadtest.faults.watch import probing, processor_seconds, question, settle
from loadtest.server import Server

CLIENTS = 64
QUEUE = 64
OVERLOAD_FACTOR = 3
GOAL = 0.9
"""Minimum throughput, as a share of the peak."""


@dataclass(frozen=True, slots=True)
class _Peak:
    rate: float
    """Answers per second."""
    latency: float
    """99th percentile, in seconds."""


@dataclass(slots=True)
class Load:
    """The outcomes of the requests of one phase."""

    url: str
    seconds: list[float] = field(default_factory=list)
    """Latency of each answered request."""
    ended: list[float] = field(default_factory=list)
    """Time of each answer's end."""
    refused: list[float] = field(default_factory=list)
    """Seconds until the refusal."""
    retry_after: list[int] = field(default_factory=list)
    broken: int = 0

    async def ask(self, number: int) -> None:
        start = time.perf_counter()
        # asyncio's streams would use twice the CPU time, on cores shared with the server.
        connection = Connection(self.url, {"connection": "close"})
        try:
            answer = await connection.post(CHAT, json.dumps(question(number)).encode(), TIMEOUT)
        except NoAnswerError:
            self.broken += 1
            return
        now = time.perf_counter()
        if answer.status == 200:
            self.seconds.append(now - start)
            self.ended.append(now)
        elif answer.status == 429:
            self.refused.append(now - start)
            self.retry_after.append(int(answer.headers.get("retry-after", 0)))
        else:
            self.broken += 1

    def rate(self, start: float, end: float) -> float:
        """Answers per second in the interval."""
        return sum(start <= moment < end for moment in self.ended) / (end - start)


class _Cores:
    """CPU time of a phase, by process and thread."""

    def __init__(self, server: Server) -> None:
        self._pid = server.process.pid
        self._start = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        loop = processor_seconds(self._pid, main_thread=True)
        others = processor_seconds(self._pid) - loop
        return time.perf_counter(), loop, others, time.process_time()

    def report(self, report: Report) -> None:
        """Report average CPU use in cores: 1 is one core fully used."""
        wall, *used = (now - then for now, then in zip(self._now(), self._start, strict=True))
        shares = ", ".join(f"{each / wall:.3f}" for each in used)
        report.note("cores: server's event loop, its other threads, this client", shares)


async def run(setting: Setting, report: Report) -> None:
    seconds = 30 * setting.scale
    # The default dtype: answers are not compared, and the dtype determines the speed.
    with setting.server(max_queue=str(QUEUE), dtype="auto") as server:
        url = server.url
        await asyncio.gather(*(Load(url).ask(number) for number in range(CLIENTS)))
        peak = await _peak(server, seconds, report)
        await settle(url)
        await _overload(server, seconds, peak, report)
        await settle(url)
        after = await _peak(server, seconds / 2, Report("overload, afterwards"))
        report.check(
            "throughput afterwards, answers/s",
            after.rate,
            f">= {GOAL:.0%} of the peak",
            after.rate >= GOAL * peak.rate,
        )


async def _peak(server: Server, seconds: float, report: Report) -> _Peak:
    """The throughput with ``CLIENTS`` waiting clients and no refusals."""
    load = Load(server.url)
    cores = _Cores(server)
    stop = time.perf_counter() + seconds
    middle = time.perf_counter() + seconds / 5

    async def client(number: int) -> None:
        while time.perf_counter() < stop:
            await load.ask(number)
            number += CLIENTS

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    peak = _Peak(load.rate(middle, stop), quantile(load.seconds, 0.99))
    report.note(f"peak with {CLIENTS} clients, answers/s", peak.rate)
    report.note("latency at the peak, p99 s", peak.latency)
    report.equal("requests refused at the peak", len(load.refused) + load.broken, 0)
    cores.report(report)
    return peak


async def _overload(server: Server, seconds: float, peak: _Peak, report: Report) -> None:
    rng = random.Random(0)
    load = Load(server.url)
    cores = _Cores(server)
    start = time.perf_counter()
    due, number, tasks = start, 0, []
    async with probing(server.url) as probe:
        while due < start + seconds:
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            tasks.append(asyncio.create_task(load.ask(number)))
            number += 1
            due += rng.expovariate(OVERLOAD_FACTOR * peak.rate)
        cores.report(report)
        await asyncio.gather(*tasks)
    served = load.rate(start + seconds / 5, start + seconds)
    report.note(f"arrivals at {OVERLOAD_FACTOR} times the peak, requests/s", number / seconds)
    report.check(
        "served, answers/s", served, f">= {GOAL:.0%} of the peak", served >= GOAL * peak.rate
    )
    # An accepted request first waits for the full queue, and then runs as at the peak.
    bound = peak.latency + QUEUE / (GOAL * peak.rate)
    report.at_most("accepted: latency, p99 s", quantile(load.seconds, 0.99), bound)
    report.note("accepted", len(load.seconds))
    report.note("refused with 429", len(load.refused))
    report.note("refused after, p99 ms", 1000 * quantile(load.refused, 0.99))
    report.check(
        "Retry-After, minimum and maximum s",
        f"{min(load.retry_after, default=0)} to {max(load.retry_after, default=0)}",
        "1 to 120",
        all(1 <= each <= 120 for each in load.retry_after) and bool(load.retry_after),
    )
    report.equal("neither answered nor refused", load.broken, 0)
    probe.report(report, 0.5)
