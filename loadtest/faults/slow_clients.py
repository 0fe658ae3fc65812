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
    ask,
    chat,
    connect,
    regex,
    request,
)
from loadtest.faults.findings import Report
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
"""Receive buffer of a client's kernel in bytes: small, so that unread data stays in the server."""
UNREAD_SECONDS = 60 + 10
"""Time after which an unread answer must be dropped; see ``app.http.connection``."""
TOKENS = 1000
"""Tokens of each choice."""
CACHE_BYTES = 64 << 20
"""A small KV cache, whose memory is all in use before the measurement."""
CHOICES = 4
LONGEST_SECONDS = 400.0
SPARE = 6
"""Descriptors that bystanders and the reader of metrics may use."""


async def run(setting: Setting, report: Report) -> None:
    await _unread(setting, report, stream=True)
    await _unread(setting, report, stream=False)
    await _unfinished(setting, report)


async def _unread(setting: Setting, report: Report, *, stream: bool) -> None:
    """Long answers with log-probabilities that clients do not read."""
    what = "unread streams" if stream else "unread unstreamed answers"
    count = setting.count(12)
    body = chat(
        "Hello!",
        response_format=regex(f"[a-z ]{{{TOKENS * 3},{TOKENS * 4}}}"),
        max_tokens=TOKENS,
        on_budget="truncate",
        n=CHOICES,
        logprobs=True,
        top_logprobs=5,
        stream=stream,
    )
    with setting.server(max_queue="1024", kv_cache_bytes=str(CACHE_BYTES)) as server:
        url, pid = server.url, server.process.pid
        await asyncio.gather(*(ask(url, body) for _ in range(5)))
        async with bystanders(url, report, 2):
            await asyncio.sleep(2)
            before, files = resident(pid), descriptors(pid)
            clients = [await _send_without_reading(url, body) for _ in range(count)]
            async with asyncio.timeout(60):
                while await metric(url, "num_requests_running") <= 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            peak, held = before, time.perf_counter()
            start = held
            async with asyncio.timeout(LONGEST_SECONDS):
                while descriptors(pid) > files + SPARE:
                    peak = max(peak, resident(pid))
                    if await metric(url, "num_requests_running") > 2:
                        held = time.perf_counter()  # some answers are still running
                    await asyncio.sleep(0.5)
            tokens = count * CHOICES * TOKENS
            report.note(f"{what}", f"{count} of {CHOICES} x {TOKENS} tokens")
            report.note(f"{what}: time until none ran, s", held - start)
            unread = time.perf_counter() - held
            report.at_most(f"{what}: then until the last was dropped, s", unread, UNREAD_SECONDS)
            report.note(f"{what}: maximum growth, MiB", peak - before)
            report.note(f"{what}: maximum growth a token, bytes", (peak - before) * MIB / tokens)
            report.note(f"{what}: growth afterwards, MiB", resident(pid) - before)
            for each in clients:
                each.abort()
        await settle(url)


async def _send_without_reading(url: str, body: Mapping[str, Any]) -> Exchange:
    """A client that sends a request and does not read the answer."""
    exchange = await connect(url, receive_buffer=BUFFER)
    exchange.writer.transport.pause_reading()  # type: ignore[attr-defined]
    exchange.writer.write(request(CHAT, body))
    return exchange


COMPLETE = request(CHAT, chat("Hello!", max_tokens=16))
HEAD = COMPLETE.index(b"\r\n\r\n")
UNFINISHED = {
    "never send": (b"", 0, 20, None),
    "send a byte of their head every 5 s": (COMPLETE[:10], 10, 20, 408),
    "send a byte of their body every 5 s": (COMPLETE[: HEAD + 10], HEAD + 10, 60, 408),
}
"""For each kind: bytes sent at once, offset of the bytes sent singly, time-out, and status."""


async def _unfinished(setting: Setting, report: Report) -> None:
    """Slowloris: connections that hold a descriptor and never complete their request."""
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
            report.note("slow requests: memory growth, MiB", resident(pid) - memory)
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
        report.note("slow requests: time until descriptors were free, s", left)


async def _trickle(url: str, start: bytes, rest: int) -> tuple[int | None, float]:
    """The status (None: closed without one, -1: time-out of the test), and the seconds until it."""
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
                exchange.writer.write(COMPLETE[position : position + 1])
        else:
            head.cancel()
            return -1, time.perf_counter() - began
        return head.result(), time.perf_counter() - began
    except BrokenAnswerError:
        return None, time.perf_counter() - began
    finally:
        exchange.abort()
