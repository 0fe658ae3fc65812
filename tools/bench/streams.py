"""Gaps between the chunks of answers in flight while other requests are sent.

Another process builds and sends these requests, so that it takes no time from the process that
reads the streams.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from loadtest.faults.findings import quantile
from loadtest.tables import table
from loadtest.tasks import task

MODEL = "bench"
"""Name under which the server must serve its model."""
PATH = "/v1/chat/completions"
prepared: list[tuple[str, bytes]] = []
"""In the sending process: names and bodies, built before the measurement."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Response to a request; ``code``: an error code, a finish reason, or a failure (status 0)."""

    name: str
    status: int
    code: str
    seconds: float


def send_prepared(url: str, clients: int, part: int = 0, parts: int = 1) -> list[Outcome]:
    """Send one of ``parts`` parts, ``clients`` requests at a time, and wait for all responses."""
    return asyncio.run(_send_all(url, clients, prepared[part::parts]))


async def _send_all(url: str, clients: int, bodies: Sequence[tuple[str, bytes]]) -> list[Outcome]:
    waiting = iter(bodies)
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:

        async def send_in_turn() -> list[Outcome]:
            return [await _send(client, name, body) for name, body in waiting]

        groups = await asyncio.gather(*(send_in_turn() for _ in range(clients)))
    return [outcome for group in groups for outcome in group]


async def _send(client: httpx.AsyncClient, name: str, body: bytes) -> Outcome:
    start = time.perf_counter()
    try:
        response = await client.post(PATH, content=body)
    except httpx.HTTPError as error:
        return Outcome(name, 0, type(error).__name__, time.perf_counter() - start)
    seconds = time.perf_counter() - start
    answer = response.json()
    code = answer["error"]["code"] if "error" in answer else answer["choices"][0]["finish_reason"]
    return Outcome(name, response.status_code, str(code), seconds)


class Streams:
    """Streams that decode without end; ``gaps`` are seconds between chunks of one answer."""

    def __init__(self, url: str, count: int) -> None:
        self._address = urlsplit(url)
        self._count = count
        self._tasks: list[asyncio.Task[None]] = []
        self.gaps: list[float] = []

    async def __aenter__(self) -> Streams:
        self._tasks = [asyncio.create_task(self._run(number)) for number in range(self._count)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def watch(self, until: asyncio.Future[Any]) -> list[float]:
        """Gaps until ``until`` is done; raises if a stream failed."""
        self.gaps = []
        done, _ = await asyncio.wait([until, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
        return self.gaps

    async def _run(self, number: int) -> None:
        while True:
            what = task(number)
            schema = {"name": what.name, "schema": what.schema}
            await self._stream(
                {
                    "model": MODEL,
                    "messages": [{"role": "user", "content": what.prompt}],
                    "response_format": {"type": "json_schema", "json_schema": schema},
                    "seed": number,
                    "max_tokens": 400,
                    "stream": True,
                }
            )
            number += self._count

    async def _stream(self, body: dict[str, Any]) -> None:
        """One answer, read line by line: an HTTP library would cost more than the server."""
        reader, writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        try:
            content = json.dumps(body).encode()
            head = f"POST {PATH} HTTP/1.1\r\nhost: bench\r\ncontent-length: {len(content)}\r\n\r\n"
            writer.write(head.encode() + content)
            last: float | None = None
            while line := await reader.readline():
                if line.startswith(b"data: [DONE]"):
                    return
                if line.startswith(b'data: {"error"') or line.startswith(b'{"error"'):
                    raise RuntimeError(line.decode())
                if line.startswith(b"data:"):
                    now = time.perf_counter()
                    if last is not None:
                        self.gaps.append(now - last)
                    last = now
            raise RuntimeError("a stream broke off")
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@dataclass(frozen=True, slots=True)
class Measurement:
    quiet: Sequence[float]
    disturbed: Sequence[float]
    seconds: float
    """Duration of the sending."""
    outcomes: Sequence[Outcome]


async def measure(
    url: str,
    executor: ProcessPoolExecutor,
    streams: int,
    clients: int,
    seconds: float,
    rounds: int = 1,
    on_pause: Callable[[int], None] = lambda rounds: None,
) -> Measurement:
    """Gaps while ``executor`` sends its prepared requests in ``rounds`` rounds, and before, between
    and after the rounds ("quiet"), where ``on_pause`` is called with the number of past rounds."""
    loop = asyncio.get_running_loop()
    quiet: list[float] = []
    disturbed: list[float] = []
    outcomes: list[Outcome] = []
    took = 0.0

    async def pause(duration: float) -> None:
        await asyncio.sleep(duration)

    async with Streams(url, streams) as running:
        await running.watch(asyncio.ensure_future(pause(seconds / 2)))  # caches fill
        quiet += await running.watch(asyncio.ensure_future(pause(seconds)))
        on_pause(0)
        for number in range(rounds):
            start = time.perf_counter()
            sending = loop.run_in_executor(executor, send_prepared, url, clients, number, rounds)
            disturbed += await running.watch(asyncio.ensure_future(sending))
            took += time.perf_counter() - start
            outcomes += sending.result()
            quiet += await running.watch(asyncio.ensure_future(pause(seconds)))
            on_pause(number + 1)
    return Measurement(quiet, disturbed, took, outcomes)


def gaps_table(measurement: Measurement, what: str) -> str:
    """Table of the gaps; ``what`` names the disturbance."""
    disturbed, quiet = measurement.disturbed, measurement.quiet
    median = statistics.median(disturbed) / statistics.median(quiet)
    slow = quantile(disturbed, 0.99) / quantile(quiet, 0.99)
    rows = [
        _row("alone", quiet),
        _row(f"{what} for {measurement.seconds:.1f} s", disturbed),
        ("ratio", "", f"{median:.2f}", f"{slow:.2f}", ""),
    ]
    return table(("", "gaps", "median ms", "99% ms", "longest ms"), rows)


def _row(name: str, gaps: Sequence[float]) -> Sequence[object]:
    figures = (statistics.median(gaps), quantile(gaps, 0.99), max(gaps))
    return name, len(gaps), *(f"{1e3 * each:.1f}" for each in figures)
