"""Ended requests are freed by reference counts, without the garbage collector.

When a compiled program arrives from a worker, ``load_paced`` freezes all objects that are alive
(``gc.freeze``): a reference cycle among them would never be freed.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.answer.formats import ChatFormat
from app.answer.formats.families import HERMES
from app.answer.formats.reasoning import ReasoningFormat
from app.core.errors import BudgetTooSmall
from app.serving.admission import Ticket
from app.serving.generation import Generation
from tests.http.harness import BODIES, CHAT, application, chat, client_of, listening
from tests.serving.fakes import Bench, FakeEngine, until


@contextmanager
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive(*kinds: type) -> list[object]:
    return [each for each in gc.get_objects() if type(each) in kinds]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("when", ["before the stream", "in the stream", "not streamed"])
async def test_a_failed_request_is_freed(path: str, when: str) -> None:
    engine = FakeEngine()
    if when == "before the stream":
        engine.refusal = lambda request: BudgetTooSmall(max_tokens=9, needed=60)
    else:
        engine.finish_with = "error"
    body = {**BODIES[path], "stream": when != "not streamed"}
    async with client_of(Bench(engine, context=100)) as client:
        await client.post(path, json=body)
        with uncollected():
            answer = await client.post(path, json=body)
            left = alive(Generation)
    assert (answer.is_success, b"error" in answer.content) == (when == "in the stream", True)
    assert left == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_over_a_connection_is_freed(stream: bool) -> None:
    bench, body = Bench(), chat(stream=stream)
    async with (
        bench.running(),
        listening(application(bench)) as url,
        httpx.AsyncClient(base_url=url, timeout=300) as client,
    ):
        for _ in range(2):  # a connection keeps its latest request alive
            await client.post(CHAT, json=body)
        with uncollected():
            for _ in range(3):
                assert (await client.post(CHAT, json=body)).status_code == 200
            # The handler ends after its answer is sent.
            await until(lambda: len(alive(RequestResponseCycle, Ticket)) <= 2)


THINKING = ChatFormat(HERMES, ReasoningFormat("<think>", "</think>"))
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "integer"}}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "required"},
        {"response_format": SCHEMA},
        {"logprobs": True, "stop": "x"},
    ],
    ids=["text", "tools", "calls", "schema", "logprobs"],
)
async def test_nothing_of_an_answer_is_in_a_cycle(fields: dict[str, Any], stream: bool) -> None:
    async with client_of(Bench(chat_format=THINKING)) as client:
        for _ in range(2):  # the first requests fill caches
            assert (await client.post(CHAT, json=chat(**fields, stream=stream))).is_success
            await asyncio.sleep(0)
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            assert (await client.post(CHAT, json=chat(**fields, stream=stream))).is_success
            await asyncio.sleep(0)
            gc.collect()
            ours = [each for each in gc.garbage if type(each).__module__.startswith("app.")]
            names = {type(each).__name__ for each in ours}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
        del ours
    assert names == set()
