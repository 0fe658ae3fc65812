"""The engine's thread dies: everybody is told, and the process ends for another to be started."""

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
from loadtest.faults.report import Report
from loadtest.faults.setting import Setting
from loadtest.faults.watch import compile_workers, metric, until

COMMAND = (sys.executable, "-m", "loadtest.faults.mortal_server")
LONG = regex("[a-z ]{1900,2000}")
RUNNING = 8
TOLD = {"whole 500 engine_died", "stream engine_died"}


async def run(setting: Setting, report: Report) -> None:
    with setting.server(COMMAND, max_running=str(RUNNING), max_queue="512") as server:
        url, process = server.url, server.process
        status, _ = await ask(url, chat("Hello!", response_format=LONG))
        report.equal("status before", status, 200)
        # Schemas that wait for a compile worker: both are stopped.
        workers = compile_workers(process.pid)
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        schema = json_schema({"type": "object", "properties": {"never": {"type": "string"}}})
        clients = [
            asyncio.create_task(_outcome(url, chat("Hello!", response_format=each, stream=stream)))
            for each in [LONG] * 16 + [schema] * 4
            for stream in (True, False)
        ]
        await _until_busy(url)
        report.note("answers running", await metric(url, "num_requests_running"))
        report.note("answers queued", await metric(url, "num_requests_waiting"))
        report.note("requests that wait for a compile worker", 8)
        start = time.perf_counter()
        os.kill(process.pid, signal.SIGUSR1)
        ready = asyncio.create_task(_ready_statuses(url))
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
        outcomes = Counter(await asyncio.gather(*clients))
        report.note("until the last one was told, s", time.perf_counter() - start)
        for outcome, times in sorted(outcomes.items()):
            report.note(outcome, times)
        report.equal(
            "requests that were not told", len(clients) - sum(outcomes[o] for o in TOLD), 0
        )
        status = await asyncio.to_thread(process.wait, 30)
        report.note("until the process had ended, s", time.perf_counter() - start)
        report.equal("exit status", status, 1)
        report.check("/ready after the death", await ready, "503", 503 in await ready)
        left = await until(lambda: not any(os.path.exists(f"/proc/{w}") for w in workers), 10)
        report.note("until its compile workers had ended, s", left)


async def _until_busy(url: str) -> None:
    async with asyncio.timeout(30):
        while (  # noqa: ASYNC110
            await metric(url, "num_requests_running") < RUNNING
            or await metric(url, "num_requests_waiting") < 1
            or await metric(url, "num_requests_compiling") < 8
        ):
            await asyncio.sleep(0.02)


async def _outcome(url: str, body: dict[str, Any]) -> str:
    """How the client's request ended."""
    try:
        exchange = await send(url, body)
        try:
            status = await exchange.head()
            if status != 200:
                return f"whole {status} {json.loads(await exchange.body())['error']['code']}"
            if not body["stream"]:
                await exchange.body()
                return "whole 200"
            while line := await exchange.reader.readline():
                if line.startswith(b'data: {"error"'):
                    return f"stream {json.loads(line[6:])['error']['code']}"
            return "stream ended without a word"
        finally:
            exchange.abort()
    except (BrokenAnswerError, OSError) as error:
        return f"connection broken: {error}"


async def _ready_statuses(url: str) -> list[int]:
    """What ``/ready`` said, each once, until nobody listened."""
    seen: dict[int, None] = {}
    while True:
        try:
            status, _ = await ask(url, None, path="/ready")
        except (BrokenAnswerError, OSError):
            return list(seen)
        seen[status] = None
        await asyncio.sleep(0.02)
