"""``stream_options.fields``: complete values beside the deltas, in every API and OpenAI's SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.answer.test_fields import values
from tests.http.harness import (
    BODIES,
    CHAT,
    COMPLETIONS,
    HI,
    MESSAGES,
    client_of,
    sdk_of,
    streamed,
    writing,
)
from tests.http.responses import CALL, CITY, PARIS, WITH_TOOLS, events_of
from tests.serving.fakes import Bench

ANSWER = '{\n  "items": [\n    {"a": 1.25, "b": "x\\ny"},\n    null\n  ],\n  "n": 12\n}'
EXPECTED = [{"pointer": pointer, "value": value} for pointer, value in values(json.loads(ANSWER))]
OF_CALL = [
    {"tool_call": 0, "pointer": "/city", "value": "Paris"},
    {"tool_call": 0, "pointer": "", "value": {"city": "Paris"}},
]
FIELDS: dict[str, Any] = {"stream_options": {"fields": True}}
JSON = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": CITY}}


def whole(chunks: list[Any]) -> Iterator[Any]:
    for chunk in chunks:
        for choice in chunk["choices"]:
            yield from choice.get("fields", ())


@pytest.mark.parametrize("size", [1, 3, 200])
async def test_chat_tells_each_value_with_the_text_that_made_it_whole(size: int) -> None:
    chunks = await streamed(writing(ANSWER, size=size), CHAT, **FIELDS, response_format=JSON)
    assert list(whole(chunks)) == EXPECTED
    text = ""
    for chunk in chunks:
        (choice,) = chunk["choices"]
        text += choice["delta"].get("content") or ""
        for entry in choice.get("fields", ()):
            if not isinstance(entry["value"], dict | list):
                assert json.dumps(entry["value"]) in text
    assert text == ANSWER


async def test_each_of_several_choices_has_its_own() -> None:
    chunks = await streamed(writing(ANSWER), CHAT, **FIELDS, response_format=JSON, n=2)
    for index in range(2):
        own = [{**each, "choices": each["choices"][:1]} for each in chunks]
        assert [
            entry
            for chunk in own
            for choice in chunk["choices"]
            if choice["index"] == index
            for entry in choice.get("fields", ())
        ] == EXPECTED


async def test_chat_tells_arguments_with_the_index_of_their_call() -> None:
    chunks = await streamed(writing(CALL, WITH_TOOLS), CHAT, **FIELDS, tools=[TOOL])
    assert list(whole(chunks)) == OF_CALL


async def test_completions_tell_them_too() -> None:
    chunks = await streamed(
        writing(ANSWER), COMPLETIONS, **FIELDS, response_format=JSON, max_tokens=99
    )
    assert list(whole(chunks)) == EXPECTED


async def test_responses_tell_them_with_deltas_of_no_text() -> None:
    fields = {"stream_options": {"fields": True}}
    text = {"format": {"type": "json_schema", "name": "x", "schema": {}}}
    got = await events_of(writing(ANSWER), text=text, **fields)
    telling = [each for each in got if "fields" in each]
    assert [entry for each in telling for entry in each["fields"]] == EXPECTED
    assert {(each["type"], each["delta"]) for each in telling} == {
        ("response.output_text.delta", "")
    }
    assert [each["sequence_number"] for each in got] == list(range(len(got)))
    assert got[-1]["response"]["output"][0]["content"][0]["text"] == ANSWER
    tool = {"type": "function", "name": "weather", "parameters": CITY}
    got = await events_of(writing(CALL, WITH_TOOLS), tools=[tool], **fields)
    telling = [each for each in got if "fields" in each]
    assert [entry for each in telling for entry in each["fields"]] == OF_CALL
    assert {each["type"] for each in telling} == {"response.function_call_arguments.delta"}
    assert got[-1]["response"]["output"][0]["arguments"] == PARIS


async def test_messages_tell_them_with_deltas_of_no_text() -> None:
    format = {"type": "json_schema", "schema": {}}
    got = await streamed(
        writing(ANSWER), MESSAGES, **FIELDS, output_config={"format": format}, max_tokens=99
    )
    assert [entry for each in got for entry in each.get("fields", ())] == EXPECTED
    tool = {"name": "weather", "input_schema": CITY}
    got = await streamed(writing(CALL, WITH_TOOLS), MESSAGES, **FIELDS, tools=[tool], max_tokens=99)
    assert [entry for each in got for entry in each.get("fields", ())] == OF_CALL
    kinds = {each["delta"]["type"] for each in got if "fields" in each}
    assert kinds == {"input_json_delta"}


@pytest.mark.parametrize("path", BODIES)
async def test_free_text_has_no_values_to_tell(path: str) -> None:
    async with client_of(Bench()) as client:
        answer = await client.post(path, json={**BODIES[path], **FIELDS, "stream": True})
        unasked = await client.post(path, json={**BODIES[path], "stream_options": {"fields": True}})
    assert (answer.status_code, unasked.status_code) == (400, 400)
    assert answer.json()["error"]["param"] == "stream_options.fields"
    assert unasked.json()["error"]["param"] == "stream_options"


async def test_openais_client_hands_them_on() -> None:
    extra = {"stream_options": {"fields": True}}
    async with sdk_of(writing(ANSWER)) as client:
        found: list[Any] = []
        stream = await client.chat.completions.create(
            model="demo",
            messages=[HI],
            stream=True,
            response_format=cast(Any, JSON),
            extra_body=extra,
        )
        async for chunk in stream:
            found += (chunk.choices[0].model_extra or {}).get("fields", ())
        assert found == EXPECTED
        found = []
        async with client.chat.completions.stream(
            model="demo",
            messages=[HI],
            response_format=cast(Any, JSON),
            extra_body=extra,
        ) as helper:
            async for event in helper:
                if event.type == "chunk":
                    found += (event.chunk.choices[0].model_extra or {}).get("fields", ())
            final = await helper.get_final_completion()
        assert found == EXPECTED
        assert final.choices[0].message.content == ANSWER
        found = []
        told = await client.responses.create(
            model="demo",
            input="hi",
            stream=True,
            text=cast(Any, {"format": {"type": "json_schema", "name": "x", "schema": {}}}),
            extra_body=extra,
        )
        async for each in told:
            found += (each.model_extra or {}).get("fields", ())
        assert found == EXPECTED
