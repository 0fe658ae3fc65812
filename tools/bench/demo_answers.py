"""Answers of the demo model to held-out tasks."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema

from loadtest.server import running_server
from tools.demo_model.corpus import Example


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    answer: Any
    confidence: Sequence[dict[str, Any]]
    tokens: int
    passes: int
    leapt: int
    drafted: int
    seconds: float


@contextmanager
def demo_server() -> Iterator[str]:
    """URL of a server in float32, where the company of an answer in a batch changes nothing."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(None, Path(folder) / "log", {"DTYPE": "float32"}) as server,
    ):
        yield server.url


async def ask(client: httpx.AsyncClient, task: Example, schema: Any, **fields: Any) -> Reply:
    """The answer to ``task`` under ``schema``; ``fields`` are those of the request."""
    body = {
        "model": "leapjson-demo",
        "messages": task.messages,
        "max_tokens": 400,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": task.kind, "schema": schema},
        },
        **fields,
    }
    start = time.perf_counter()
    response = await client.post("/v1/chat/completions", json=body)
    seconds = time.perf_counter() - start
    response.raise_for_status()
    content = response.json()
    choice, usage = content["choices"][0], content["usage"]
    text = choice["message"]["content"]
    answer = json.loads(text)
    jsonschema.validate(answer, schema)
    details = usage["completion_tokens_details"]
    return Reply(
        text,
        answer,
        choice.get("confidence", ()),
        usage["completion_tokens"],
        details["forward_passes"],
        details["leapt_tokens"],
        details["drafted_tokens"],
        seconds,
    )


async def ask_all(
    client: httpx.AsyncClient,
    tasks: Sequence[Example],
    schemas: Sequence[Any],
    clients: int,
    **fields: Any,
) -> list[Reply]:
    """Answers to all tasks, ``clients`` at a time; the seed of each is its index."""
    limit = asyncio.Semaphore(clients)

    async def one(seed: int, task: Example, schema: Any) -> Reply:
        async with limit:
            return await ask(client, task, schema, seed=seed, **fields)

    return list(await asyncio.gather(*map(one, range(len(tasks)), tasks, schemas)))
