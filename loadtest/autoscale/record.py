"""Record what one server does under a stepped load: the ground the simulation stands on."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from loadtest.autoscale.recording import Recording, Second
from loadtest.connection import Connection, Exchange
from loadtest.dialects import DIALECTS
from loadtest.drive import Closed, Open, Prepared, drive, prepared
from loadtest.server import running_server
from loadtest.targets import served_model
from loadtest.workloads import workload

WORKLOAD = "lmsys"
MAX_RUNNING = 16
STEPS: Sequence[tuple[float, int]] = ((0.4, 60), (0.8, 60), (1.4, 60), (0.4, 90))
"""Arrivals as a share of the server's capacity, and for how many seconds."""
_CAPACITY_REQUESTS = 300
_METRICS = {
    "running": "leapjson_num_requests_running",
    "waiting": "leapjson_num_requests_waiting",
    "finished": "leapjson_requests_total",
}


@dataclass(slots=True)
class _Sent:
    """How many requests have been sent."""

    count: int = 0


class _Counting(Connection):
    """A connection that counts what it sends."""

    def __init__(self, url: str, sent: _Sent) -> None:
        super().__init__(url)
        self._sent = sent

    async def post(self, path: str, body: bytes, seconds: float) -> Exchange:
        self._sent.count += 1
        return await super().post(path, body, seconds)


@dataclass(slots=True)
class _Log:
    seconds: list[Second] = field(default_factory=list)
    step: int = 0


def record(tell: Callable[[str], None] = lambda line: print(line, file=sys.stderr)) -> Recording:
    """Start the demo model's server, find its capacity, and record ``STEPS``. Takes 6 minutes."""
    settings = {"MAX_RUNNING": str(MAX_RUNNING), "MAX_QUEUE": "4096"}
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        with running_server(None, Path(folder) / "server.log", settings) as server:
            start_up = time.perf_counter() - started
            tell(f"ready after {start_up:.1f} s")
            return asyncio.run(_record(server.url, start_up, tell))


async def _record(url: str, start_up: float, tell: Callable[[str], None]) -> Recording:
    with httpx.Client(base_url=url) as client:
        model = served_model(client)
    requests = _requests(model, 0, _CAPACITY_REQUESTS)
    await drive(lambda: Connection(url), Closed(8), requests[:16])  # warm
    full = await drive(lambda: Connection(url), Closed(2 * MAX_RUNNING), requests)
    capacity = len(full.answers) / full.seconds
    tell(f"capacity {capacity:.2f} requests a second")
    sent, log = _Sent(), _Log()
    sampler = asyncio.create_task(_sample(url, sent, log))
    rounds = []
    first = _CAPACITY_REQUESTS
    for step, (share, seconds) in enumerate(STEPS):
        log.step = step
        count = round(share * capacity * seconds)
        load = _requests(model, first, count)
        first += count
        rounds.append(
            asyncio.create_task(
                drive(lambda: _Counting(url, sent), Open(share * capacity), load, seed=step)
            )
        )
        await asyncio.sleep(seconds)  # the next step does not wait for this one's answers
    answers = [answer for each in rounds for answer in (await each).answers]
    sampler.cancel()
    bad = sum(not answer.complete for answer in answers)
    tell(f"{len(answers)} requests, {bad} without an answer")
    return Recording(MAX_RUNNING, round(start_up, 1), log.seconds)


def _requests(model: str, first: int, count: int) -> list[Prepared]:
    load, dialect = workload(WORKLOAD), DIALECTS["leapjson"]
    asked = ((number, load.request(number, "")) for number in range(first, first + count))
    return [
        prepared(request, dialect.body(request, model, number, 1.0)) for number, request in asked
    ]


async def _sample(url: str, sent: _Sent, log: _Log) -> None:
    """One row a second: gauges as they are then, counters since the row before."""
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        before_sent, before = sent.count, await _read(client)
        start = time.perf_counter()
        while True:
            await asyncio.sleep(start + len(log.seconds) + 1 - time.perf_counter())
            now = await _read(client)
            log.seconds.append(
                Second(
                    step=log.step,
                    arrived=sent.count - before_sent,
                    finished=int(now["finished"] - before["finished"]),
                    running=int(now["running"]),
                    waiting=int(now["waiting"]),
                )
            )
            before_sent, before = sent.count, now


async def _read(client: httpx.AsyncClient) -> dict[str, float]:
    text = (await client.get("/metrics")).text
    sums = dict.fromkeys(_METRICS, 0.0)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            for column, name in _METRICS.items():
                if sample.name == name:
                    sums[column] += sample.value
    return sums
