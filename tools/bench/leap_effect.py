"""Effect of leaps on the answers of the demo model, and forward passes that they save.

``python -m tools.bench.leap_effect`` sends every held-out demo task twice with the same seed, with
and without leaps, at temperature 0 and 0.8. It reports the share of identical texts and of
identical JSON, the forward passes of both, the share of fields exactly right, and all differences.
The server runs in float32, so that the composition of a batch causes no difference."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema

from loadtest.server import running_server
from loadtest.tables import table
from tools.demo_model.corpus import Example, Kind, examples
from tools.demo_model.records import agreeing, fields

CLIENTS = 16
KINDS: tuple[Kind, ...] = (
    "contact",
    "invoice",
    "event",
    "review",
    "city",
    "notes",
    "character",
)


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    completion_tokens: int
    forward_passes: int


@dataclass(frozen=True, slots=True)
class Pair:
    """The same request with leaps and without."""

    example: Example
    temperature: float
    leap: Reply
    plain: Reply

    @property
    def same_text(self) -> bool:
        return self.leap.text == self.plain.text

    @property
    def same_json(self) -> bool:
        return bool(json.loads(self.leap.text) == json.loads(self.plain.text))


async def ask(
    client: httpx.AsyncClient, example: Example, temperature: float, seed: int, leap: bool
) -> Reply:
    schema = {"name": example.kind, "schema": example.schema, "strict": True}
    body: dict[str, Any] = {
        "model": "leapjson-demo",
        "messages": list(example.messages),
        "response_format": {"type": "json_schema", "json_schema": schema},
        "temperature": temperature,
        "seed": seed,
        "leap": leap,
    }
    response = await client.post("/v1/chat/completions", json=body)
    answer = response.json()
    if response.status_code != 200:
        raise RuntimeError(answer)
    text = answer["choices"][0]["message"]["content"]
    jsonschema.validate(json.loads(text), example.schema or {})
    usage = answer["usage"]
    passes = usage["completion_tokens_details"]["forward_passes"]
    return Reply(text, usage["completion_tokens"], passes)


async def measure(url: str, count: int) -> list[Pair]:
    tasks = [
        (example, temperature, seed)
        for kind in KINDS
        for seed, example in enumerate(examples(kind, count, seed=11, split="held_out"))
        for temperature in (0.0, 0.8)
    ]
    slots = asyncio.Semaphore(CLIENTS)

    async with httpx.AsyncClient(base_url=url, timeout=300) as client:

        async def pair(example: Example, temperature: float, seed: int) -> Pair:
            async with slots:
                leap = await ask(client, example, temperature, seed, leap=True)
                plain = await ask(client, example, temperature, seed, leap=False)
            return Pair(example, temperature, leap, plain)

        return list(await asyncio.gather(*(pair(*task) for task in tasks)))


def fields_right(pairs: Sequence[Pair]) -> tuple[int, int]:
    """Fields exactly right in the greedy answers with leaps, and the number of all fields."""
    right = total = 0
    for pair in pairs:
        if pair.temperature == 0.0:
            expected, found = fields(pair.example.answer), fields(json.loads(pair.leap.text))
            right += agreeing(expected, found)
            total += len(expected)
    return right, total


COLUMNS = (
    "temperature", "answers", "same text", "same JSON", "tokens an answer", "passes, leap",
    "passes, no leap",
)  # fmt: skip
KIND_COLUMNS = ("kind", "fields exactly right, leap, temperature 0")


def report(pairs: Sequence[Pair]) -> str:
    by_temperature = []
    for temperature in (0.0, 0.8):
        some = [pair for pair in pairs if pair.temperature == temperature]
        texts = sum(pair.same_text for pair in some) / len(some)
        objects = sum(pair.same_json for pair in some) / len(some)
        tokens = sum(pair.plain.completion_tokens for pair in some) / len(some)
        leap = sum(pair.leap.forward_passes for pair in some) / len(some)
        plain = sum(pair.plain.forward_passes for pair in some) / len(some)
        shares, figures = (texts, objects), (tokens, leap, plain)
        by_temperature.append(
            (
                temperature,
                len(some),
                *(f"{share:.1%}" for share in shares),
                *(f"{figure:.1f}" for figure in figures),
            )
        )
    by_kind: list[tuple[str, str]] = []
    for kind in KINDS:
        right, total = fields_right([p for p in pairs if p.example.kind == kind])
        if kind != "character":  # made up, so no field is right or wrong
            by_kind.append((kind, f"{right / total:.1%} of {total}"))
    extractions = [pair for pair in pairs if pair.example.kind != "character"]
    right, total = fields_right(extractions)
    by_kind.append((f"all {len(extractions) // 2} extractions", f"{right / total:.1%} of {total}"))
    different = [pair for pair in pairs if not pair.same_text]
    shown = [
        f"\n{pair.example.kind} at temperature {pair.temperature}:"
        f"\n  leap    {pair.leap.text}\n  no leap {pair.plain.text}"
        for pair in different
    ]
    return "\n".join([table(COLUMNS, by_temperature), "", table(KIND_COLUMNS, by_kind), *shown])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="tasks of each kind")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(None, Path(folder) / "log", {"DTYPE": "float32"}) as server,
    ):
        print(report(asyncio.run(measure(server.url, arguments.count))))


if __name__ == "__main__":
    main()
