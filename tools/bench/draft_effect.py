"""Forward passes that drafts save on the demo model, and a check that they change no answer.

``python -m tools.bench.draft_effect`` sends held-out demo tasks with the same seed, with and
without drafts, at temperature 0 and 0.8. No task comes twice: drafts come from other answers of the
same kind, since each kind has one schema. It reports tokens and forward passes an answer, the share
of drafted tokens that were accepted, and the number of equal texts (float32: all should be)."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from loadtest.server import running_server
from loadtest.tables import heading, table_row
from tools.demo_model.corpus import Example, Kind, examples

KINDS: tuple[Kind, ...] = ("character", "contact", "invoice", "event", "review", "city")


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    tokens: int
    passes: int
    leapt: int
    drafted: int


async def ask(
    client: httpx.AsyncClient,
    example: Example,
    schema: Any,
    temperature: float,
    seed: int,
    draft: bool,
) -> Reply:
    body = {
        "model": "leapjson-demo",
        "messages": example.messages,
        "temperature": temperature,
        "seed": seed,
        "max_tokens": 400,
        "draft": draft,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": example.kind, "schema": schema},
        },
    }
    response = await client.post("/v1/chat/completions", json=body)
    response.raise_for_status()
    answer = response.json()
    details = answer["usage"]["completion_tokens_details"]
    return Reply(
        answer["choices"][0]["message"]["content"],
        answer["usage"]["completion_tokens"],
        details["forward_passes"],
        details["leapt_tokens"],
        details["drafted_tokens"],
    )


async def replies(
    client: httpx.AsyncClient,
    tasks: Sequence[Example],
    temperature: float,
    *,
    draft: bool,
    clients: int,
) -> list[Reply]:
    limit = asyncio.Semaphore(clients)

    async def one(seed: int, example: Example) -> Reply:
        async with limit:
            return await ask(client, example, tasks[0].schema, temperature, seed, draft)

    return list(await asyncio.gather(*(one(*each) for each in enumerate(tasks))))


COLUMNS = (
    "kind", "temperature", "same text", "tokens", "leapt", "drafted", "passes", "without", "fewer",
)  # fmt: skip


async def report(url: str, count: int, clients: int) -> None:
    print(heading(COLUMNS))
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        for kind in KINDS:
            tasks = list(examples(kind, 2 * count, 5, "held_out"))
            for temperature, some in ((0.0, tasks[:count]), (0.8, tasks[count:])):
                on = await replies(client, some, temperature, draft=True, clients=clients)
                off = await replies(client, some, temperature, draft=False, clients=clients)
                print(_row(kind, temperature, on, off), flush=True)
        metrics = (await client.get("/metrics")).text
    proposed, accepted = (
        _value(metrics, name) for name in ("draft_tokens_total ", 'tokens_total{source="drafted"} ')
    )
    print(f"\nof {proposed:.0f} drafted tokens {accepted / proposed:.0%} were accepted")


def _row(kind: str, temperature: float, on: list[Reply], off: list[Reply]) -> str:
    same = sum(a.text == b.text for a, b in zip(on, off, strict=True))
    count = len(on)
    tokens, passes = sum(r.tokens for r in on) / count, sum(r.passes for r in on) / count
    without = sum(r.passes for r in off) / count
    leapt, drafted = sum(r.leapt for r in on) / count, sum(r.drafted for r in on) / count
    figures = (tokens, leapt, drafted, passes, without)
    cells = (f"{figure:.1f}" for figure in figures)
    return table_row((kind, temperature, f"{same}/{count}", *cells, f"{tokens / passes:.1f}x"))


def _value(metrics: str, name: str) -> float:
    lines = (line.removeprefix("leapjson_") for line in metrics.splitlines())
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30, help="tasks of each kind and temperature")
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    log = Path(tempfile.mkdtemp()) / "log"
    with running_server(None, log, {"DTYPE": "float32"}) as server:
        asyncio.run(report(server.url, options.count, options.clients))


if __name__ == "__main__":
    main()
