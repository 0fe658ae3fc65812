"""More clients than file descriptors: the process survives, and serves again when some leave."""

from __future__ import annotations

import asyncio
import time

from loadtest.faults.client import (
    Exchange,
    ask,
    chat,
    connect,
    json_schema,
    outcome,
    regex,
    streamed,
)
from loadtest.faults.findings import Report
from loadtest.faults.setting import SERVE, Setting
from loadtest.faults.watch import bystanders, descriptors, processor_seconds, until

LIMIT = 128
CROWD = 300
WATCH_SECONDS = 6.0


async def run(setting: Setting, report: Report) -> None:
    limited = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *SERVE)
    with setting.server(limited) as server:
        url, pid = server.url, server.process.pid
        report.note("limit of descriptors", LIMIT)
        report.note("descriptors used while idle", descriptors(pid))
        streams = [asyncio.create_task(_long_stream(url, number)) for number in range(4)]
        await asyncio.sleep(0.5)
        first = await _crowd(url)
        report.note("clients that connect and stay", CROWD)
        report.note("descriptors used", descriptors(pid))
        report.note("a new client meanwhile", await outcome(url, None, 3, "/ready"))
        await asyncio.gather(*streams)
        report.equal("running streams completed", len(streams), 4)
        second = await _crowd(url)
        before = processor_seconds(pid)
        await asyncio.sleep(WATCH_SECONDS)
        busy = (processor_seconds(pid) - before) / WATCH_SECONDS
        report.at_most("CPU cores used while idle at the limit", busy, 0.2)
        report.equal("exit status (None: running)", server.process.poll(), None)
        for exchange in first + second:
            exchange.abort()
        start = time.perf_counter()
        await until(lambda: descriptors(pid) < LIMIT // 2)
        statuses = {await outcome(url, None, 3, "/ready") for _ in range(20)}
        report.equal("after they have left: new clients", statuses, {"200"})
        report.note("after, s", time.perf_counter() - start)
        async with bystanders(url, report, 2):
            body = chat("Answer.", response_format=json_schema({"enum": [1, 2, 3]}), max_tokens=9)
            report.equal("a new schema afterwards", (await ask(url, body))[0], 200)


async def _long_stream(url: str, number: int) -> None:
    text = await streamed(
        url, chat("Hello!", response_format=regex("[a-z ]{900,1000}"), seed=number)
    )
    assert len(text) >= 900


async def _crowd(url: str) -> list[Exchange]:
    """Clients that connect, send nothing and stay connected."""
    found = await asyncio.gather(*(connect(url) for _ in range(CROWD)), return_exceptions=True)
    return [each for each in found if isinstance(each, Exchange)]
