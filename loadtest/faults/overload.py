"""Three times as many requests as can be served: what is accepted is served as well as ever."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field

from loadtest.faults.client import BrokenAnswerError, send
from loadtest.faults.report import Report, quantile
from loadtest.faults.setting import Setting
from loadtest.faults.watch import probing, question, settle

CLIENTS = 64
QUEUE = 64
TIMES = 3


@dataclass(slots=True)
class Load:
    """What became of the requests of one phase."""

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
        try:
            exchange = await send(self.url, question(number))
            try:
                status = await exchange.head()
                await exchange.body()
            finally:
                exchange.abort()
        except (BrokenAnswerError, OSError):
            self.broken += 1
            return
        now = time.perf_counter()
        if status == 200:
            self.seconds.append(now - start)
            self.ended.append(now)
        elif status == 429:
            self.refused.append(now - start)
            self.retry_after.append(int(exchange.headers.get("retry-after", 0)))
        else:
            self.broken += 1

    def rate(self, start: float, end: float) -> float:
        """Answers in a second of that time."""
        return sum(start <= moment < end for moment in self.ended) / (end - start)


async def run(setting: Setting, report: Report) -> None:
    seconds = 30 * setting.scale
    with setting.server(max_queue=str(QUEUE)) as server:
        url = server.url
        await asyncio.gather(*(Load(url).ask(number) for number in range(CLIENTS)))
        peak = await _peak(url, seconds, report)
        await settle(url)
        await _over(url, seconds, peak, report)
        await settle(url)
        after = await _peak(url, seconds / 2, Report("overload, afterwards"))
        report.check(
            "throughput afterwards, answers/s", after, ">= 90 % of the peak", after >= 0.9 * peak
        )


async def _peak(url: str, seconds: float, report: Report) -> float:
    """Answers in a second with all places taken and nobody refused."""
    load = Load(url)
    stop = time.perf_counter() + seconds
    middle = time.perf_counter() + seconds / 5

    async def client(number: int) -> None:
        while time.perf_counter() < stop:
            await load.ask(number)
            number += CLIENTS

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    peak = load.rate(middle, stop)
    report.note(f"peak with {CLIENTS} clients, answers/s", peak)
    report.note("latency there, p99 s", quantile(load.seconds, 0.99))
    report.equal("requests refused there", len(load.refused) + load.broken, 0)
    return peak


async def _over(url: str, seconds: float, peak: float, report: Report) -> None:
    rng = random.Random(0)
    load = Load(url)
    start = time.perf_counter()
    due, number, tasks = start, 0, []
    async with probing(url) as probe:
        while due < start + seconds:
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            tasks.append(asyncio.create_task(load.ask(number)))
            number += 1
            due += rng.expovariate(TIMES * peak)
        await asyncio.gather(*tasks)
    served = load.rate(start + seconds / 5, start + seconds)
    report.note(f"arrivals at {TIMES} times the peak, requests/s", number / seconds)
    report.check("served, answers/s", served, ">= 90 % of the peak", served >= 0.9 * peak)
    # Who is accepted has at most so many before it.
    bound = (CLIENTS + QUEUE) / peak * 1.5
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
