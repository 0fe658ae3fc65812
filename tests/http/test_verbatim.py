"""``x-verbatim``: values quoted from the prompt, from the request to the engine's constraint."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.constraint import Compiler
from app.core.constraint import ConstraintState
from app.core.errors import RejectedToken
from app.server.composition import assemble
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from tests.fakes import ByteVocabulary
from tests.server.backend import backend
from tests.serving.fakes import FakeEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"

QUOTE = {"type": "string", "x-verbatim": True, "minLength": 3}


class Served:
    def __init__(self, engine: FakeEngine, client: httpx.AsyncClient) -> None:
        self._engine = engine
        self.client = client

    async def constraint(self, path: str, **body: Any) -> ConstraintState:
        """The start state of the constraint that the engine gets for a request."""
        response = await self.client.post(path, json={"model": "leapjson-demo", **body})
        assert response.status_code == 200, response.text
        request = self._engine.added[-1]
        assert request.constraint is not None
        return request.constraint.start()

    async def refusal(self, path: str, **body: Any) -> dict[str, Any]:
        response = await self.client.post(path, json={"model": "leapjson-demo", **body})
        assert response.status_code == 400, response.text
        error: dict[str, Any] = response.json()["error"]
        return error


@asynccontextmanager
async def served(script: Any = None, **settings: Any) -> AsyncIterator[Served]:
    engine = FakeEngine(script) if script else FakeEngine()
    parts = replace(
        backend(engine),
        compile_target="app.constraint:compile_program",
        link=Compiler(ByteVocabulary()).link,
    )
    assembly = assemble(Settings(compile_workers=1, **settings), parts, Metrics())
    transport = httpx.ASGITransport(assembly.app)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(Path(__file__).parents[2]))  # workers import the code
        async with (
            assembly.app.router.lifespan_context(assembly.app),
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
        ):
            yield Served(engine, client)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Served]:
    async with served() as server:
        yield server


def admits(state: ConstraintState, text: str) -> bool:
    state = state.copy()
    try:
        state.accept_bytes(text.encode())
    except RejectedToken:
        return False
    return state.is_complete


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
    path = "/v1/chat/completions"
    first = await server.constraint(path, **chat(QUOTE, "the cat", "a dog"))
    assert admits(first, '"he ca"')
    assert admits(first, '"a dog"')
    assert not admits(first, '"cata"'), "no quote spans two messages"
    assert not admits(first, '"ca"'), "it is too short"
    second = await server.constraint(path, **chat(QUOTE, 'a "cow"\n'))
    assert admits(second, '"\\"cow\\"\\n"')
    assert not admits(second, '"the cat"')
    exposition = (await server.client.get("/metrics")).text
    assert "leapjson_schema_cache_misses_total 1.0" in exposition, "the schema is compiled once"

    system = await server.constraint(
        path, **chat(QUOTE, "be brief", "the cat", roles="system user")
    )
    assert not admits(system, '"brief"'), "system messages are not quoted"

    refused = await server.refusal(path, **chat(QUOTE, "no"))
    assert refused["code"] == "unsatisfiable_schema"
    assert "the user's text contains no quote of at least 3 characters" in refused["message"]
    nullable = await server.constraint(path, **chat({"anyOf": [QUOTE, {"type": "null"}]}, "no"))
    assert nullable.forced() == b"null"


async def test_a_part_of_the_prompt_is_named_as_its_api_has_it() -> None:
    async with served(max_verbatim_characters=100) as server:
        path = "/v1/chat/completions"
        part = {**QUOTE, "x-verbatim": "messages[1]"}
        named = await server.constraint(path, **chat(part, "cats", "dogs", "cows"))
        assert admits(named, '"dogs"')
        assert not admits(named, '"cats"')
        last = {**QUOTE, "x-verbatim": {"part": "messages[-1]", "words": True}}
        words = await server.constraint(path, **chat(last, "cats", "big dogs bark"))
        assert admits(words, '"dogs bark"')
        assert not admits(words, '"dogs b"')

        refused = await server.refusal(path, **chat(part, "cats"))
        assert refused["param"] == "response_format"
        assert "'messages[1]'" in refused["message"]
        assert "messages[0]" in refused["message"]
        open_bracket = {**QUOTE, "x-verbatim": "messages[-12"}
        refused = await server.refusal(path, **chat(open_bracket, "cats"))
        assert "'messages[-12'" in refused["message"]
        long = await server.refusal(path, **chat(QUOTE, "x" * 101))
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
    body = {"messages": [{"role": "user", "content": "the cat"}], "tools": [tool]}
    state = await server.constraint(
        "/v1/chat/completions", **body, tool_choice="required", parallel_tool_calls=False
    )
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
        response = await server.client.post(CHAT, json={"model": "leapjson-demo", **body})
        assert response.json()["choices"][0]["spans"] == expected
        streamed = await server.client.post(
            CHAT, json={"model": "leapjson-demo", "stream": True, **body}
        )
        events = [json.loads(line[6:]) for line in streamed.text.split("\n\n")[:-2]]
        assert events[-1]["choices"][0]["spans"] == expected
        assert all("spans" not in event["choices"][0] for event in events[:-1])
        del body["spans"]
        response = await server.client.post(CHAT, json={"model": "leapjson-demo", **body})
        assert "spans" not in response.json()["choices"][0]

        text_format = {"type": "json_schema", "name": "quote", "schema": schema}
        body = {"input": "thé 😀 concat é cat", "text": {"format": text_format}, "spans": True}
        response = await server.client.post(
            "/v1/responses", json={"model": "leapjson-demo", **body}
        )
        first, last = response.json()["spans"]
        assert first == {**expected[0], "part": "input"}
        assert last["pointer"] == "/word"


async def test_arguments_have_spans_too_and_confidence_joins_them() -> None:
    parameters = {"type": "object", "properties": {"quote": QUOTE}, "required": ["quote"]}
    tool = {"type": "function", "function": {"name": "cite", "parameters": parameters}}
    answer = b'{"tool_calls": [{"name": "cite", "arguments": {"quote": "the cat"}}]}'
    body = {
        "model": "leapjson-demo",
        "messages": [{"role": "user", "content": "see the cat"}],
        "tools": [tool],
        "tool_choice": "required",
    }
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
