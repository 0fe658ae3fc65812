"""Half an hour of mixed requests, with measurements of the memory of all processes."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.faults.client import BrokenAnswerError, ask, chat, json_schema, regex, send
from loadtest.faults.findings import Report
from loadtest.faults.setting import Setting
from loadtest.faults.watch import (
    MIB,
    bystanders,
    compile_workers,
    metric,
    question,
    resident,
    settle,
)
from loadtest.schemas import distinct_schemas, strict_object
from tools import datasets

CLIENTS = 12
SAMPLE_SECONDS = 5.0
SLOPE_BOUND = 20.0
"""Maximum growth in MiB an hour, while new schemas are compiled all the time."""


async def run(setting: Setting, report: Report) -> None:
    # Small caches, which fill long before half time.
    with setting.server(
        max_running="16", schema_cache_bytes=str(16 * MIB), kv_cache_bytes=str(64 * MIB)
    ) as server:
        url, pid = server.url, server.process.pid
        report.note("minutes", setting.minutes)
        stop = time.monotonic() + 60 * setting.minutes
        outcomes: Counter[str] = Counter()
        memory = Memory(pid)
        schemas = distinct_schemas(datasets.MASKBENCH)
        async with bystanders(url, report, 2):
            watching = asyncio.create_task(memory.watch())
            await asyncio.gather(
                *(_client(url, seed, stop, outcomes, schemas) for seed in range(CLIENTS))
            )
            watching.cancel()
        for outcome, times in sorted(outcomes.items()):
            report.note(outcome, times)
        wrong = sum(times for outcome, times in outcomes.items() if outcome.startswith("WRONG"))
        report.equal("requests with a wrong result", wrong, 0)
        memory.report(report)
        report.note("schema cache: evictions", await metric(url, "schema_cache_evictions_total"))
        report.note("schema cache: MiB", await metric(url, "schema_cache_bytes") / MIB)
        report.note("time until idle and all blocks free, s", await settle(url))


@dataclass(slots=True)
class Memory:
    """Resident MiB over time: of the server, and of all its compile workers together."""

    pid: int
    seconds: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    workers: list[float] = field(default_factory=list)

    async def watch(self) -> None:
        """Take readings until cancelled."""
        start = time.monotonic()
        while True:
            self.seconds.append(time.monotonic() - start)
            self.server.append(resident(self.pid))
            self.workers.append(sum(map(resident, compile_workers(self.pid))))
            await asyncio.sleep(SAMPLE_SECONDS)

    def report(self, report: Report) -> None:
        half = len(self.seconds) // 2
        for name, values in (("server", self.server), ("compile workers", self.workers)):
            report.note(f"{name}: resident memory at the start, MiB", values[0])
            report.note(f"{name}: at half time, MiB", values[half])
            report.note(f"{name}: at the end, MiB", values[-1])
            slope = 3600 * gradient(self.seconds[half:], values[half:])
            report.at_most(f"{name}: slope of the second half, MiB/h", slope, SLOPE_BOUND)


def gradient(times: Sequence[float], values: Sequence[float]) -> float:
    """Slope of the least-squares line through the points."""
    middle, mean = sum(times) / len(times), sum(values) / len(values)
    products = sum((t - middle) * (v - mean) for t, v in zip(times, values, strict=True))
    return products / max(sum((t - middle) ** 2 for t in times), 1e-9)


async def _client(
    url: str, seed: int, stop: float, outcomes: Counter[str], schemas: Iterator[Any]
) -> None:
    rng = random.Random(seed)
    while time.monotonic() < stop:
        name, body, wanted = _request(rng, schemas)
        try:
            async with asyncio.timeout(120):
                if name == "leaves":
                    await _read_and_disconnect(url, body, rng)
                    outcomes[name] += 1
                    continue
                status, answer = await ask(url, body)
            right = status in wanted and (status != 200 or _is_complete(body, answer))
        except (BrokenAnswerError, OSError, TimeoutError, ValueError) as error:
            outcomes[f"WRONG {name}: {type(error).__name__}"] += 1
            continue
        outcomes[f"{name}: {status}" if right else f"WRONG {name}: {status}"] += 1


def _is_complete(body: dict[str, Any], answer: bytes) -> bool:
    """Whether the answer is complete. Raises ``ValueError`` if a constrained one is not JSON."""
    if body.get("on_budget") == "truncate":
        return True
    if body.get("stream"):
        return answer.endswith(b"data: [DONE]\n\n")
    if "response_format" not in body or body["response_format"]["type"] != "json_schema":
        return True
    for choice in json.loads(answer)["choices"]:
        json.loads(choice["message"]["content"])
    return True


def _request(
    rng: random.Random, schemas: Iterator[Any]
) -> tuple[str, dict[str, Any], Sequence[int]]:
    """A random request: name of its kind, body, and allowed statuses."""
    name = rng.choices(
        ["known", "new schema", "real schema", "tools", "free text", "leaves", "refused", "error"],
        [20, 10, 15, 15, 15, 15, 5, 5],
    )[0]
    stream = rng.random() < 0.5
    match name:
        case "known":
            return name, {**question(rng.randrange(50)), "stream": stream}, [200]
        case "new schema":
            return name, chat("Fill it in.", response_format=json_schema(_new_schema(rng))), [200]
        case "real schema":  # always new ones; a few are refused
            form = json_schema(next(schemas))
            body = chat("Fill it in.", response_format=form, max_tokens=60, temperature=1.0)
            return name, {**body, "on_budget": "truncate"}, [200, 400]
        case "tools":
            return name, _tools(rng, stream), [200]
        case "leaves":
            return (
                name,
                chat("Hello!", response_format=regex("[a-z ]{500,900}"), stream=True),
                [200],
            )
        case "refused":
            schema = {"type": "string", "pattern": "(?=a)b" + "x" * rng.randrange(50)}
            return name, chat("Hello!", response_format=json_schema(schema)), [400]
        case "error":
            return name, {**chat("Hello!"), "temperature": rng.choice(["hot", -1, 99])}, [400]
    words = " ".join(str(rng.random()) for _ in range(rng.randrange(1, 20)))
    return name, chat(f"Hello {words}", max_tokens=100, temperature=1.0, stream=stream), [200]


def _new_schema(rng: random.Random) -> dict[str, Any]:
    kinds: list[dict[str, Any]] = [
        {"type": "integer", "minimum": 0, "maximum": rng.randrange(10, 10**6)},
        {"type": "string", "maxLength": rng.randrange(5, 40)},
        {"enum": [f"v{rng.randrange(1000)}" for _ in range(5)]},
        {"type": "array", "items": {"type": "boolean"}, "maxItems": rng.randrange(1, 6)},
    ]
    return strict_object({f"p{rng.getrandbits(32):x}": rng.choice(kinds) for _ in range(6)})


def _tools(rng: random.Random, stream: bool) -> dict[str, Any]:
    parameters = strict_object({"city": {"type": "string"}, "days": {"type": "integer"}})
    function = {"name": "forecast", "parameters": parameters, "strict": True}
    return chat(
        f"What will the weather be in {rng.choice(['Lima', 'Oslo', 'Pune'])}?",
        tools=[{"type": "function", "function": function}],
        tool_choice=rng.choice(["auto", "required"]),
        max_tokens=200,
        stream=stream,
    )


async def _read_and_disconnect(url: str, body: dict[str, Any], rng: random.Random) -> None:
    exchange = await send(url, body)
    try:
        await exchange.head()
        left = rng.randrange(30)
        async for _ in exchange.events():
            left -= 1
            if left < 0:
                return
    finally:
        exchange.abort()
