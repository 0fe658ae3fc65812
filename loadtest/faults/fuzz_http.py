"""20,000 malformed requests and bodies: no 5xx, no crash, no leaked descriptors."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from loadtest.faults.client import connect
from loadtest.faults.findings import Report
from loadtest.faults.fuzz_cases import Case, case
from loadtest.faults.setting import Setting
from loadtest.faults.watch import bystanders, descriptors, resident, settle, until

AT_A_TIME = 24
ANSWER_SECONDS = 60.0
LEAVE_SECONDS = 0.05
"""Time after which the client of an incomplete request disconnects."""
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


@dataclass(slots=True)
class Findings:
    statuses: Counter[int] = field(default_factory=Counter)
    silent: int = 0
    """Number of incomplete requests without an answer, which is allowed."""
    wrong: list[str] = field(default_factory=list)


async def run(setting: Setting, report: Report) -> None:
    count = setting.count(20_000)
    with setting.server(default_max_tokens="8", max_queue="512") as server:
        url, pid = server.url, server.process.pid
        findings = Findings()
        async with bystanders(url, report, 1):
            files = descriptors(pid)
            await fuzz(url, range(count // 2), findings)
            half = resident(pid)
            await fuzz(url, range(count // 2, count), findings)
        report.note("requests and malformed requests", count)
        for status, times in sorted(findings.statuses.items()):
            report.note(f"answered {status}", times)
        report.note("incomplete, without an answer", findings.silent)
        report.equal("5xx, or complete without an answer", len(findings.wrong), 0)
        for finding in findings.wrong[:10]:
            report.note("finding", finding.replace("|", "/"))
        report.equal("exit status (None: running)", server.process.poll(), None)
        report.note("time until idle, s", await settle(url))
        await until(lambda: descriptors(pid) <= files + 2)
        report.note("memory growth in the second half, MiB", resident(pid) - half)


async def fuzz(url: str, numbers: range, findings: Findings) -> None:
    """Send the cases ``numbers``, some at a time."""
    waiting = iter(numbers)

    async def client() -> None:
        for number in waiting:
            await _send(url, number, findings)

    await asyncio.gather(*(client() for _ in range(AT_A_TIME)))


async def _send(url: str, number: int, findings: Findings) -> None:
    what = case(number)
    answer = await _answer(url, what)
    statuses = [int(status) for status in STATUS.findall(answer)]
    findings.statuses.update(statuses)
    internal = b"internal_error" in answer or b"an internal error" in answer
    if internal or any(status >= 500 for status in statuses):
        findings.wrong.append(f"case {number}, {what.kind}: {statuses} {answer[:200]!r}")
    elif not statuses and what.complete:
        findings.wrong.append(f"case {number}, {what.kind}: no answer")
    elif not statuses:
        findings.silent += 1


async def _answer(url: str, what: Case) -> bytes:
    """All bytes received until the server closes the connection or the time-out."""
    exchange = await connect(url)
    answer = bytearray()
    try:
        with suppress(OSError, TimeoutError):
            for piece in what.pieces:
                exchange.writer.write(piece)
                await exchange.writer.drain()
                await asyncio.sleep(0)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS if what.complete else LEAVE_SECONDS):
                while piece := await exchange.reader.read(1 << 16):
                    answer += piece
        return bytes(answer)
    finally:
        exchange.abort()
