"""Clients that do not read their answers, or do not finish their requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from loadtest.faults.client import (
    CHAT,
    BrokenAnswerError,
    Exchange,
    chat,
    connect,
    regex,
    request,
)
from loadtest.faults.report import Report
from loadtest.faults.setting import Setting
from loadtest.faults.watch import (
    MIB,
    bystanders,
    descriptors,
    metric,
    probing,
    resident,
    settle,
    until,
)

BUFFER = 2048
"""Bytes that a client's kernel keeps: what it does not read stays with the server."""
UNREAD_SECONDS = 60 + 10
"""After which an unread answer has to be dropped; see ``app.api.connection``."""
TOKENS = 1900
"""Of each choice."""
SPARE = 6
"""Descriptors of bystanders and of the reader of metrics that may be open."""


async def run(setting: Setting, report: Report) -> None:
    await _unread(setting, report, stream=True)
    await _unread(setting, report, stream=False)
    await _unfinished(setting, report)


async def _unread(setting: Setting, report: Report, *, stream: bool) -> None:
    """As much output as a request may ask for, in as many requests as the queue takes."""
    what = "unread streams" if stream else "unread whole answers"
    count = setting.count(40)
    with setting.server(max_queue="1024") as server:
        url, pid = server.url, server.process.pid
        async with bystanders(url, report, 2):
            await asyncio.sleep(2)
            start, files = resident(pid), descriptors(pid)
            body = chat(
                "Hello!",
                response_format=regex(f"[a-z ]{{{TOKENS * 3},{TOKENS * 4}}}"),
                max_tokens=TOKENS,
                on_budget="truncate",
                n=8,
                logprobs=True,
                top_logprobs=5,
                stream=stream,
            )
            clients = [await _silent(url, body) for _ in range(count)]
            seconds = await until_generated(url, count)
            report.note(
                f"{what}: {count}, of 8 choices and {TOKENS} tokens; generated in, s", seconds
            )
            grown = resident(pid) - start
            report.note(f"{what}: growth once all is generated, MiB", grown)
            report.note(f"{what}: of that for a token, bytes", grown * MIB / count / 8 / TOKENS)
            seconds = await until(lambda: descriptors(pid) <= files + SPARE, UNREAD_SECONDS + 60)
            report.at_most(f"{what}: then dropped after, s", seconds, UNREAD_SECONDS)
            await asyncio.sleep(2)
            report.note(f"{what}: growth that is left, MiB", resident(pid) - start)
            for each in clients:
                each.abort()
        await settle(url)


async def until_generated(url: str, count: int) -> float:
    start = time.perf_counter()
    async with asyncio.timeout(300):
        ended = 0.0
        while ended < count:
            await asyncio.sleep(0.2)
            # Bystanders' answers end with "stop", these with "length".
            ended = await metric(url, "requests_total", finish_reason="length")
    return time.perf_counter() - start


async def _silent(url: str, body: Mapping[str, Any]) -> Exchange:
    """Asks and reads nothing."""
    exchange = await connect(url, receive_buffer=BUFFER)
    exchange.writer.transport.pause_reading()  # type: ignore[attr-defined]
    exchange.writer.write(request(CHAT, body))
    return exchange


WHOLE = request(CHAT, chat("Hello!", max_tokens=16))
HEAD = WHOLE.index(b"\r\n\r\n")
UNFINISHED = {
    "never send": (b"", 0, 20, None),
    "send a byte of their head every 5 s": (WHOLE[:10], 10, 20, 408),
    "send a byte of their body every 5 s": (WHOLE[: HEAD + 10], HEAD + 10, 60, 408),
}
"""What is sent at once, from where on byte by byte, seconds it may take, and the answer."""


async def _unfinished(setting: Setting, report: Report) -> None:
    """Slow loris: connections that hold a descriptor and never come to the point."""
    count = setting.count(100)
    with setting.server() as server:
        url, pid = server.url, server.process.pid
        await asyncio.sleep(1)
        files, memory = descriptors(pid), resident(pid)
        async with probing(url) as probe:
            groups = []
            for name, (start, rest, _, _) in UNFINISHED.items():
                tasks = [asyncio.create_task(_trickle(url, start, rest)) for _ in range(count)]
                groups.append((name, tasks))
            await asyncio.sleep(3)
            report.note("slow requests: descriptors held", descriptors(pid) - files)
            report.note("slow requests: growth, MiB", resident(pid) - memory)
            for name, tasks in groups:
                _, _, bound, wanted = UNFINISHED[name]
                ended = await asyncio.gather(*tasks)
                report.equal(
                    f"{count} that {name}: answers", {status for status, _ in ended}, {wanted}
                )
                last = max(seconds for _, seconds in ended)
                report.at_most(f"{count} that {name}: closed after, s", last, bound + 10)
        probe.report(report, 0.25)
        left = await until(lambda: descriptors(pid) <= files + SPARE)
        report.note("slow requests: until their descriptors were free, s", left)


async def _trickle(url: str, start: bytes, rest: int) -> tuple[int | None, float]:
    """The status that the client got, and when it was sent away."""
    exchange = await connect(url)
    began = time.perf_counter()
    exchange.writer.write(start)
    head = asyncio.create_task(exchange.head())
    try:
        for position in range(rest, rest + 30):
            done, _ = await asyncio.wait({head}, timeout=5)
            if done:
                break
            if start:
                exchange.writer.write(WHOLE[position : position + 1])
        else:
            head.cancel()
            return -1, time.perf_counter() - began
        return head.result(), time.perf_counter() - began
    except BrokenAnswerError:
        return None, time.perf_counter() - began
    finally:
        exchange.abort()
