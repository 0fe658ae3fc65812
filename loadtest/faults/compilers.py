"""Compile workers are killed or stopped, while idle and while working."""

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
"""Limit of CPU time for a schema; the limit of elapsed time is six times as long."""


async def run(setting: Setting, report: Report) -> None:
    with setting.server(compile_seconds=str(SECONDS), compile_workers="2") as server:
        url, pid = server.url, server.process.pid
        async with bystanders(url, report, 2):
            before = compile_workers(pid)
            report.equal("compile workers", len(before), 2)
            await _kill_idle_workers(url, pid, report)
            await _kill_busy_workers(url, pid, report)
            await _stop_one_worker(url, pid, report)
            await _stop_both_workers(url, pid, report)
        await _wait_for_workers(pid)
        report.equal("compile workers at the end", len(compile_workers(pid)), 2)
        report.equal("requests still compiling", await metric(url, "num_requests_compiling"), 0.0)


def _question(name: str) -> dict[str, Any]:
    """A request with a new schema."""
    schema = strict_object({name: {"type": "boolean"}})
    return chat("Answer.", response_format=json_schema(schema), max_tokens=100)


async def _status(url: str, name: str) -> int:
    return (await ask(url, _question(name)))[0]


async def _wait_for_workers(pid: int) -> None:
    """Wait until there are two workers that have finished their imports: they use no CPU time."""
    async with asyncio.timeout(60):
        before: list[float] = []
        while True:
            used = [processor_seconds(worker) for worker in compile_workers(pid)]
            if len(used) == 2 and used == before:
                return
            before = used
            await asyncio.sleep(1)


async def _kill_idle_workers(url: str, pid: int, report: Report) -> None:
    for worker in compile_workers(pid):
        os.kill(worker, signal.SIGKILL)
    start = time.perf_counter()
    statuses = await asyncio.gather(*(_status(url, f"idle{number}") for number in range(4)))
    report.equal("both killed while idle: statuses of the next requests", statuses, [200] * 4)
    report.note("last of them after, s", time.perf_counter() - start)
    await _wait_for_workers(pid)


async def _kill_busy_workers(url: str, pid: int, report: Report) -> None:
    workers = compile_workers(pid)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)  # keeps the worker from finishing its job before the kill
    start = time.perf_counter()
    asked = [asyncio.create_task(_status(url, f"work{number}")) for number in range(2)]
    await asyncio.sleep(0.5)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    report.equal(
        "both killed while working: their requests", await asyncio.gather(*asked), [200] * 2
    )
    report.note("last of them after, s", time.perf_counter() - start)
    await _wait_for_workers(pid)


async def _stop_one_worker(url: str, pid: int, report: Report) -> None:
    """Six requests: the one assigned to the stuck worker gets a 503, the others are answered."""
    stuck = compile_workers(pid)[0]
    os.kill(stuck, signal.SIGSTOP)
    start = time.perf_counter()
    asked = [asyncio.create_task(_status(url, f"stuck{number}")) for number in range(6)]
    done, pending = await asyncio.wait(asked, timeout=SECONDS * 4)
    report.equal("one stuck: requests of six answered before its time-out", len(done), 5)
    report.equal("their statuses", {task.result() for task in done}, {200})
    report.equal("status of the waiting request", [await task for task in pending], [503])
    report.note("after, s", time.perf_counter() - start)
    await until(lambda: not os.path.exists(f"/proc/{stuck}"))


async def _stop_both_workers(url: str, pid: int, report: Report) -> None:
    await _wait_for_workers(pid)
    for worker in compile_workers(pid):
        os.kill(worker, signal.SIGSTOP)
    start = time.perf_counter()
    first = [await send(url, _question(f"both{number}")) for number in range(2)]
    await asyncio.sleep(0.2)
    next_one = asyncio.create_task(_status(url, "after"))
    statuses = [await exchange.head() for exchange in first]
    report.equal("both stuck: statuses of the waiting requests", statuses, [503, 503])
    report.equal("Retry-After", {e.headers.get("retry-after") for e in first}, {"5"})
    code = json.loads(await first[0].body())["error"]["code"]
    report.equal("error code", code, "compiler_stuck")
    report.equal("status of the next request", await next_one, 200)
    report.note("after, s", time.perf_counter() - start)
    for exchange in first:
        exchange.abort()
    report.equal("status of the same schema again", await _status(url, "both0"), 200)
