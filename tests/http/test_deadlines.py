"""Errors for deadlines and overload, the same on every endpoint that generates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from app.serving.admission.admission import Deadline
from app.serving.generation import Generation
from tests.http.harness import (
    BODIES,
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    application,
    client_of,
    error_of,
    events,
    listening,
    post,
)
from tests.serving.fakes import Bench, FakeEngine, until

each_endpoint = pytest.mark.parametrize("path", BODIES)


@each_endpoint
@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_before_the_first_chunk_is_504_and_not_to_be_retried(
    path: str, stream: bool
) -> None:
    bench = Bench(FakeEngine(slots=0))
    async with client_of(bench) as client:
        body = {**BODIES[path], "stream": stream, "timeout": 0.01}
        response = await client.post(path, json=body)
        error = error_of(response, 504)
        kind = "timeout_error" if path == MESSAGES else "server_error"
        assert (error["type"], error["code"]) == (kind, "deadline_exceeded")
        assert "within 0.01 s, its timeout" in error["message"]
        assert response.headers["x-should-retry"] == "false"
        await until(lambda: not bench.engine.has_work)
    assert bench.admission.live == 0
    assert [stats.status for stats in bench.observer.requests] == [504]


async def slowly(
    body: dict[str, Any], pause: Callable[[], Awaitable[object]]
) -> AsyncIterator[bytes]:
    data = json.dumps(body).encode()
    yield data[:-1]
    await pause()
    yield data[-1:]


@each_endpoint
async def test_the_time_that_a_body_takes_to_come_counts(path: str) -> None:
    bench = Bench()
    async with client_of(bench) as client:
        body = slowly({**BODIES[path], "timeout": 0.01}, lambda: asyncio.sleep(0.05))
        error = error_of(await client.post(path, content=body), 504)
        assert "within 0.01 s, its timeout" in error["message"]
    assert bench.engine.added == []
    assert bench.admission.live == 0


@pytest.mark.parametrize("path", [*BODIES, "/v1/schemas", "/tokenize"])
async def test_an_incomplete_body_times_out(path: str) -> None:
    bench = Bench(request_seconds=0.2)
    async with client_of(bench) as client:
        content = slowly({}, asyncio.Event().wait)
        error = error_of(await client.post(path, content=content), 504)
    assert error["message"].startswith(
        "the request had not been parsed within 0.2 s, the limit LEAPJSON_REQUEST_SECONDS"
    )
    assert bench.admission.bodies.used == 0
    assert [stats.status for stats in bench.observer.requests] == [504]


async def test_registering_a_schema_has_a_deadline() -> None:
    async def never(spec: object, *_: object) -> None:
        await asyncio.Event().wait()

    bench = Bench(compile=never, request_seconds=0.05)
    response = await post(bench, "/v1/schemas", {"schema": {}}, 504)
    assert "schema had not been compiled" in error_of(response, 504)["message"]
    assert bench.admission.live == 0


@asynccontextmanager
async def paused(bench: Bench, path: str) -> AsyncIterator[tuple[Generation, asyncio.Task[Any]]]:
    """Yields the generation of a stream, and its request; the engine pauses after one piece."""
    bench.engine.pause_at = 1
    async with client_of(bench) as client:
        task = asyncio.create_task(client.post(path, json={**BODIES[path], "stream": True}))
        await until(lambda: not bench.engine.gate.is_set())
        (generation,) = set(bench.worker._inboxes.values())
        assert isinstance(generation, Generation)
        await until(lambda: generation.usage)
        yield generation, task


def passed() -> Deadline:
    return Deadline(asyncio.get_running_loop().time(), 5.0, asked=True)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_deadline_inside_a_stream_is_an_event_with_the_error(path: str) -> None:
    bench = Bench(FakeEngine(lambda request: [b"one", b"two"]))
    async with paused(bench, path) as (generation, task):
        generation.expire(passed())
        response = await task
        assert response.status_code == 200
        *before, last = events(response.text)
        assert "one" in json.dumps(before)
        assert last["error"]["code"] == "deadline_exceeded"
        assert "the answer was not complete within 5 s" in last["error"]["message"]
        await until(lambda: not bench.engine.has_work)


async def test_a_deadline_inside_a_response_ends_it_as_failed() -> None:
    bench = Bench(FakeEngine(lambda request: [b"one", b"two"]))
    async with paused(bench, RESPONSES) as (generation, task):
        generation.expire(passed())
        response = await task
        found = events(response.text)
        assert [event["type"] for event in found[-2:]] == ["error", "response.failed"]
        assert found[-2]["code"] == "deadline_exceeded"
        assert found[-1]["response"]["status"] == "failed"
        assert found[-1]["response"]["output"][0]["content"][0]["text"] == "one"


@each_endpoint
@pytest.mark.parametrize("value", [0, -1, "5", True])
async def test_a_timeout_is_a_number_of_seconds(path: str, value: Any) -> None:
    async with client_of(Bench()) as client:
        error = error_of(await client.post(path, json={**BODIES[path], "timeout": value}), 400)
    assert error["param"] == "timeout"


@each_endpoint
async def test_a_timeout_over_the_servers_limit_is_400_with_the_limit(path: str) -> None:
    async with client_of(Bench(request_seconds=60)) as client:
        error = error_of(await client.post(path, json={**BODIES[path], "timeout": 61}), 400)
        assert (error["param"], error["message"]) == (
            "timeout",
            "timeout is 61 and the limit is 60 s",
        )
        assert (await client.post(path, json={**BODIES[path], "timeout": 60})).status_code == 200


async def test_the_sdk_asks_once_when_its_time_has_passed() -> None:
    bench = Bench(FakeEngine(slots=0))
    async with (
        bench.running(),
        listening(application(bench)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=2) as client,
    ):
        with pytest.raises(openai.InternalServerError) as caught:
            await client.completions.create(model="demo", prompt="hi", extra_body={"timeout": 0.01})
        assert (caught.value.status_code, caught.value.code) == (504, "deadline_exceeded")
    assert len(bench.observer.requests) == 1


@each_endpoint
async def test_too_many_tokens_that_wait_are_429_with_retry_after(path: str) -> None:
    bench = Bench(max_queue_tokens=100)
    async with client_of(bench) as client:
        held = bench.held(1)
        held.claim(100, 10)
        response = await client.post(path, json=BODIES[path])
        held.leave()
    assert error_of(response, 429)["code"] == "queue_tokens_full"
    assert 1 <= int(response.headers["retry-after"]) <= 120
    assert bench.observer.rejections == ["queue_tokens_full"]
