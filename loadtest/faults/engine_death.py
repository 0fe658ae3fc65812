"""The engine thread dies: every client gets an answer or an error, and the process exits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from typing import Any

from loadtest.faults.client import BrokenAnswerError, ask, chat, json_schema, regex, send
from loadtest.faults.findings import Report
from loadtest.faults.setting import Setting
from loadtest.faults.watch import compile_workers, metric, until
from loadtest.server import Server

COMMAND = (sys.executable, "-m", "loadtest.faults.mortal_server")
COMPILING = 8
ALLOWED_OUTCOMES = {"whole 503 engine_died", "stream engine_died", "whole 200", "stream to its end"}
"""Allowed outcomes, including answers that were complete before the engine died."""


async def run(setting: Setting, report: Report) -> None:
    with setting.server(COMMAND, max_running="8", max_queue="512") as server:
        await kill(server, report, chat("Hello!", response_format=regex("[a-z ]{1900,2000}")))


async def kill(server: Server, report: Report, question: dict[str, Any]) -> None:
    """Kill the engine of a server started by ``COMMAND`` while requests run, wait and compile.

    ``question`` is a request with a long answer.
    """
    url, process = server.url, server.process
    status, _ = await ask(url, question)
    report.equal("status before", status, 200)
    # All compile workers are stopped, so requests wait for them.
    workers = compile_workers(process.pid)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    schema = json_schema({"type": "object", "properties": {"never": {"type": "string"}}})
    compiling = chat("Hello!", response_format=schema)
    clients = [
        asyncio.create_task(_outcome(url, {**each, "stream": stream}))
        for each in [question] * 16 + [compiling] * (COMPILING // 2)
        for stream in (True, False)
    ]
    await _until_busy(url)
    report.note("answers running", await metric(url, "num_requests_running"))
    report.note("answers queued", await metric(url, "num_requests_waiting"))
    report.note("requests waiting for a compile worker", COMPILING)
    start = time.perf_counter()
    os.kill(process.pid, signal.SIGUSR1)
    ready = asyncio.create_task(_ready_statuses(url))
    for worker in workers:
        os.kill(worker, signal.SIGCONT)
    outcomes = Counter(await asyncio.gather(*clients))
    report.note("time until the last request ended, s", time.perf_counter() - start)
    for outcome, times in sorted(outcomes.items()):
        report.note(outcome, times)
    told = sum(outcomes[outcome] for outcome in ALLOWED_OUTCOMES)
    report.equal("requests without an answer or error", len(clients) - told, 0)
    failed = sum(times for outcome, times in outcomes.items() if "engine_died" in outcome)
    report.check("of them failed", failed, "> 0", failed > 0)
    status = await asyncio.to_thread(process.wait, 30)
    report.note("time until the process exited, s", time.perf_counter() - start)
    report.equal("exit status", status, 1)
    statuses = await ready
    report.check("statuses of /ready afterwards", statuses, "503", 503 in statuses)
    left = await until(lambda: not any(os.path.exists(f"/proc/{w}") for w in workers), 10)
    report.note("time until its compile workers exited, s", left)


async def _until_busy(url: str) -> None:
    async with asyncio.timeout(30):
        while (  # noqa: ASYNC110
            await metric(url, "num_requests_running") < 1
            or await metric(url, "num_requests_waiting") < 1
            or await metric(url, "num_requests_compiling") < COMPILING
        ):
            await asyncio.sleep(0.02)


async def _outcome(url: str, body: dict[str, Any]) -> str:
    """The outcome of the client's request."""
    try:
        exchange = await send(url, body)
        try:
            status = await exchange.head()
            if status != 200:
                return f"whole {status} {json.loads(await exchange.body())['error']['code']}"
            if not body["stream"]:
                await exchange.body()
                return "whole 200"
            async for data in exchange.events():
                if data.startswith('{"error"'):
                    return f"stream {json.loads(data)['error']['code']}"
            return "stream to its end"
        finally:
            exchange.abort()
    except (BrokenAnswerError, OSError) as error:
        return f"connection broken: {error}"


async def _ready_statuses(url: str) -> list[int]:
    """The distinct statuses of ``/ready`` until connections fail."""
    seen: dict[int, None] = {}
    while True:
        try:
            status, _ = await ask(url, None, path="/ready")
        except (BrokenAnswerError, OSError):
            return list(seen)
        seen[status] = None
        await asyncio.sleep(0.02)
