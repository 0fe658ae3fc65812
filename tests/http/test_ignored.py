"""Ignored fields of a request are named in a header of the answer, or refused if configured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from app.http.chat.parse import ChatCompletionRequest
from app.http.completions.parse import CompletionRequest
from app.http.messages.parse import MessagesRequest
from app.http.requests.unsupported import UNSUPPORTED
from app.http.requests.wire import HEADER, Body, Ignored, _declared
from app.http.responses.parse import ResponsesRequest
from tests.http import harness
from tests.http.harness import (
    CHAT,
    COMPLETIONS,
    CONFIG,
    HI,
    MESSAGES,
    RESPONSES,
    application,
    client_of,
    post,
)
from tests.serving.fakes import Bench

COUNT, SCHEMAS = "/v1/messages/count_tokens", "/v1/schemas"

FUNCTION = {"name": "f", "parameters": {"type": "object"}}
BODIES: Mapping[str, Mapping[str, Any]] = {
    **harness.BODIES,
    COUNT: {"model": "demo", "messages": [HI]},
    SCHEMAS: {"schema": {"type": "boolean"}},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [104]},
}
WIRES: tuple[type[Body], ...] = (
    ChatCompletionRequest,
    CompletionRequest,
    ResponsesRequest,
    MessagesRequest,
)
STRICT = replace(CONFIG, unknown_fields="refuse")

EVERYWHERE: list[tuple[str, Any]] = [
    ("store", True),
    ("truncation", "auto"),
    ("vllm_xargs", {"a": 1}),
    ("priority", 3),
    ("provider", {"order": ["a"]}),
    ("unheard_of", [1]),
]
SILENT: list[tuple[str, Any]] = [
    ("rid", "a"),
    ("session_id", "a"),
    ("client_metadata", {"a": "b"}),
    ("cache_prompt", False),
    ("prompt_cache_key", "a"),
    ("user", "a"),
    ("store", False),
    ("service_tier", "auto"),
    ("truncation", "disabled"),
]
REFUSED: list[tuple[str, Any]] = [
    ("stop_regex", "a+"),
    ("bad_words", ["a"]),
    ("cache_salt", "a"),
    ("mirostat", 2),
    ("prompt_logprobs", 1),
    ("best_of", 2),
    ("format", "json"),
]

LEFT_OUT = [
    (CHAT, {"stream": True, "stream_options": {"include_obfuscation": True}},
     "stream_options.include_obfuscation"),
    (CHAT, {"verbosity": "low"}, "verbosity"),
    (CHAT, {"tools": [{"type": "function", "function": FUNCTION, "cache_control": {}}]},
     "tools[].cache_control"),
    (CHAT, {"tools": [{"type": "function", "function": {**FUNCTION, "returns": {}}}]},
     "tools[].function.returns"),
    (CHAT, {"tools": [{"type": "web_search"}]}, "tools[].type=web_search"),
    (CHAT, {"response_format": {"type": "regex", "regex": "a", "whitespace": "compact"}},
     "response_format.whitespace"),
    (CHAT, {"structured_outputs": {"regex": "a", "backend": "x"}}, "structured_outputs.backend"),
    (CHAT, {"guided_decoding_backend": "outlines"}, "guided_decoding_backend"),
    (CHAT, {"structural_tag": {"format": {"type": "any_text", "colour": "red"}}},
     "structural_tag.format.colour"),
    (COMPLETIONS, {"stream": True, "stream_options": {"include_obfuscation": True}},
     "stream_options.include_obfuscation"),
    (RESPONSES, {"stream": True, "stream_options": {"include_obfuscation": True}},
     "stream_options.include_obfuscation"),
    (RESPONSES, {"text": {"verbosity": "low"}}, "text.verbosity"),
    (RESPONSES, {"include": ["file_search_call.results"]}, "include[]=file_search_call.results"),
    (RESPONSES, {"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
    (RESPONSES, {"reasoning": {"generate_summary": "concise"}}, "reasoning.generate_summary"),
    (RESPONSES, {"input": [{**HI, "weight": 1}]}, "input[].weight"),
    (RESPONSES, {"tools": [{"type": "function", **FUNCTION}, {"type": "web_search", "a": 1}]},
     "tools[].type=web_search"),
    (MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "w"}]},
     "tools[].type=web_search_20250305"),
    (MESSAGES, {"messages": [{**HI, "id": "x"}]}, "messages[].id"),
    (COUNT, {"max_tokens": 5}, "max_tokens"),
    (SCHEMAS, {"id": "x"}, "id"),
    (SCHEMAS, {"schema": None, "response_format": {
        "type": "json_schema", "json_schema": {"name": "a", "schema": {}, "colour": 1}}},
     "response_format.json_schema.colour"),
    ("/tokenize", {"temperature": 1}, "temperature"),
    ("/detokenize", {"colour": 1}, "colour"),
    *[(path, {name: value}, name) for path in harness.BODIES for name, value in EVERYWHERE],
]  # fmt: skip
NOTES = [
    (CHAT, {"messages": [{**HI, "content": [{"type": "text", "text": "hi", "cache_control": {}}]}]},
     "messages[].content[].cache_control"),
    (CHAT, {"messages": [HI, {"role": "assistant", "content": "x", "notes": 1}, HI]},
     "messages[].notes"),
    (MESSAGES, {"system": [{"type": "text", "text": "x", "cache_control": {}}]},
     "system[].cache_control"),
]  # fmt: skip


def body_of(path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    body = {**BODIES[path], **fields}
    return {name: value for name, value in body.items() if name != "schema" or value is not None}


@pytest.mark.parametrize(("path", "fields", "name"), LEFT_OUT, ids=str)
async def test_a_field_without_effect_is_ignored_and_named_or_refused_if_configured(
    path: str, fields: Mapping[str, Any], name: str
) -> None:
    body = body_of(path, fields)
    async with client_of(Bench()) as client:
        answer = await client.post(path, json=body)
        plain = await client.post(path, json=BODIES[path])
    assert answer.status_code == 200, answer.text
    assert answer.headers[HEADER] == name
    assert HEADER not in plain.headers
    refusal = await post(Bench(), path, body, 400, STRICT)
    assert HEADER not in refusal.headers


@pytest.mark.parametrize(("path", "fields", "name"), NOTES, ids=str)
async def test_notes_of_clients_in_messages_are_named_and_never_refused(
    path: str, fields: Mapping[str, Any], name: str
) -> None:
    for config in (CONFIG, STRICT):
        answer = await post(Bench(), path, body_of(path, fields), config=config)
        assert answer.headers[HEADER] == name


@pytest.mark.parametrize("path", harness.BODIES)
async def test_every_api_treats_a_field_alike(path: str) -> None:
    async with client_of(Bench(), STRICT) as client:
        for name, value in SILENT:
            answer = await client.post(path, json=body_of(path, {name: value}))
            assert (answer.status_code, HEADER in answer.headers) == (200, False), answer.text
    async with client_of(Bench()) as client:
        for name, value in REFUSED:
            answer = await client.post(path, json=body_of(path, {name: value}))
            assert answer.status_code == 400, name
            assert answer.json()["error"]["param"] == name


def test_a_supported_field_is_not_silently_ignored_by_another_api() -> None:
    harmless = {"include", "max_tool_calls", "parallel_tool_calls", "stream_options", "n_predict"}
    harmless |= {"store", "context_management"}  # they store answers, or shorten long prompts
    acted_on = set().union(*map(_declared, WIRES)) - harmless
    for wire in WIRES:
        refused = {name for name, field in wire.unsupported.items() if field.instead is not None}
        assert acted_on - _declared(wire) - wire.no_effect - refused == set(), wire


def test_no_field_is_both_acted_on_and_not() -> None:
    for wire in WIRES:
        assert _declared(wire) & set(wire.unsupported) == set(), wire


async def test_a_stream_names_them_too() -> None:
    body = body_of(CHAT, {"stream": True, "colour": 1, "a": 2})
    answer = await post(Bench(), CHAT, body)
    assert answer.headers[HEADER] == "colour, a"
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_names_cannot_write_headers_of_their_own() -> None:
    answer = await post(Bench(), CHAT, body_of(CHAT, {"a\r\nb: c, d": 1, "ä": 1}))
    assert answer.headers[HEADER] == "a%0D%0Ab:%20c%2C%20d, %C3%A4"


@pytest.mark.parametrize(
    "fields",
    [
        {f"{number}": 1 for number in range(90_000)},
        {"stream": True, "stream_options": {f"\U0001f600{n}" * 99: 1 for n in range(900)}},
        {"x" * 100_000: 1},
    ],
    ids=["top", "inside", "long"],
)
async def test_a_header_has_a_bound(fields: Mapping[str, Any]) -> None:
    config = replace(CONFIG, max_body_bytes=10**7)
    answer = await post(Bench(), CHAT, body_of(CHAT, fields), config=config)
    assert 60 < len(answer.headers[HEADER]) < 1200 or "0, 1, 2" in answer.headers[HEADER]
    strict = replace(config, unknown_fields="refuse")
    refusal = await post(Bench(), CHAT, body_of(CHAT, fields), 400, strict)
    assert len(refusal.text) < 10_000


async def test_the_document_of_a_server_that_refuses_says_so() -> None:
    body = body_of(CHAT, {"colour": 1})
    noted = body_of(CHAT, {"messages": [{**HI, "notes": 1}]})
    for config, taken in ((CONFIG, True), (STRICT, False)):
        document = application(Bench(), config).openapi()
        schema = document["paths"][CHAT]["post"]["requestBody"]["content"]["application/json"]
        validator = jsonschema.Draft202012Validator(
            {**document, "$ref": "#/x", "x": schema["schema"]}
        )
        assert validator.is_valid(body) == taken
        assert validator.is_valid(noted)


def test_an_index_is_not_part_of_a_name() -> None:
    ignored = Ignored()
    for number in range(100):
        ignored.leave_out(f"tools[{number}].cache_control")
    assert ignored.headers == {HEADER: "tools[].cache_control"}


def test_the_page_lists_what_is_refused() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/requests.md").read_text(encoding="utf-8")
    refused = {name for name, field in UNSUPPORTED.items() if field.instead is not None}
    assert {name for name in refused if not re.search(rf"`{name}\b", page)} == set()
