"""Compile workers that are killed or stopped, while they wait and while they work."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from typing import Any

from loadtest.faults.client import ask, chat, json_schema, send
from loadtest.faults.findings import Report
from loadtest.faults.setting import Setting
from loadtest.faults.watch import bystanders, compile_workers, metric, processor_seconds, until
from loadtest.schemas import strict_object

SECONDS = 1.0
"""Processor time for a schema; it may take six times as long by the clock."""


async def run(setting: Setting, report: Report) -> None:
    with setting.server(compile_seconds=str(SECONDS), compile_workers="2") as server:
        url, pid = server.url, server.process.pid
        async with bystanders(url, report, 2):
            before = compile_workers(pid)
            report.equal("compile workers", len(before), 2)
            await _killed_while_they_wait(url, pid, report)
            await _killed_while_they_work(url, pid, report)
            await _one_is_stuck(url, pid, report)
            await _both_are_stuck(url, pid, report)
        await _two_ready(pid)
        report.equal("compile workers at the end", len(compile_workers(pid)), 2)
        report.equal(
            "requests that still compile", await metric(url, "num_requests_compiling"), 0.0
        )


def _question(name: str) -> dict[str, Any]:
    """One with a schema that has not been seen."""
    schema = strict_object({name: {"type": "boolean"}})
    return chat("Answer.", response_format=json_schema(schema), max_tokens=100)


async def _status(url: str, name: str) -> int:
    return (await ask(url, _question(name)))[0]


async def _two_ready(pid: int) -> None:
    """Wait until two workers are there and have imported all they need: they then rest."""
    async with asyncio.timeout(60):
        before: list[float] = []
        while True:
            used = [processor_seconds(worker) for worker in compile_workers(pid)]
            if len(used) == 2 and used == before:
                return
            before = used
            await asyncio.sleep(1)


async def _killed_while_they_wait(url: str, pid: int, report: Report) -> None:
    for worker in compile_workers(pid):
        os.kill(worker, signal.SIGKILL)
    start = time.perf_counter()
    statuses = await asyncio.gather(*(_status(url, f"idle{number}") for number in range(4)))
    report.equal("both killed while they wait: the next requests", statuses, [200] * 4)
    report.note("of these the last after, s", time.perf_counter() - start)
    await _two_ready(pid)


async def _killed_while_they_work(url: str, pid: int, report: Report) -> None:
    workers = compile_workers(pid)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)  # so that a job is in its hands for sure
    start = time.perf_counter()
    asked = [asyncio.create_task(_status(url, f"work{number}")) for number in range(2)]
    await asyncio.sleep(0.5)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    report.equal(
        "both killed while they work: their requests", await asyncio.gather(*asked), [200] * 2
    )
    report.note("of these the last after, s", time.perf_counter() - start)
    await _two_ready(pid)


async def _one_is_stuck(url: str, pid: int, report: Report) -> None:
    """Requests in turn: the one that comes to the stuck worker is told to come back."""
    stuck = compile_workers(pid)[0]
    os.kill(stuck, signal.SIGSTOP)
    start = time.perf_counter()
    asked = [asyncio.create_task(_status(url, f"stuck{number}")) for number in range(6)]
    done, pending = await asyncio.wait(asked, timeout=SECONDS * 4)
    report.equal("one stuck: requests of six answered before it is given up", len(done), 5)
    report.equal("their statuses", {task.result() for task in done}, {200})
    report.equal("status of the one that waited", [await task for task in pending], [503])
    report.note("after, s", time.perf_counter() - start)
    await until(lambda: not os.path.exists(f"/proc/{stuck}"))


async def _both_are_stuck(url: str, pid: int, report: Report) -> None:
    await _two_ready(pid)
    for worker in compile_workers(pid):
        os.kill(worker, signal.SIGSTOP)
    start = time.perf_counter()
    first = [await send(url, _question(f"both{number}")) for number in range(2)]
    await asyncio.sleep(0.2)
    next_one = asyncio.create_task(_status(url, "after"))
    statuses = [await exchange.head() for exchange in first]
    report.equal("both stuck: statuses of the requests that waited", statuses, [503, 503])
    report.equal("Retry-After", {e.headers.get("retry-after") for e in first}, {"5"})
    code = json.loads(await first[0].body())["error"]["code"]
    report.equal("error code", code, "compiler_stuck")
    report.equal("status of the request behind them", await next_one, 200)
    report.note("after, s", time.perf_counter() - start)
    for exchange in first:
        exchange.abort()
    report.equal("status of the same schema again", await _status(url, "both0"), 200)
