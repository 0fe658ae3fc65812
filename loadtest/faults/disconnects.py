"""Clients disconnect: while sending, while their schema compiles, in the queue, mid-stream."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

from loadtest.faults.client import (
    CHAT,
    BrokenAnswerError,
    Exchange,
    ask,
    chat,
    connect,
    json_schema,
    regex,
    request,
)
from loadtest.faults.findings import Report
from loadtest.faults.setting import Setting
from loadtest.faults.watch import MIB, bystanders, metric, resident, settle
from loadtest.schemas import strict_object

LONG = {"response_format": regex("[a-z ]{1900,2000}"), "max_tokens": 1900}
AT_A_TIME = 48
FLAT_MIB = 8.0
"""Limit of growth for 1,000 disconnects: a leak of 8 KiB each."""


async def run(setting: Setting, report: Report) -> None:
    count = setting.count(1000)
    # Few requests run at a time, so that clients also disconnect while queued. The caches are small
    # and full at the first memory reading, so growth is not due to caches.
    with setting.server(
        max_running="8",
        max_queue="512",
        schema_cache_bytes=str(4 * MIB),
        kv_cache_bytes=str(32 * MIB),
    ) as server:
        url, pid = server.url, server.process.pid
        rng = random.Random(0)
        left: Counter[str] = Counter()
        async with bystanders(url, report):
            await leave(url, rng, count, Counter())
            await asyncio.sleep(1)
            before = resident(pid)
            await leave(url, rng, count, left)
        report.note("clients that disconnected, after as many for warm-up", left.total())
        for point, times in sorted(left.items()):
            report.note(f"of them {point}", times)
        report.note("time until idle and all blocks free, s", await settle(url))
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_ratio"):
            report.equal(name, await metric(url, name), 0.0)
        counted = await metric(url, "requests_total", status="499")
        report.note("requests with status 499, including warm-up", counted)
        report.note("resident memory before, MiB", before)
        report.at_most("memory growth, MiB", resident(pid) - before, FLAT_MIB)
        status, _ = await ask(url, chat("Hello!", max_tokens=16))
        report.equal("status of the next request", status, 200)


async def leave(
    url: str, rng: random.Random, count: int, left: Counter[str], answer: dict[str, Any] = LONG
) -> None:
    """Send ``count`` requests, some at a time, and disconnect; ``left`` counts the points.

    ``answer``: fields of the requests that have no new schema.
    """
    waiting = iter(range(count))

    async def client() -> None:
        for _ in waiting:
            left[await _request_and_disconnect(url, rng, answer)] += 1

    await asyncio.gather(*(client() for _ in range(AT_A_TIME)))


async def _request_and_disconnect(url: str, rng: random.Random, answer: dict[str, Any]) -> str:
    """Send one request and disconnect; returns the point of the disconnect."""
    stream = rng.random() < 0.5
    fresh = rng.random() < 0.25
    new = {"response_format": json_schema(_fresh_schema(rng)), "max_tokens": 250}
    data = request(CHAT, chat("Hello!", **(new if fresh else answer), stream=stream))
    exchange = await connect(url)
    try:
        return await _disconnect_point(exchange, data, stream, fresh, rng)
    except (BrokenAnswerError, ConnectionError):
        return "after the server had closed"
    finally:
        if rng.random() < 0.5:
            exchange.abort()
        else:
            await exchange.close()


async def _disconnect_point(
    exchange: Exchange, data: bytes, stream: bool, fresh: bool, rng: random.Random
) -> str:
    if rng.random() < 0.1:
        exchange.writer.write(data[: rng.randrange(len(data))])
        await asyncio.sleep(rng.random() * 0.05)
        return "while sending"
    exchange.writer.write(data)
    if not stream or rng.random() < 0.3:
        with suppress(TimeoutError):
            await asyncio.wait_for(exchange.head(), rng.random() * 0.5)
        if exchange.status:
            return "as the answer began"
        return "while a schema compiled" if fresh else "in the queue or during generation"
    await exchange.head()
    events, wanted = 0, rng.randrange(40)
    async for _ in exchange.events():
        events += 1
        if events > wanted:
            return "mid-stream"
    return "after the last event"


def _fresh_schema(rng: random.Random) -> dict[str, object]:
    """A schema that was not compiled before."""
    code = {"type": "string", "pattern": "^[a-z]{1,20}-[0-9]{2,9}$"}
    return strict_object({f"p{rng.getrandbits(40):x}": code for _ in range(5)})
