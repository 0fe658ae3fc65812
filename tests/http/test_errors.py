from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from app.core.errors import (
    ConstraintTooComplex,
    InvalidSchema,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from app.core.request import ServiceTier
from app.http.keys import ApiKeys
from tests.http.harness import (
    BODIES,
    CHAT,
    CONFIG,
    RESPONSES,
    chat,
    client_of,
    error_of,
    post,
    refusal,
)
from tests.serving.fakes import Bench, ask, until


@pytest.mark.parametrize(
    ("fields", "param", "reason"),
    [
        ({"temperature": 3}, "temperature", "less than or equal to 2"),
        ({"temperature": "hot"}, "temperature", "valid number"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"n": 5}, "n", "the limit is 4"),
        ({"n": True}, "n", "valid integer"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"max_tokens": 1.5}, "max_tokens", "valid integer"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "differ"),
        ({"top_p": -1}, "top_p", "greater than or equal to 0"),
        ({"top_logprobs": 2}, "top_logprobs", "requires logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "less than or equal to 20"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x", "valid integer"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "less than or equal to 100"),
        ({"logit_bias": {"5000": 1}}, "logit_bias", "the token id 5000"),
        ({"stop": ""}, "stop", "empty string"),
        ({"stop": ["a", "b" * 1025]}, "stop", "more than 1024 characters"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
            "messages[0].content[0].text",
            "valid string",
        ),
        ({"stop": ["a"] * 17}, "stop", "at most 16 items"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "requires stream"),
        ({"seed": 2**64}, "seed", "less than"),
        ({"messages": []}, "messages", "at least 1 item"),
        ({"messages": [{"role": "user", "content": "x"}] * 9}, "messages", "the limit is 8"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "Missing required parameter"),
        ({"messages": [{"role": "x", "content": ""}]}, "messages[0].role", "'system'"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}
                ]
            },
            "messages[0].content[0]",
            "parts of type 'image_url' are not supported",
        ),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}]},
            "messages[0].tool_calls[0].function",
            "Missing required parameter",
        ),
        ({"messages": [{"role": "user", "content": "x" * 2000}]}, "messages", "2000 tokens in the"),
        ({"response_format": {"type": "xml"}}, "response_format", "xml"),
        ({"response_format": {"type": "regex"}}, "response_format.pattern", "Missing required"),
        (
            {"response_format": {"type": "choice", "choices": []}},
            "response_format.choices",
            "at least 1 item",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "needs either json_schema or schema_id",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            "response_format.json_schema.schema",
            "Missing required",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a b", "schema": {}},
                }
            },
            "response_format.json_schema.name",
            "match pattern",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {}},
                    "whitespace": "indent:17",
                }
            },
            "response_format.whitespace",
            "spaced|compact|flexible|indent:",
        ),
        (
            {"response_format": {"type": "json_object", "whitespace": 2}},
            "response_format.whitespace",
            "valid string",
        ),
        ({"on_budget": "panic"}, "on_budget", "'finish' or 'truncate'"),
        ({"stream_options": True}, "stream_options", "stream_options: must be an object"),
    ],
)
async def test_a_bad_field_is_400_with_its_name_and_the_reason(
    fields: dict[str, Any], param: str, reason: str
) -> None:
    error = await refusal(CHAT, chat(**fields))
    assert error["param"] == param
    assert reason in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("function_call", "auto"),
        ("audio", {"voice": "x"}),
        ("modalities", ["text", "audio"]),
        ("web_search_options", {}),
        ("use_beam_search", True),
        ("echo", True),
        ("bad_words", ["x"]),
        ("prompt_logprobs", 0),
        ("chat_template", "{{ x }}"),
    ],
)
async def test_a_known_field_that_is_not_served_is_400_with_its_name(
    field: str, value: Any
) -> None:
    error = await refusal(CHAT, chat(**{field: value}))
    assert error["param"] == field
    assert f"{field} is not supported" in error["message"]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InvalidSchema("type is 7", pointer="/a"), "invalid_schema", "(at /a)"),
        (
            UnsupportedSchema("format", "/properties/x"),
            "unsupported_schema",
            "'format' at /properties/x",
        ),
        (UnsatisfiableSchema(), "unsatisfiable_schema", "no value satisfies"),
        (ConstraintTooComplex("time: more than 10 s"), "schema_too_complex", "more than 10 s"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_bad_schema_is_400_before_anything_is_streamed(
    error: Any, code: str, message: str, stream: bool
) -> None:
    bench = Bench()
    bench.compile_error = error
    async with client_of(bench) as client:
        body = chat(stream=stream, response_format={"type": "json_object"})
        got = error_of(await client.post(CHAT, json=body), 400)
    assert (got["code"], got["param"]) == (code, "response_format")
    assert message in got["message"]


async def test_an_unknown_model_is_404() -> None:
    error = await refusal(CHAT, chat(model="gpt-4"), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    async with client_of(Bench()) as client:
        error_of(await client.get("/v1/models/gpt-4"), 404)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "could not be parsed as JSON"),
        (b"{", "could not be parsed as JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"a": NaN}', "could not be parsed as JSON"),
        (b'{"a": 1e999}', "a number that is too large"),
        (b'{"a": "\\ud800"}', "could not be parsed as JSON"),
        (b'{"a": "\xff"}', "could not be parsed as JSON"),
        (b'{"a":' + b"[" * 19 + b"]" * 19 + b"}", "Unrecognized request argument"),
        (b'{"a":' + b"[" * 20 + b"]" * 20 + b"}", "nested deeper than the limit of 20"),
        (b"[" * 9000 + b"]" * 9000, "nested too deeply"),
    ],
)
async def test_a_body_that_is_not_a_json_object_is_400(body: bytes, reason: str) -> None:
    async with client_of(Bench()) as client:
        error = error_of(await client.post(CHAT, content=body), 400)
    if reason != "Unrecognized request argument":
        assert reason in error["message"]


@pytest.mark.parametrize("path", [*BODIES, "/v1/schemas", "/tokenize", "/detokenize"])
async def test_a_body_over_the_limit_is_413_announced_or_not(path: str) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b" " * 1000

    async with client_of(Bench()) as client:
        error = error_of(await client.post(path, content=b" " * 20_001), 413)
        assert "20000 bytes" in error["message"]
        error_of(await client.post(path, content=parts()), 413)


async def test_paths_and_methods_that_are_not_there_have_the_envelope() -> None:
    async with client_of(Bench()) as client:
        error = error_of(await client.get("/v2/nothing"), 404)
        assert error["message"] == "there is nothing at GET /v2/nothing"
        assert "GET" in error_of(await client.get(CHAT), 405)["message"]


@pytest.mark.parametrize("path", [*BODIES, "/v1/schemas"])
async def test_where_nothing_has_room_a_request_is_refused_unread(path: str) -> None:
    bench = Bench(capacity=1)
    async with client_of(bench) as client:
        bench.engine.gate.clear()
        held = await bench.open(ask())
        flex = bench.admission.enter()
        flex.take(1, ServiceTier.FLEX)
        for body in (b"{", b"x" * CONFIG.max_body_bytes * 2):
            response = await client.post(path, content=body)
            error = error_of(response, 429)
            assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
            assert 1 <= int(response.headers["retry-after"]) <= 120
        assert (await client.post("/tokenize", json={"model": "demo", "prompt": "hi"})).is_success
        flex.leave()
        error_of(await client.post(path, content=b"{"), 429)
        held.close()
        assert (await client.post(path, content=b"{")).status_code == 400
    assert bench.observer.rejections == ["queue_full"] * 3


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_flex_has_room_where_the_default_tier_has_none(path: str) -> None:
    bench = Bench(capacity=1)
    bench.held(1, "127.0.0.1")
    said: dict[str, Any] = {**chat(), "max_tokens": 4}
    if path != CHAT:
        said = {"model": "demo", "input": "hi", "max_output_tokens": 16, "store": False}
    async with client_of(bench) as client:
        for tier in ("default", "auto", None):
            error_of(await client.post(path, json=said | {"service_tier": tier}), 429)
        answer = await client.post(path, json=said | {"service_tier": "flex"})
        assert (answer.status_code, answer.json()["service_tier"]) == (200, "flex")
    assert bench.observer.rejections == ["queue_full"] * 3


async def test_a_full_queue_is_only_reported_to_a_client_with_a_valid_key() -> None:
    bench = Bench(capacity=1)
    bench.held(1, "key 1")
    async with client_of(bench, replace(CONFIG, api_keys=ApiKeys(["first"]))) as client:
        error_of(await client.post(CHAT, json=chat()), 401)
        response = await client.post(CHAT, json=chat(), headers={"authorization": "Bearer first"})
        error_of(response, 429)
        assert response.headers["x-request-id"].startswith("req_")


async def test_a_page_may_read_that_there_is_no_room() -> None:
    bench = Bench(capacity=1)
    bench.held(1, "127.0.0.1")
    origin = "https://page.example"
    async with client_of(bench, replace(CONFIG, cors_origins=(origin,))) as client:
        response = await client.post(CHAT, json=chat(), headers={"origin": origin})
    error_of(response, 429)
    assert response.headers["access-control-allow-origin"] == origin
    assert "retry-after" in response.headers["access-control-expose-headers"]


async def test_a_draining_server_is_503_with_retry_after_and_not_ready() -> None:
    bench = Bench()
    async with client_of(bench) as client:
        assert (await client.get("/ready")).status_code == 200
        bench.admission.drain()
        response = await client.post(CHAT, json=chat())
        assert error_of(response, 503)["code"] == "draining"
        assert int(response.headers["retry-after"]) >= 1
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_the_end_of_a_drain_cuts_off_is_503_of_its_own_code(
    stream: bool,
) -> None:
    bench = Bench()
    bench.engine.gate.clear()
    async with client_of(bench) as client:
        asked = asyncio.ensure_future(client.post(CHAT, json=chat(stream=stream)))
        await until(lambda: bench.engine.added)
        bench.admission.drain()
        bench.worker.cut_off()
        response = await asked
        assert error_of(response, 503)["code"] == "shut_down"
        assert response.headers["retry-after"] == "5"
        assert (await client.get("/health")).status_code == 200
    (stats,) = bench.observer.requests
    assert (stats.status, stats.error) == (503, "ShutDown")
    assert bench.observer.rejections == []


async def test_a_dead_engine_is_503_not_ready_and_not_healthy() -> None:
    bench = Bench()
    async with client_of(bench) as client:
        bench.engine.crash = RuntimeError("boom")
        response = await client.post(CHAT, json=chat())
        error = error_of(response, 503)
        assert error["code"] == "engine_died"
        assert response.headers["retry-after"] == "5"
        assert "boom" not in error["message"]
        await until(lambda: not bench.worker.alive)
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 503
        error_of(await client.post(CHAT, json=chat(stream=True)), 503)


async def test_a_body_of_very_many_arrays_is_refused_before_it_is_parsed() -> None:
    many = b"[],"
    body = b'{"model": "demo", "x": [' + many * 150_000 + b"[]]}"
    bench = Bench()
    async with client_of(bench, replace(CONFIG, max_body_bytes=10**6)) as client:
        error = error_of(await client.post(CHAT, content=body), 400)
    assert "more arrays and objects than the limit of 100000" in error["message"]


async def test_brackets_in_text_are_no_arrays() -> None:
    bench = Bench(context=10**6)
    async with client_of(bench, replace(CONFIG, max_body_bytes=10**6)) as client:
        messages = [{"role": "user", "content": '[{"' * 60_000}]
        response = await client.post(CHAT, json=chat(messages=messages))
    assert response.status_code == 200, response.text


async def test_json_that_is_text_in_the_body_has_the_same_limit() -> None:
    text = '{"x": [' + "[]," * 150_000 + "[]]}"
    async with client_of(Bench(), replace(CONFIG, max_body_bytes=10**6)) as client:
        error = error_of(await client.post(CHAT, json=chat(guided_json=text)), 400)
    assert error["param"] == "guided_json"
    assert "more arrays and objects than the limit of 100000" in error["message"]


async def test_a_body_of_very_many_members_is_refused_before_it_is_parsed() -> None:
    bench = Bench()
    async with client_of(bench, replace(CONFIG, max_body_bytes=10**7)) as client:
        schema = {"properties": dict.fromkeys(map(str, range(200_001)), True)}
        error = error_of(await client.post(CHAT, json=chat(guided_json=schema)), 400)
    assert "more members of objects than the limit of 200000" in error["message"]


async def test_a_compressed_body_is_refused_by_its_coding() -> None:
    bench = Bench()
    body, headers = gzip.compress(json.dumps(chat()).encode()), {"content-encoding": "gzip"}
    async with client_of(bench) as client:
        error = error_of(await client.post(CHAT, content=body, headers=headers), 400)
    assert "content-encoding 'gzip'" in error["message"]


async def test_text_without_an_end_is_refused_in_linear_time() -> None:
    body = b'{"model": "demo", "x": ' + b"[" * 100_001 + b'"' + rb"\"" * 400_000
    bench = Bench()
    async with client_of(bench, replace(CONFIG, max_body_bytes=10**6)) as client:
        error = error_of(await client.post(CHAT, content=body), 400)
    assert "more arrays and objects than the limit of 100000" in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [{"role": "user", "content": [{}] * 90_000}]}, "messages[0].content[0].type"),
        ({"messages": [1] * 200_000}, "messages[0]"),
    ],
)
async def test_one_of_many_mistakes_is_reported(fields: dict[str, Any], param: str | None) -> None:
    bench = Bench()
    async with client_of(bench, replace(CONFIG, max_body_bytes=10**7)) as client:
        error = error_of(await client.post(CHAT, json=chat(**fields)), 400)
    assert error["param"] == param
    assert len(error["message"]) < 200


async def test_extra_fields_of_messages_are_ignored_as_by_openai() -> None:
    bench = Bench()
    cached = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "user", "content": [cached]},
        {"role": "assistant", "content": "b", "provider_specific_fields": {"refusal": None}},
    ]
    await post(bench, CHAT, chat(messages=messages))
    assert bench.tokenizer.seen == [
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    ]


async def test_a_web_page_cannot_send_requests_without_a_preflight() -> None:
    async with client_of(Bench()) as client:
        form = {"origin": "https://page.example", "content-type": "text/plain"}
        content = json.dumps(chat())
        error = error_of(await client.post(CHAT, content=content, headers=form), 400)
        assert "application/json" in error["message"]
        told = {**form, "content-type": "application/json; charset=utf-8"}
        assert (await client.post(CHAT, content=content, headers=told)).status_code == 200
