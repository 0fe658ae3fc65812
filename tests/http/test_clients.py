"""OpenAI's SDK and real sockets against the application, with a fake engine."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, cast

import httpx
import openai
import pytest
from openai.lib._parsing import type_to_response_format_param
from pydantic import BaseModel

from app.core.errors import UnsupportedSchema
from app.core.specs import JsonObject, JsonSchema
from tests.http.harness import BODIES, CHAT, HI, application, chat, listening, sdk_of
from tests.serving.fakes import Bench, FakeEngine, until


class Person(BaseModel):
    name: str
    age: int


def answering(*pieces: bytes) -> Bench:
    return Bench(FakeEngine(lambda request: list(pieces)))


async def test_the_sdk_creates_a_completion() -> None:
    async with sdk_of(Bench()) as client:
        completion = await client.chat.completions.create(
            model="demo", messages=[HI], n=2, logprobs=True
        )
    assert [choice.message.content for choice in completion.choices] == ["Hello", "Hello"]
    assert completion.usage is not None
    assert completion.usage.completion_tokens_details is not None
    assert completion.usage.completion_tokens_details.to_dict()["leapt_tokens"] == 2
    # The SDK does not validate responses by default.
    type(completion).model_validate(completion.to_dict(), strict=True)


async def test_the_sdk_parses_into_a_pydantic_model() -> None:
    bench = answering(b'{"name": "Ada", ', b'"age": 36}')
    async with sdk_of(bench) as client:
        completion = await client.chat.completions.parse(
            model="demo", messages=[HI], response_format=Person
        )
    assert completion.choices[0].message.parsed == Person(name="Ada", age=36)
    (spec,) = bench.compiled
    assert isinstance(spec, JsonSchema)
    assert spec.close_objects


async def test_the_sdk_passes_the_form_of_the_answer_on() -> None:
    bench = answering(b'{"name":"Ada",', b'"age":36}')
    format = {**cast(Any, type_to_response_format_param(Person)), "whitespace": "compact"}
    async with sdk_of(bench) as client:
        await client.chat.completions.create(
            model="demo",
            messages=[HI],
            response_format=cast(Any, {"type": "json_object", "whitespace": "indent:2"}),
        )
        completion = await client.chat.completions.parse(
            model="demo",
            messages=[HI],
            response_format=Person,
            extra_body={"response_format": format},
        )
    assert completion.choices[0].message.parsed == Person(name="Ada", age=36)
    indented, compact = bench.compiled
    assert indented == JsonObject("indent:2")
    assert isinstance(compact, JsonSchema)
    assert (compact.whitespace, compact.close_objects) == ("compact", True)


async def test_the_sdk_streams_and_accumulates() -> None:
    bench = answering(b'{"name": "Ada", ', b'"age": 36}')
    async with (
        sdk_of(bench) as client,
        client.chat.completions.stream(
            model="demo",
            messages=[HI],
            response_format=Person,
            stream_options={"include_usage": True},
        ) as stream,
    ):
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "content.delta" in kinds
    assert "content.done" in kinds
    assert final.choices[0].message.parsed == Person(name="Ada", age=36)
    assert final.usage is not None
    assert final.usage.completion_tokens == 2


async def test_every_chunk_is_valid_for_the_sdk() -> None:
    async with sdk_of(Bench()) as client:
        stream = await client.chat.completions.create(
            model="demo",
            messages=[HI],
            stream=True,
            logprobs=True,
            top_logprobs=2,
        )
        async for chunk in stream:
            type(chunk).model_validate(chunk.to_dict(), strict=True)


async def test_an_answer_goes_back_as_history() -> None:
    bench = Bench()
    async with sdk_of(bench) as client:
        first = await client.chat.completions.create(model="demo", messages=[HI])
        answer = first.choices[0].message
        await client.chat.completions.create(
            model="demo",
            messages=[HI, answer],  # type: ignore[list-item]
        )
    assert bench.tokenizer.seen[1][1] == {"role": "assistant", "content": "Hello"}


async def test_the_sdk_raises_its_own_errors() -> None:
    bench = Bench(capacity=4)
    async with sdk_of(bench) as client:
        create = client.chat.completions.create
        with pytest.raises(openai.NotFoundError) as missing:
            await create(model="x", messages=[HI])
        assert missing.value.code == "model_not_found"
        bench.compile_error = UnsupportedSchema("format", "/a")
        with pytest.raises(openai.BadRequestError) as bad:
            await create(
                model="demo",
                messages=[HI],
                response_format={"type": "json_object"},
            )
        assert (bad.value.code, bad.value.param) == ("unsupported_schema", "response_format")


async def test_the_sdk_raises_on_a_failure_in_a_stream() -> None:
    bench = answering(b"a", b"b")
    bench.engine.finish_with = "error"
    async with sdk_of(bench) as client:
        stream = await client.chat.completions.create(model="demo", messages=[HI], stream=True)
        with pytest.raises(openai.APIError, match="engine abandoned this answer"):
            async for _ in stream:
                pass


async def test_the_sdk_lists_models() -> None:
    async with sdk_of(Bench()) as client:
        assert [model.id async for model in client.models.list()] == ["demo"]
        assert (await client.models.retrieve("demo")).owned_by == "leapjson"


@pytest.mark.parametrize("path", BODIES)
async def test_leaving_a_stream_aborts_it(path: str) -> None:
    bench = answering(*[b"x"] * 1000)
    bench.engine.pause_at = 3
    body = {**BODIES[path], "stream": True}
    async with (
        bench.running(),
        listening(application(bench)) as url,
        httpx.AsyncClient(base_url=url, timeout=300) as client,
        client.stream("POST", path, json=body) as response,
    ):
        async for line in response.aiter_lines():
            if re.search('"x+"', line):
                break
        await response.aclose()
        await until(lambda: len(bench.engine.aborted) == 1)
        assert bench.admission.live == 0
        await until(lambda: bench.observer.requests)
        assert bench.observer.requests[0].status == 499


async def leave_early(bench: Bench, ready: str) -> None:
    """Send a request over a socket and close it when the engine or the compiler has it."""
    async with listening(application(bench)) as url:
        port = int(url.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps(chat(response_format={"type": "json_object"})).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await until(lambda: bench.engine.added if ready == "engine" else bench.constraints.waiting)
        writer.close()
        await writer.wait_closed()
        await until(lambda: bench.observer.requests)


async def test_leaving_before_a_whole_answer_is_ready_aborts_it() -> None:
    bench = Bench()
    bench.engine.gate.clear()
    async with bench.running():
        await leave_early(bench, "engine")
        await until(lambda: len(bench.engine.aborted) == 1)
        assert [stats.status for stats in bench.observer.requests] == [499]
        assert bench.admission.live == 0


async def test_leaving_while_the_schema_compiles_frees_the_place() -> None:
    async def compile(spec: object, *_: object) -> object:
        return await asyncio.Event().wait()

    bench = Bench(compile=compile)
    async with bench.running():
        await leave_early(bench, "compiler")
        assert bench.engine.added == []
        assert [stats.status for stats in bench.observer.requests] == [499]
        assert bench.admission.live == 0
