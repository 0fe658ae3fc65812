"""A stream before its first token: head, pings, and errors after the head."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.core.errors import ConstraintTooComplex
from tests.http.harness import (
    BODIES,
    CHAT,
    CONFIG,
    MESSAGES,
    RESPONSES,
    application,
    chat,
    listening,
)
from tests.serving.fakes import Bench, until

IMPATIENT = replace(CONFIG, head_seconds=0.0, ping_seconds=0.001)


def waiting() -> Bench:
    """A service whose engine yields nothing until its gate is opened."""
    bench = Bench()
    bench.engine.gate.clear()
    return bench


@asynccontextmanager
async def asked(
    bench: Bench, path: str
) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[str]]]:
    async with (
        bench.running(),
        listening(application(bench, IMPATIENT)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
        client.stream("POST", path, json={**BODIES[path], "stream": True}) as response,
    ):
        yield response, response.aiter_lines()


@pytest.mark.parametrize("path", BODIES)
async def test_the_head_and_pings_come_before_the_first_token(path: str) -> None:
    bench = waiting()
    async with asked(bench, path) as (response, lines):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        before = [await anext(lines) for _ in range(6)]
        bench.engine.gate.set()
        after = [line async for line in lines]
    sign = ["event: ping", 'data: {"type": "ping"}', ""] if path == MESSAGES else [": ping", ""]
    assert before == sign * (6 // len(sign))
    assert "Hel" in "".join(after)


@pytest.mark.parametrize("path", BODIES)
async def test_an_error_behind_the_head_is_an_event(path: str) -> None:
    bench = waiting()
    async with asked(bench, path) as (response, lines):
        assert response.status_code == 200
        bench.engine.finish_with = "error"
        bench.engine.error = ConstraintTooComplex("it takes too many states")
        bench.engine.script = lambda request: [b""]
        for left in bench.engine._left.values():
            del left[1:]
        bench.engine.gate.set()
        text = "\n".join([line async for line in lines])
    data = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    errors = [each for each in data if each.get("error")]
    assert errors[0]["error"]["code"] == "schema_too_complex"
    kinds = [each["type"] for each in data if path == RESPONSES]
    assert kinds[-2:] in ([], ["error", "response.failed"])


async def test_an_error_that_comes_at_once_has_a_status_of_its_own() -> None:
    bench = Bench()
    bench.engine.finish_with = "error"
    bench.engine.error = ConstraintTooComplex("it takes too many states")
    bench.engine.script = lambda request: [b""]
    async with (
        bench.running(),
        listening(application(bench)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        answer = await client.post(CHAT, json=chat(stream=True))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "schema_too_complex")


async def test_whole_answers_have_no_pings() -> None:
    bench = waiting()
    async with (
        bench.running(),
        listening(application(bench, IMPATIENT)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        task = asyncio.create_task(client.post(CHAT, json=chat()))
        await until(lambda: bench.engine.added)
        bench.engine.gate.set()
        answer = await task
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"


@pytest.mark.parametrize("body", [chat(stream=True), chat()], ids=["streamed", "whole"])
async def test_an_answer_to_http_1_0_has_no_chunks(body: dict[str, Any]) -> None:
    bench = Bench()
    async with bench.running(), listening(application(bench)) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        data = json.dumps(body).encode()
        head = f"POST {CHAT} HTTP/1.0\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        answer = await asyncio.wait_for(reader.read(), 120)
        writer.close()
    head, _, text = answer.decode().partition("\r\n\r\n")
    assert "transfer-encoding" not in head
    assert "connection: close" in head
    if not body.get("stream"):
        assert json.loads(text)["choices"][0]["message"]["content"] == "Hello"
        return
    assert text.startswith("data: {")
    assert text.endswith("data: [DONE]\n\n")
    assert (
        "".join(
            each["choices"][0]["delta"].get("content", "")
            for each in map(
                json.loads, text.removesuffix("data: [DONE]\n\n")[6:].split("\n\ndata: ")
            )
        )
        == "Hello"
    )
