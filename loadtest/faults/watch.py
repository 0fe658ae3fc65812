"""Observations during a fault, from outside the server: metrics, memory, and other clients."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema

from loadtest.faults.client import BrokenAnswerError, ask, chat, content, json_schema, streamed
from loadtest.faults.findings import Report, quantile
from loadtest.server_metrics import metric_value
from loadtest.tasks import task

MIB = 1 << 20
SETTLE_SECONDS = 60.0


async def metric(url: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    _, exposition = await ask(url, None, path="/metrics")
    return metric_value(exposition.decode(), f"leapjson_{name}", **labels)


BUSY = ("num_requests_running", "num_requests_waiting", "num_requests_compiling")


async def settle(url: str) -> float:
    """Wait until no request runs, waits or compiles and all cache blocks are free; returns seconds.

    Raises ``TimeoutError`` after ``SETTLE_SECONDS``.
    """
    start = time.perf_counter()
    async with asyncio.timeout(SETTLE_SECONDS):
        while any([await metric(url, name) for name in (*BUSY, "kv_cache_usage_ratio")]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return time.perf_counter() - start


def resident(pid: int) -> float:
    """Resident memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def processor_seconds(pid: int, *, main_thread: bool = False) -> float:
    """CPU time of a process, or of its main thread alone."""
    path = Path(f"/proc/{pid}/task/{pid}/stat" if main_thread else f"/proc/{pid}/stat")
    fields = path.read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def compile_workers(pid: int) -> list[int]:
    """Ids of the server's compile workers."""
    return _workers(pid, b"app.constraint:")


def image_workers(pid: int) -> list[int]:
    """Ids of the server's image workers."""
    return _workers(pid, b"app.serving.images.preparing")


def _workers(pid: int, target: bytes) -> list[int]:
    """Ids of the child processes with ``target`` in their command line."""
    children = {
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text(encoding="ascii").split()
    }
    workers = []
    for child in sorted(children):
        command = Path(f"/proc/{child}/cmdline")
        if command.exists() and target in command.read_bytes():
            workers.append(child)
    return workers


async def until(condition: Callable[[], object], seconds: float = SETTLE_SECONDS) -> float:
    """Wait for ``condition``; returns the seconds it took. Raises ``TimeoutError``."""
    start = time.perf_counter()
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return time.perf_counter() - start


@dataclass(slots=True)
class Bystanders:
    """Clients unrelated to the fault, with known answers.

    Each repeats one question with the same seed, streamed and unstreamed in turn; the answer must
    be identical to the one before the fault.
    """

    url: str
    count: int
    answers: int = 0
    seconds: list[float] = field(default_factory=list)
    harmed: list[str] = field(default_factory=list)
    _wanted: list[str] = field(default_factory=list)
    _stop: bool = False

    async def learn(self) -> None:
        """Ask each question once and check the answers against their schemas."""
        for number in range(self.count):
            text = await content(self.url, question(number))
            jsonschema.validate(json.loads(text), task(number).schema)
            self._wanted.append(text)

    async def run(self) -> None:
        """Send requests until ``stop``."""
        await asyncio.gather(*(self._run(number) for number in range(self.count)))

    def stop(self) -> None:
        self._stop = True

    async def _run(self, number: int) -> None:
        turn = number
        while not self._stop:
            start = time.perf_counter()
            turn += 1
            get = content if turn % 2 else streamed
            try:
                text = await get(self.url, question(number))
            except (AssertionError, BrokenAnswerError, OSError) as error:
                self.harmed.append(f"{type(error).__name__}: {error}"[:300])
                await asyncio.sleep(0.1)
                continue
            self.answers += 1
            self.seconds.append(time.perf_counter() - start)
            if text != self._wanted[number]:
                self.harmed.append(f"{text!r} is not {self._wanted[number]!r}"[:300])

    def report(self, report: Report) -> None:
        report.note("bystanders: answers", self.answers)
        report.equal("bystanders: wrong or failed answers", len(self.harmed), 0)
        report.note("bystanders: longest answer, s", max(self.seconds, default=0.0))
        for each in self.harmed[:3]:
            report.note("bystanders: error", each.replace("|", "/"))


def question(number: int) -> dict[str, Any]:
    """A request of the load test's task ``number``, with a fixed seed."""
    what = task(number)
    return chat(what.prompt, response_format=json_schema(what.schema), seed=number, max_tokens=400)


@asynccontextmanager
async def bystanders(url: str, report: Report, count: int = 4) -> AsyncIterator[Bystanders]:
    """Run bystanders during the block; their results go to the report."""
    clients = Bystanders(url, count)
    await clients.learn()
    running = asyncio.create_task(clients.run())
    try:
        yield clients
    finally:
        clients.stop()
        await running
    clients.report(report)


@dataclass(slots=True)
class Probe:
    """Measures the latency of ``/health``, which shows how busy the event loop is."""

    url: str
    seconds: list[float] = field(default_factory=list)
    failures: int = 0

    async def run(self, pause: float = 0.1) -> None:
        """Send requests until cancelled."""
        while True:
            start = time.perf_counter()
            try:
                status, _ = await ask(self.url, None, path="/health")
                self.failures += status != 200
            except (BrokenAnswerError, OSError):
                self.failures += 1
            self.seconds.append(time.perf_counter() - start)
            await asyncio.sleep(pause)

    def report(self, report: Report, bound: float) -> None:
        """``bound``: limit of the 99th percentile in seconds."""
        report.note("GET /health, median ms", 1000 * quantile(self.seconds, 0.5))
        report.at_most("GET /health, p99 ms", 1000 * quantile(self.seconds, 0.99), 1000 * bound)
        report.note("GET /health, longest ms", 1000 * max(self.seconds, default=0.0))
        report.equal("GET /health, failures", self.failures, 0)


@asynccontextmanager
async def probing(url: str) -> AsyncIterator[Probe]:
    probe = Probe(url)
    running = asyncio.create_task(probe.run())
    try:
        yield probe
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
