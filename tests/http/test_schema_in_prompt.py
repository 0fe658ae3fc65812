"""``schema_in_prompt``: when the prompt has the schema, and when it is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.http.harness import CHAT, CONFIG, MESSAGES, RESPONSES, chat, post
from tests.serving.fakes import PLAIN, Bench

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "description": "the letter"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "letter", "schema": SCHEMA}}
TEXT_FORMAT = {"format": {"type": "json_schema", "name": "letter", "schema": SCHEMA}}
OUTPUT = {"format": {"type": "json_schema", "schema": SCHEMA}}
HEADER = "x-leapjson-schema-in-prompt"
USER = [{"role": "user", "content": "Hi"}]


async def asked(
    bench: Bench, body: dict[str, Any], path: str = CHAT, server: Any = "auto", status: int = 200
) -> httpx.Response:
    return await post(bench, path, body, status, replace(CONFIG, schema_in_prompt=server))


def prompt_of(bench: Bench) -> str:
    """The contents of the messages that the template was given last."""
    return "".join(message["content"] for message in bench.tokenizer.seen[-1])


def untaught() -> Bench:
    return Bench(chat_format=replace(PLAIN, reads_schemas=False))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, chat(response_format=FORMAT)),
        (RESPONSES, {"model": "demo", "input": "Hi", "text": TEXT_FORMAT}),
        (
            MESSAGES,
            {"model": "demo", "max_tokens": 9, "messages": USER, "output_config": OUTPUT},
        ),
    ],
)
async def test_a_format_is_told_in_every_api(path: str, body: dict[str, Any]) -> None:
    bench = Bench()
    response = await asked(bench, body, path)
    assert response.headers[HEADER] == "told"
    assert '"description":"the letter"' in prompt_of(bench)
    said = await asked(bench, body | {"schema_in_prompt": False}, path)
    assert HEADER not in said.headers
    assert "the letter" not in prompt_of(bench)
    await asked(bench, body | {"schema_in_prompt": "yes"}, path, status=400)


async def test_its_tokens_are_counted() -> None:
    bench = Bench()
    with_it = (await asked(bench, chat(response_format=FORMAT))).json()["usage"]
    without = (await asked(bench, chat())).json()["usage"]
    text = bench.tokenizer.seen[0][0]["content"]
    assert with_it["prompt_tokens"] - without["prompt_tokens"] == len(text.encode())


async def test_messages_count_them_ahead() -> None:
    body = {"model": "demo", "messages": USER, "output_config": OUTPUT}
    path = "/v1/messages/count_tokens"
    counted = (await asked(Bench(), body, path)).json()["input_tokens"]
    less = (await asked(Bench(), body | {"schema_in_prompt": False}, path)).json()["input_tokens"]
    assert counted > less + 50


@pytest.mark.parametrize(
    ("fields", "server", "bench", "told"),
    [
        ({"guided_json": SCHEMA}, "auto", Bench, False),
        ({"guided_json": SCHEMA}, "true", Bench, True),
        ({"guided_json": SCHEMA, "schema_in_prompt": True}, "auto", Bench, True),
        ({"guided_json": SCHEMA, "schema_in_prompt": "auto"}, "true", Bench, False),
        ({"response_format": FORMAT}, "false", Bench, False),
        ({"response_format": FORMAT}, "auto", untaught, False),
        ({"response_format": FORMAT}, "true", untaught, True),
        ({"response_format": FORMAT, "schema_in_prompt": True}, "false", untaught, True),
        ({"response_format": {"type": "json_object"}}, "true", Bench, False),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, "auto", Bench, True),
    ],
)
async def test_when_the_schema_is_shown(fields: Any, server: str, bench: Any, told: bool) -> None:
    here = bench()
    response = await asked(here, chat(**fields), server=server)
    assert (HEADER in response.headers) is told
    assert ("the letter" in prompt_of(here)) is told


async def test_schema_in_prompt_without_a_schema_is_refused() -> None:
    response = await asked(Bench(), chat(schema_in_prompt=True), status=400)
    assert response.json()["error"]["param"] == "schema_in_prompt"


async def test_a_schema_that_is_too_long_is_left_out_and_the_header_says_so() -> None:
    long = {**SCHEMA, "description": "x" * 16_384}
    format = {"type": "json_schema", "json_schema": {"name": "letter", "schema": long}}
    bench = Bench(context=100_000)
    response = await asked(bench, chat(response_format=format))
    assert response.headers[HEADER] == "left out: too long"
    assert "the letter" not in prompt_of(bench)
    told = await asked(bench, chat(response_format=format, schema_in_prompt=True))
    assert told.headers[HEADER] == "told"
    assert "the letter" in prompt_of(bench)


async def test_where_the_context_has_no_room_it_is_left_out_unless_it_was_asked_for() -> None:
    bench = Bench(context=200, clip_max_tokens=False)
    body = chat(response_format=FORMAT, max_tokens=100)
    response = await asked(bench, body)
    assert response.headers[HEADER] == "left out: too long"
    assert "the letter" not in prompt_of(bench)
    refused = await asked(bench, body | {"schema_in_prompt": True}, status=400)
    assert refused.json()["error"]["code"] == "context_length_exceeded"


async def test_a_max_tokens_that_is_clipped_takes_it_no_room() -> None:
    bench = Bench(context=1000)
    response = await asked(bench, chat(response_format=FORMAT, max_tokens=32_000))
    assert response.headers[HEADER] == "told"
    assert bench.engine.added[0].max_tokens == 1000 - len(bench.engine.added[0].prompt)


async def test_the_schema_in_the_prompt_has_no_x_verbatim() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "x-verbatim": "messages[0]"}},
    }
    format = {"type": "json_schema", "json_schema": {"name": "letter", "schema": schema}}
    bench = Bench()
    await asked(bench, chat(response_format=format))
    (request,) = bench.engine.added
    assert request.prompt
    assert "x-verbatim" not in prompt_of(bench)
