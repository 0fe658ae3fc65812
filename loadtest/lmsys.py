"""LMSYS's character and city tasks: leap on, leap off, and free text of the same length.

``python -m loadtest.lmsys`` starts one server on a 160M-parameter model of Llama's shape with
random weights (``--demo`` takes the embedded demo model), interleaves the three modes in one run,
checks every constrained answer with jsonschema, and prints a Markdown table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema

from loadtest.model_folder import write_llama_160m
from loadtest.server import running_server
from loadtest.tasks import Task, task

MODES = ("leap", "no leap", "free text")
TOKENIZERS = Path(__file__).resolve().parents[2] / "shared" / "data" / "tokenizers"


@dataclass(frozen=True, slots=True)
class Answer:
    """One finished request."""

    seconds: float
    completion_tokens: int
    leapt_tokens: int
    forward_passes: int


@dataclass(frozen=True, slots=True)
class Round:
    """All answers of one mode at one number of clients, and the time they took together."""

    answers: Sequence[Answer]
    seconds: float


async def ask(client: httpx.AsyncClient, mode: str, what: Task, seed: int, tokens: int) -> Answer:
    """One request; a constrained answer that is not valid raises."""
    body: dict[str, Any] = {
        "model": "bench",
        "messages": [{"role": "user", "content": what.prompt}],
        "seed": seed,
        "temperature": 1.0,
        "max_tokens": tokens,
    }
    if mode != "free text":
        schema = {"name": what.name, "schema": what.schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
        body["leap"] = mode == "leap"
    start = time.perf_counter()
    response = await client.post("/v1/chat/completions", json=body)
    seconds = time.perf_counter() - start
    answer = response.json()
    if response.status_code != 200:
        raise RuntimeError(answer)
    if mode != "free text":
        content = answer["choices"][0]["message"]["content"]
        jsonschema.validate(json.loads(content), what.schema)
    usage = answer["usage"]
    details = usage["completion_tokens_details"]
    return Answer(
        seconds, usage["completion_tokens"], details["leapt_tokens"], details["forward_passes"]
    )


async def run_round(
    url: str, mode: str, clients: int, requests: int, seed: int, tokens: int
) -> Round:
    """``requests`` requests by ``clients`` clients, each sending its next when one returns."""
    numbers = iter(range(requests))

    async def client_loop(client: httpx.AsyncClient) -> list[Answer]:
        return [await ask(client, mode, task(number), seed + number, tokens) for number in numbers]

    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        start = time.perf_counter()
        loops = [client_loop(client) for _ in range(clients)]
        answers = [answer for group in await asyncio.gather(*loops) for answer in group]
        return Round(answers, time.perf_counter() - start)


async def measure(
    url: str, clients: Sequence[int], repeats: int, requests: int
) -> dict[tuple[int, str], list[Round]]:
    """Every mode at every number of clients, the modes in turn within each repeat."""
    rounds: dict[tuple[int, str], list[Round]] = {}
    warm = await run_round(url, "leap", 4, 8, 0, 512)
    await run_round(url, "no leap", 4, 8, 0, 512)
    length = round(statistics.mean(answer.completion_tokens for answer in warm.answers))
    for count in clients:
        for repeat in range(repeats):
            for mode in MODES:
                tokens = length if mode == "free text" else 512
                total = max(requests, 2 * count)
                result = await run_round(url, mode, count, total, 1000 * repeat, tokens)
                rounds.setdefault((count, mode), []).append(result)
    return rounds


def row(count: int, mode: str, rounds: Sequence[Round]) -> str:
    answers = [answer for result in rounds for answer in result.answers]
    latency = statistics.median(answer.seconds for answer in answers)
    slowest = sorted(answer.seconds for answer in answers)[int(0.95 * len(answers))]
    rate = statistics.median(len(result.answers) / result.seconds for result in rounds)
    speed = statistics.median(
        sum(answer.completion_tokens for answer in result.answers) / result.seconds
        for result in rounds
    )
    passes = statistics.mean(answer.forward_passes for answer in answers)
    tokens = statistics.mean(answer.completion_tokens for answer in answers)
    leapt = statistics.mean(answer.leapt_tokens for answer in answers)
    return (
        f"| {count} | {mode} | {latency:.2f} | {slowest:.2f} | {rate:.2f} | {speed:.0f} "
        f"| {tokens:.0f} | {leapt:.0f} | {passes:.0f} |"
    )


def report(rounds: dict[tuple[int, str], list[Round]]) -> str:
    lines = [
        "| clients | mode | latency s (median) | 95% | answers/s | tokens/s | tokens/answer "
        "| leapt | forward passes |",
        "|---|---|---|---|---|---|---|---|---|",
        *(row(count, mode, results) for (count, mode), results in rounds.items()),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--requests", type=int, default=8, help="per round, at least 2 a client")
    parser.add_argument("--tokenizer", type=Path, default=TOKENIZERS / "gpt2")
    parser.add_argument("--demo", action="store_true", help="the demo model instead")
    arguments = parser.parse_args()
    settings = {"SERVED_MODEL_NAME": "bench", "MAX_RUNNING": "64"}
    with tempfile.TemporaryDirectory() as folder:
        model = None if arguments.demo else Path(folder) / "llama-160m"
        if model is not None:
            write_llama_160m(model, arguments.tokenizer)
            settings["RANDOM_WEIGHTS"] = "true"
        with running_server(model, Path(folder) / "server.log", settings) as server:
            rounds = asyncio.run(
                measure(server.url, arguments.clients, arguments.repeats, arguments.requests)
            )
    print(report(rounds))


if __name__ == "__main__":
    main()
