"""Answers whose schema was enforced only in part, in every API."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.core.composite import Composite
from app.core.constraint import Relaxation, Written
from app.server.composition import assemble
from app.server.settings import Settings
from app.serving.compiling.validation import Validation
from app.telemetry.metrics import Metrics
from tests.http.harness import CHAT, chat, client_of
from tests.server.backend import backend, started
from tests.serving.fakes import Bench, FakeConstraint, FakeEngine

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"(a)\1"}}}
TEXT = '{"a": "b"}'
CALL = '{"tool_calls": [{"name": "f", "arguments": {"a": "b"}}]}'
PATTERN = Relaxation("/properties/a/pattern", "pattern", "no groups", "/properties/a")
OF_F = replace(PATTERN, subject="the parameters of the function 'f'")
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}


def tool(*, strict: bool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": "f", "parameters": SCHEMA, "strict": strict},
    }


FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
WARNING = {
    "code": "relaxed",
    "function": None,
    "pointer": "/properties/a/pattern",
    "keyword": "pattern",
    "satisfied": False,
    "message": "not enforced: no groups",
}


def writing(text: str, *relaxed: Relaxation) -> Bench:
    bench = Bench(FakeEngine(lambda request: [text[:5].encode(), text[5:].encode()]))
    bench.relaxed = relaxed
    return bench


async def asked(bench: Bench, path: str, body: dict[str, Any]) -> httpx.Response:
    async with client_of(bench) as client:
        response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response


def events(text: str) -> list[Any]:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


async def test_relaxations_are_reported_in_a_header_and_a_list() -> None:
    bench = writing(TEXT, PATTERN)
    response = await asked(bench, CHAT, chat(response_format=FORMAT))
    assert response.headers["x-leapjson-relaxed"] == "#/properties/a/pattern"
    assert response.json()["warnings"] == [WARNING]
    assert bench.written == [Written(SCHEMA, (PATTERN,), (TEXT,))]
    assert bench.observer.requests[0].relaxed == ("pattern",)


async def test_a_keyword_that_validators_read_differently_is_only_a_warning() -> None:
    read = Relaxation("/a/format", "format", "as the RFC has it", "/a", inexact=True)
    bench = writing(TEXT, read)
    response = await asked(bench, CHAT, chat(response_format=FORMAT))
    assert "x-leapjson-relaxed" not in response.headers
    assert response.json()["warnings"] == [
        {
            "code": "inexact",
            "function": None,
            "pointer": "/a/format",
            "keyword": "format",
            "satisfied": False,
            "message": "as the RFC has it",
        }
    ]
    assert bench.observer.requests[0].relaxed == ()


async def test_an_answer_that_is_held_to_everything_has_neither() -> None:
    bench = writing(TEXT)
    response = await asked(bench, CHAT, chat(response_format=FORMAT))
    assert "x-leapjson-relaxed" not in response.headers
    assert "warnings" not in response.json()
    assert bench.written == []


async def test_the_arguments_of_a_function_are_checked() -> None:
    bench = writing(CALL, OF_F)
    response = await asked(bench, CHAT, chat(tools=[TOOL], n=2))
    assert response.headers["x-leapjson-relaxed"] == "f#/properties/a/pattern"
    assert response.json()["warnings"] == [{**WARNING, "function": "f"}]
    assert bench.written == [Written(SCHEMA, (OF_F,), (TEXT, TEXT))]


async def test_a_function_that_was_not_called_is_not_checked() -> None:
    bench = writing("It rains.", OF_F)
    body = (await asked(bench, CHAT, chat(tools=[TOOL]))).json()
    assert body["warnings"] == [{**WARNING, "function": "f", "satisfied": None}]
    assert bench.written == []


@pytest.mark.parametrize("options", [None, {"include_usage": True}])
async def test_in_a_stream_the_last_choices_end_tells_it(options: Any) -> None:
    bench = writing(TEXT, PATTERN)
    body = chat(response_format=FORMAT, stream=True, n=2, stream_options=options)
    response = await asked(bench, CHAT, body)
    assert response.headers["x-leapjson-relaxed"] == "#/properties/a/pattern"
    chunks = [chunk for chunk in events(response.text) if chunk["choices"]]
    told = [chunk for chunk in chunks if "warnings" in chunk]
    assert told == chunks[-1:]
    assert told[0]["warnings"] == [WARNING]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons[-2:] == ["stop", "stop"]
    assert set(reasons[:-2]) == {None}


@pytest.mark.parametrize("stream", [False, True])
async def test_completions_tell_it_too(stream: bool) -> None:
    body = {"model": "demo", "prompt": "x", "guided_json": SCHEMA, "stream": stream}
    response = await asked(writing(TEXT, PATTERN), "/v1/completions", body)
    found = events(response.text)[-1] if stream else response.json()
    assert found["warnings"] == [WARNING]


@pytest.mark.parametrize("stream", [False, True])
async def test_responses_tell_it_too(stream: bool) -> None:
    text = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}
    body = {"model": "demo", "input": "x", "text": text, "stream": stream}
    response = await asked(writing(TEXT, PATTERN), "/v1/responses", body)
    found = events(response.text)[-1]["response"] if stream else response.json()
    assert found["warnings"] == [WARNING]


@pytest.mark.parametrize("stream", [False, True])
async def test_messages_tell_it_too(stream: bool) -> None:
    body = {
        "model": "demo",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
        "stream": stream,
    }
    response = await asked(writing(CALL, OF_F), "/v1/messages", body)
    found = events(response.text)[-2] if stream else response.json()
    assert found["warnings"] == [{**WARNING, "function": "f"}]


@pytest.mark.parametrize(
    ("fields", "relaxes"),
    [
        ({"tools": [TOOL]}, True),
        ({"tools": [tool(strict=False)]}, True),
        ({"tools": [tool(strict=True)]}, False),
        ({"tools": [TOOL], "on_unsupported": "refuse"}, False),
        (
            {
                "tools": [tool(strict=True)],
                "on_unsupported": "relax",
            },
            True,
        ),
        ({"response_format": FORMAT}, False),
        ({"response_format": FORMAT, "on_unsupported": "relax"}, True),
        ({"guided_json": SCHEMA}, False),
        ({"guided_json": SCHEMA, "on_unsupported": "relax"}, True),
    ],
)
async def test_strict_and_on_unsupported_decide_on_relaxation(fields: Any, relaxes: bool) -> None:
    bench = writing("{}")
    await asked(bench, CHAT, chat(**fields))
    (spec,) = bench.compiled
    assert (":relax" in spec.cache_key()) is relaxes
    assert isinstance(spec, Composite) is ("tools" in fields)


async def test_a_long_header_is_cut_at_an_entry() -> None:
    many = [replace(PATTERN, pointer=f"/properties/{n}é/pattern") for n in range(200)]
    response = await asked(writing(TEXT, *many), CHAT, chat(response_format=FORMAT))
    header = response.headers["x-leapjson-relaxed"]
    assert len(header) < 2010
    assert header.startswith("#/properties/0%C3%A9/pattern, #/properties/1%C3%A9/pattern, ")
    assert header.endswith("/pattern, ...")
    assert len(response.json()["warnings"]) == 200


async def test_a_worker_compiles_it_and_checks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = functools.partial(Validation, seconds=60)  # for a busy machine
    monkeypatch.setattr("app.server.composition.Validation", patient)
    parts = replace(
        backend(FakeEngine(lambda request: [TEXT.encode()])),
        compile_target="app.constraint:compile_program",
        link=lambda program: FakeConstraint(relaxed=program.relaxed),
    )
    metrics = Metrics()
    assembly = assemble(Settings(compile_workers=1), parts, metrics)
    async with started(assembly) as client:
        body = chat(response_format=FORMAT) | {"model": "leapjson-demo"}
        refused = await client.post(CHAT, json=body)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "unsupported_schema"
        answered = await client.post(CHAT, json=body | {"on_unsupported": "relax"})
        assert answered.status_code == 200, answered.text
        (warning,) = answered.json()["warnings"]
        made = await client.post("/v1/schemas", json={"schema": SCHEMA, "strict": False})
        assert [each["pointer"] for each in made.json()["explain"]["relaxed"]] == [
            "/properties/a/pattern"
        ]
    assert warning["satisfied"] is False
    assert warning["pointer"] == "/properties/a/pattern"
    exposition = metrics.render()[0].decode()
    assert 'leapjson_relaxations_total{keyword="pattern"} 1.0' in exposition
