"""Answers whose schema was enforced only in part, in every API."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

import pytest

from app.core.composite import Composite
from app.core.constraint import Relaxation, Written
from app.server.composition import assemble
from app.server.settings import Settings
from app.serving.compiling.validation import Validation
from app.telemetry.metrics import Metrics
from tests.http.harness import (
    BODIES,
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    chat,
    post,
    writing,
)
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


def relaxing(text: str, *relaxed: Relaxation) -> Bench:
    bench = writing(text, size=5)
    bench.relaxed = relaxed
    return bench


def events(text: str) -> list[Any]:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


async def test_relaxations_are_reported_in_a_header_and_a_list() -> None:
    bench = relaxing(TEXT, PATTERN)
    response = await post(bench, CHAT, chat(response_format=FORMAT))
    assert response.headers["x-leapjson-relaxed"] == "#/properties/a/pattern"
    assert response.json()["warnings"] == [WARNING]
    assert bench.written == [Written(SCHEMA, (PATTERN,), (TEXT,))]
    assert bench.observer.requests[0].relaxed == ("pattern",)


async def test_a_keyword_that_validators_read_differently_is_only_a_warning() -> None:
    read = Relaxation("/a/format", "format", "as the RFC has it", "/a", inexact=True)
    bench = relaxing(TEXT, read)
    response = await post(bench, CHAT, chat(response_format=FORMAT))
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
    bench = relaxing(TEXT)
    response = await post(bench, CHAT, chat(response_format=FORMAT))
    assert "x-leapjson-relaxed" not in response.headers
    assert "warnings" not in response.json()
    assert bench.written == []


async def test_the_arguments_of_a_function_are_checked() -> None:
    bench = relaxing(CALL, OF_F)
    response = await post(bench, CHAT, chat(tools=[TOOL], n=2))
    assert response.headers["x-leapjson-relaxed"] == "f#/properties/a/pattern"
    assert response.json()["warnings"] == [{**WARNING, "function": "f"}]
    assert bench.written == [Written(SCHEMA, (OF_F,), (TEXT, TEXT))]


async def test_a_function_that_was_not_called_is_not_checked() -> None:
    bench = relaxing("It rains.", OF_F)
    body = (await post(bench, CHAT, chat(tools=[TOOL]))).json()
    assert body["warnings"] == [{**WARNING, "function": "f", "satisfied": None}]
    assert bench.written == []


@pytest.mark.parametrize("options", [None, {"include_usage": True}])
async def test_in_a_stream_the_last_choices_end_tells_it(options: Any) -> None:
    bench = relaxing(TEXT, PATTERN)
    body = chat(response_format=FORMAT, stream=True, n=2, stream_options=options)
    response = await post(bench, CHAT, body)
    assert response.headers["x-leapjson-relaxed"] == "#/properties/a/pattern"
    chunks = [chunk for chunk in events(response.text) if chunk["choices"]]
    told = [chunk for chunk in chunks if "warnings" in chunk]
    assert told == chunks[-1:]
    assert told[0]["warnings"] == [WARNING]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons[-2:] == ["stop", "stop"]
    assert set(reasons[:-2]) == {None}


WITH_SCHEMA: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"guided_json": SCHEMA},
    RESPONSES: {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}},
    MESSAGES: {"tools": [{"name": "f", "input_schema": SCHEMA}], "max_tokens": 100},
}
"""Fields that constrain an answer, or a call in it, by ``SCHEMA``."""


async def warnings_of(bench: Bench, path: str, stream: bool, fields: dict[str, Any]) -> Any:
    response = await post(bench, path, {**BODIES[path], **fields, "stream": stream})
    if not stream:
        return response.json()["warnings"]
    last = events(response.text)[-2 if path == MESSAGES else -1]
    return last.get("response", last)["warnings"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", WITH_SCHEMA)
async def test_other_apis_tell_it_too(path: str, stream: bool) -> None:
    in_call = path == MESSAGES
    bench = relaxing(CALL, OF_F) if in_call else relaxing(TEXT, PATTERN)
    told = await warnings_of(bench, path, stream, WITH_SCHEMA[path])
    assert told == [{**WARNING, "function": "f" if in_call else None}]


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
    bench = relaxing("{}")
    await post(bench, CHAT, chat(**fields))
    (spec,) = bench.compiled
    assert (":relax" in spec.cache_key()) is relaxes
    assert isinstance(spec, Composite) is ("tools" in fields)


async def test_a_long_header_is_cut_at_an_entry() -> None:
    many = [replace(PATTERN, pointer=f"/properties/{n}é/pattern") for n in range(200)]
    response = await post(relaxing(TEXT, *many), CHAT, chat(response_format=FORMAT))
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
