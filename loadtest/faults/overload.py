"""Three times as many requests as the server can answer: accepted ones keep their speed."""

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
TIMES = 3
GOAL = 0.9
"""Of the peak."""


@dataclass(frozen=True, slots=True)
class _Peak:
    rate: float
    """Answers in a second."""
    latency: float
    """Seconds, 99 % of the answers."""


@dataclass(slots=True)
class Load:
    """The outcomes of the requests of one phase."""

    url: str
    seconds: list[float] = field(default_factory=list)
    """Of each request that was answered."""
    ended: list[float] = field(default_factory=list)
    """When."""
    refused: list[float] = field(default_factory=list)
    """Seconds until the refusal."""
    retry_after: list[int] = field(default_factory=list)
    broken: int = 0

    async def ask(self, number: int) -> None:
        start = time.perf_counter()
        # With asyncio's streams this process would need twice the time, on the server's cores.
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
        """Answers in a second of that time."""
        return sum(start <= moment < end for moment in self.ended) / (end - start)


class _Cores:
    """Processor time of a phase, by process and thread."""

    def __init__(self, server: Server) -> None:
        self._pid = server.process.pid
        self._start = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        loop = processor_seconds(self._pid, main_thread=True)
        others = processor_seconds(self._pid) - loop
        return time.perf_counter(), loop, others, time.process_time()

    def report(self, report: Report) -> None:
        """In cores: 1 is one that does nothing else."""
        wall, *used = (now - then for now, then in zip(self._now(), self._start, strict=True))
        shares = ", ".join(f"{each / wall:.3f}" for each in used)
        report.note("cores: server's event loop, its other threads, this client", shares)


async def run(setting: Setting, report: Report) -> None:
    seconds = 30 * setting.scale
    # As it is served: answers are not compared, and the type decides how fast a step is.
    with setting.server(max_queue=str(QUEUE), dtype="auto") as server:
        url = server.url
        await asyncio.gather(*(Load(url).ask(number) for number in range(CLIENTS)))
        peak = await _peak(server, seconds, report)
        await settle(url)
        await _over(server, seconds, peak, report)
        await settle(url)
        after = await _peak(server, seconds / 2, Report("overload, afterwards"))
        report.check(
            "throughput afterwards, answers/s",
            after.rate,
            f">= {GOAL:.0%} of the peak",
            after.rate >= GOAL * peak.rate,
        )


async def _peak(server: Server, seconds: float, report: Report) -> _Peak:
    """The highest rate without a refusal, with all places taken."""
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
    report.note("latency there, p99 s", peak.latency)
    report.equal("requests refused there", len(load.refused) + load.broken, 0)
    cores.report(report)
    return peak


async def _over(server: Server, seconds: float, peak: _Peak, report: Report) -> None:
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
            due += rng.expovariate(TIMES * peak.rate)
        cores.report(report)
        await asyncio.gather(*tasks)
    served = load.rate(start + seconds / 5, start + seconds)
    report.note(f"arrivals at {TIMES} times the peak, requests/s", number / seconds)
    report.check(
        "served, answers/s", served, f">= {GOAL:.0%} of the peak", served >= GOAL * peak.rate
    )
    # An accepted request waits for a full queue first, and then runs as at the peak.
    bound = peak.latency + QUEUE / (GOAL * peak.rate)
    report.at_most("accepted: latency, p99 s", quantile(load.seconds, 0.99), bound)
    report.note("accepted", len(load.seconds))
    report.note("refused with 429", len(load.refused))
    report.note("refused after, p99 ms", 1000 * quantile(load.refused, 0.99))
    report.check(
        "Retry-After, least and most s",
        f"{min(load.retry_after, default=0)} to {max(load.retry_after, default=0)}",
        "1 to 120",
        all(1 <= each <= 120 for each in load.retry_after) and bool(load.retry_after),
    )
    report.equal("neither answered nor refused", load.broken, 0)
    probe.report(report, 0.5)
