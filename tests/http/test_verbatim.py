"""``x-verbatim``: values quoted from the prompt, from the request to the engine's constraint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.http.compiled import MODEL, Served, admits, served
from tests.http.harness import CHAT, events

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUOTE = {"type": "string", "x-verbatim": True, "minLength": 3}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Served]:
    async with served() as server:
        yield server


def chat(schema: Any, *texts: str, roles: str = "user") -> dict[str, Any]:
    json_schema = {"name": "quote", "schema": schema}
    return {
        "messages": [
            {"role": role, "content": text}
            for role, text in zip(roles.split() * len(texts), texts, strict=False)
        ],
        "response_format": {"type": "json_schema", "json_schema": json_schema},
    }


async def test_values_stand_in_the_user_s_messages_of_each_request(server: Served) -> None:
    first = await server.constraint(CHAT, **chat(QUOTE, "the cat", "a dog"))
    assert admits(first, '"he ca"')
    assert admits(first, '"a dog"')
    assert not admits(first, '"cata"'), "no quote spans two messages"
    assert not admits(first, '"ca"'), "it is too short"
    second = await server.constraint(CHAT, **chat(QUOTE, 'a "cow"\n'))
    assert admits(second, '"\\"cow\\"\\n"')
    assert not admits(second, '"the cat"')
    exposition = (await server.client.get("/metrics")).text
    assert "leapjson_schema_cache_misses_total 1.0" in exposition, "the schema is compiled once"

    two = chat(QUOTE, "be brief", "the cat", roles="system user")
    system = await server.constraint(CHAT, **two)
    assert not admits(system, '"brief"'), "system messages are not quoted"

    refused = await server.refusal(CHAT, **chat(QUOTE, "no"))
    assert refused["code"] == "unsatisfiable_schema"
    assert "the user's text contains no quote of at least 3 characters" in refused["message"]
    nullable = await server.constraint(CHAT, **chat({"anyOf": [QUOTE, {"type": "null"}]}, "no"))
    assert nullable.forced() == b"null"


async def test_a_part_of_the_prompt_is_named_as_its_api_has_it() -> None:
    async with served(max_verbatim_characters=100) as server:
        part = {**QUOTE, "x-verbatim": "messages[1]"}
        named = await server.constraint(CHAT, **chat(part, "cats", "dogs", "cows"))
        assert admits(named, '"dogs"')
        assert not admits(named, '"cats"')
        last = {**QUOTE, "x-verbatim": {"part": "messages[-1]", "words": True}}
        words = await server.constraint(CHAT, **chat(last, "cats", "big dogs bark"))
        assert admits(words, '"dogs bark"')
        assert not admits(words, '"dogs b"')

        refused = await server.refusal(CHAT, **chat(part, "cats"))
        assert refused["param"] == "response_format"
        assert "'messages[1]'" in refused["message"]
        assert "messages[0]" in refused["message"]
        open_bracket = {**QUOTE, "x-verbatim": "messages[-12"}
        refused = await server.refusal(CHAT, **chat(open_bracket, "cats"))
        assert "'messages[-12'" in refused["message"]
        long = await server.refusal(CHAT, **chat(QUOTE, "x" * 101))
        assert (long["param"], "the limit is 100" in long["message"]) == ("messages", True)


async def test_responses_and_completions_have_their_texts_too(server: Served) -> None:
    text_format = {"type": "json_schema", "name": "quote", "schema": QUOTE}
    body = {"input": "the cat", "instructions": "a dog", "text": {"format": text_format}}
    state = await server.constraint("/v1/responses", **body)
    assert admits(state, '"cat"')
    assert not admits(state, '"dog"')
    part = {**text_format, "schema": {**QUOTE, "x-verbatim": "instructions"}}
    state = await server.constraint("/v1/responses", **{**body, "text": {"format": part}})
    assert admits(state, '"dog"')
    items = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    part = {**text_format, "schema": {**QUOTE, "x-verbatim": "input[1]"}}
    state = await server.constraint("/v1/responses", input=items, text={"format": part})
    assert admits(state, '"two"')
    assert not admits(state, '"one"')

    path, schema = "/v1/completions", {"guided_json": QUOTE}
    state = await server.constraint(path, prompt="a cow: ", **schema)
    assert admits(state, '"cow"')
    refused = await server.refusal(path, prompt=[100, 101], **schema)
    assert "as text" in refused["message"]


async def test_arguments_of_calls_stand_in_the_prompt(server: Served) -> None:
    parameters = {"type": "object", "properties": {"quote": QUOTE}, "required": ["quote"]}
    tool = {"type": "function", "function": {"name": "cite", "parameters": parameters}}
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "the cat"}], "tools": [tool]}
    body |= {"tool_choice": "required", "parallel_tool_calls": False}
    state = await server.constraint(CHAT, **body)
    begin = state.forced().decode()
    assert begin.endswith('"quote": "')
    end = '"}}]}'
    assert admits(state, f"{begin}the cat{end}")
    assert not admits(state, f"{begin}the dog{end}")


def hello(answer: bytes) -> Any:
    return lambda request: [answer[:9], answer[9:]]


async def test_the_answer_says_where_its_values_stand() -> None:
    schema = {
        "type": "object",
        "properties": {
            "quotes": {"type": "array", "items": {"$ref": "#/$defs/quote"}},
            "free": {"type": "string"},
            "word": {"anyOf": [{"type": "string", "x-verbatim": "words"}, {"type": "null"}]},
        },
        "required": ["quotes", "free", "word"],
        "$defs": {"quote": QUOTE},
    }
    answer = '{"quotes": ["é cat", "dog\\n"], "free": "cat", "word": "cat"}'
    body = {**chat(schema, "thé 😀 concat é cat", "a dog\n"), "spans": True}
    expected = [
        {"pointer": "/quotes/0", "part": "messages[0]", "start": 13, "end": 18},
        {"pointer": "/quotes/1", "part": "messages[1]", "start": 2, "end": 6},
        {"pointer": "/word", "part": "messages[0]", "start": 15, "end": 18},
    ]
    async with served(hello(answer.encode())) as server:
        response = await server.client.post(CHAT, json=MODEL | body)
        assert response.json()["choices"][0]["spans"] == expected
        streamed = await server.client.post(CHAT, json=MODEL | body | {"stream": True})
        *before, last, _ = events(streamed.text)
        assert last["choices"][0]["spans"] == expected
        assert all("spans" not in event["choices"][0] for event in before)
        del body["spans"]
        response = await server.client.post(CHAT, json=MODEL | body)
        assert "spans" not in response.json()["choices"][0]

        text_format = {"type": "json_schema", "name": "quote", "schema": schema}
        body = {"input": "thé 😀 concat é cat", "text": {"format": text_format}, "spans": True}
        response = await server.client.post("/v1/responses", json=MODEL | body)
        first, last = response.json()["spans"]
        assert first == {**expected[0], "part": "input"}
        assert last["pointer"] == "/word"


async def test_arguments_have_spans_too_and_confidence_joins_them() -> None:
    parameters = {"type": "object", "properties": {"quote": QUOTE}, "required": ["quote"]}
    tool = {"type": "function", "function": {"name": "cite", "parameters": parameters}}
    answer = b'{"tool_calls": [{"name": "cite", "arguments": {"quote": "the cat"}}]}'
    messages = [{"role": "user", "content": "see the cat"}]
    body = MODEL | {"messages": messages, "tools": [tool], "tool_choice": "required"}
    place = {"part": "messages[0]", "start": 4, "end": 11}
    async with served(hello(answer)) as server:
        response = await server.client.post(CHAT, json={**body, "spans": True})
        (choice,) = response.json()["choices"]
        assert choice["spans"] == [{"tool_call": 0, "pointer": "/quote", **place}]
        response = await server.client.post(CHAT, json={**body, "confidence": True})
        (choice,) = response.json()["choices"]
        assert "spans" not in choice
        told = {entry["pointer"]: entry.get("span") for entry in choice["confidence"]}
        assert told["/quote"] == place
