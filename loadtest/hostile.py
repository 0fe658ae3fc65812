"""Answers in flight while hostile and huge schemas arrive.

``python -m loadtest.hostile`` starts one server (the demo model), keeps 16 streams decoding, and
times the gaps between their chunks: first alone, then while a process of its own sends 50 hostile
and 50 huge schemas, then alone again. It prints both distributions with their ratio, and the answer
that each attack got.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from loadtest.faults.report import quantile
from loadtest.hostile_schemas import Attack, hostile, huge
from loadtest.server import running_server
from loadtest.tables import table
from loadtest.tasks import task

PATH = "/v1/chat/completions"
_bodies: list[tuple[str, bytes]] = []
"""In the attacking process: names and bodies, made before the clock runs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attack got: status 0 stands for no answer, ``code`` for what went wrong then."""

    name: str
    status: int
    code: str
    seconds: float


def prepare(hostile_count: int, huge_count: int) -> int:
    """Make the attacks in this process; bytes of all of them together."""
    os.nice(10)  # attackers run on machines of their own; here they shall not take the server's
    attacks = [*hostile(hostile_count), *huge(huge_count)]
    # One of each in turn: the huge ones arrive among the hostile ones.
    half = (len(attacks) + 1) // 2
    order = [each for pair in zip(attacks[:half], attacks[half:], strict=False) for each in pair]
    order += attacks[len(attacks) - half : half]
    _bodies.extend((attack.name, _body(attack)) for attack in order)
    return sum(len(body) for _, body in _bodies)


def _body(attack: Attack) -> bytes:
    body = {
        "model": "bench",
        "messages": [{"role": "user", "content": attack.prompt}],
        "response_format": attack.response_format,
        "max_tokens": 8,
        "on_budget": "truncate",  # the masks of huge constraints are asked for, too
    }
    return json.dumps(body).encode()


def attack(url: str, clients: int) -> list[Outcome]:
    """Send what was prepared, ``clients`` at a time, and wait for every answer."""
    return asyncio.run(_attack(url, clients))


async def _attack(url: str, clients: int) -> list[Outcome]:
    waiting = iter(_bodies)
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
        """The gaps of the time until ``until`` is done; raises if a stream failed."""
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
                    "model": "bench",
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
    attacked: Sequence[float]
    attack_seconds: float
    outcomes: Sequence[Outcome]


async def measure(
    url: str, executor: ProcessPoolExecutor, streams: int, clients: int, seconds: float
) -> Measurement:
    """Gaps before and after (together "quiet") and during the attack."""
    loop = asyncio.get_running_loop()

    async def pause(duration: float) -> None:
        await asyncio.sleep(duration)

    async with Streams(url, streams) as running:
        await running.watch(asyncio.ensure_future(pause(seconds / 2)))  # caches fill
        before = await running.watch(asyncio.ensure_future(pause(seconds)))
        start = time.perf_counter()
        attacking = loop.run_in_executor(executor, attack, url, clients)
        attacked = await running.watch(asyncio.ensure_future(attacking))
        took = time.perf_counter() - start
        after = await running.watch(asyncio.ensure_future(pause(seconds)))
    return Measurement([*before, *after], attacked, took, attacking.result())


def report(measurement: Measurement) -> str:
    attacked = f"attacked for {measurement.attack_seconds:.1f} s"
    median = statistics.median(measurement.attacked) / statistics.median(measurement.quiet)
    slow = quantile(measurement.attacked, 0.99) / quantile(measurement.quiet, 0.99)
    gaps = [
        _row("alone", measurement.quiet),
        _row(attacked, measurement.attacked),
        ("ratio", "", f"{median:.2f}", f"{slow:.2f}", ""),
    ]
    rows = []
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in measurement.outcomes:
        groups["huge" if outcome.name.startswith("huge ") else outcome.name].append(outcome)
    for name, group in groups.items():
        answers = sorted({f"{outcome.status} {outcome.code}" for outcome in group})
        slowest = max(outcome.seconds for outcome in group)
        rows.append((name, len(group), ", ".join(answers), f"{slowest:.2f}"))
    unclear = [each for each in measurement.outcomes if each.status == 0 or each.status >= 500]
    return "\n".join(
        [
            table(("", "gaps", "median ms", "99% ms", "longest ms"), gaps),
            "",
            table(("attack", "sent", "answers", "slowest s"), rows),
            "",
            f"{len(measurement.outcomes)} attacks, {len(unclear)} without a clear answer",
        ]
    )


def _row(name: str, gaps: Sequence[float]) -> Sequence[object]:
    figures = (statistics.median(gaps), quantile(gaps, 0.99), max(gaps))
    return name, len(gaps), *(f"{1e3 * each:.1f}" for each in figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--hostile", type=int, default=50)
    parser.add_argument("--huge", type=int, default=50)
    parser.add_argument("--clients", type=int, default=8, help="attacks in flight at a time")
    parser.add_argument("--seconds", type=float, default=10.0, help="alone, before and after")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor,
        running_server(None, Path(folder) / "server.log", {"SERVED_MODEL_NAME": "bench"}) as server,
    ):
        total = executor.submit(prepare, arguments.hostile, arguments.huge).result()
        print(f"attacks prepared: {total / 1e6:.1f} MB", flush=True)
        measured = asyncio.run(
            measure(server.url, executor, arguments.streams, arguments.clients, arguments.seconds)
        )
        metrics = httpx.get(f"{server.url}/metrics").text
    print(report(measured))
    wanted = ("leapjson_schema_cache", "leapjson_step_seconds_sum", "leapjson_step_seconds_count")
    print("\n".join(line for line in metrics.splitlines() if line.startswith(wanted)))


if __name__ == "__main__":
    main()
