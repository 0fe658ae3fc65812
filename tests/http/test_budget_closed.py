"""Every API reports the values that ``max_tokens`` cut short."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from app.answer.fields import ClosedValue, ValueScanner
from app.answer.plan import AnswerPlan
from app.core.constraint import Relaxation
from tests.http import harness
from tests.http.harness import CHAT, MESSAGES, chat, post
from tests.http.test_begun_answers import beginning, compile
from tests.http.test_relaxed import WARNING, WITH_SCHEMA, events, warnings_of
from tests.serving.fakes import Bench, FakeEngine

SCHEMA = {
    "type": "object",
    "properties": {"place": {"type": "string"}, "people": {"type": "array"}},
}
TEXT = '{"place": "33333", "people": []}'
CALL = '{"tool_calls": [{"name": "f", "arguments": {"place": "33333", "people": []}}]}'
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
CLOSED = {
    "code": "budget_closed",
    "function": None,
    "pointer": "/place",
    "keyword": None,
    "satisfied": None,
    "message": "the token limit cut this value short; raise max_tokens",
    "choice": 0,
}


def writing(text: str, *relaxed: Relaxation, before: str = '"33333') -> Bench:
    """A bench whose answer the budget cuts short after ``before``."""
    bench = harness.writing(text, size=5)
    bench.engine.closed = text[: text.index(before) + len(before)].encode()
    bench.relaxed = relaxed
    return bench


async def test_the_value_that_was_ended_is_named() -> None:
    body = (await post(writing(TEXT), CHAT, chat(response_format=FORMAT))).json()
    assert body["warnings"] == [CLOSED]
    assert body["choices"][0]["finish_reason"] == "stop"


async def test_long_texts_are_not_searched_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []
    search = AnswerPlan.closed_value

    def closed_value(*arguments: Any) -> ClosedValue | None:
        threads.append(threading.get_ident())
        return search(*arguments)

    monkeypatch.setattr(AnswerPlan, "closed_value", closed_value)
    body = (await post(writing(TEXT), CHAT, chat(response_format=FORMAT))).json()
    assert body["warnings"] == [CLOSED]
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("before", "pointer"),
    [('"people": [', "/people"), ('"place": ', ""), ('"33333"', ""), ('{"pl', "")],
)
async def test_between_values_it_is_the_container_around_them(before: str, pointer: str) -> None:
    bench = writing(TEXT, before=before)
    body = (await post(bench, CHAT, chat(response_format=FORMAT))).json()
    assert body["warnings"] == [{**CLOSED, "pointer": pointer}]


async def test_the_value_may_have_been_begun_by_the_client() -> None:
    """The engine reports its own text; the pointer is found in prefill and text together."""
    engine = FakeEngine(lambda request: [b'333"', b', "people": []}'])
    engine.closed = b"333"
    body = beginning('{"place": "33', response_format=FORMAT)
    answer = (await post(Bench(engine, compile=compile), CHAT, body)).json()
    assert answer["warnings"] == [CLOSED]


async def test_an_answer_that_no_budget_ended_says_nothing() -> None:
    bench = writing(TEXT)
    bench.engine.closed = None
    assert "warnings" not in (await post(bench, CHAT, chat(response_format=FORMAT))).json()


async def test_a_text_that_is_not_json_has_no_warning() -> None:
    body = (await post(writing("3: 33333 3", before="33333"), CHAT, chat())).json()
    assert "warnings" not in body


async def test_in_arguments_the_function_is_named_and_each_choice_has_its_own() -> None:
    body = (await post(writing(CALL), CHAT, chat(tools=[TOOL], n=2))).json()
    in_f = {**CLOSED, "function": "f"}
    assert body["warnings"] == [in_f, {**in_f, "choice": 1}]


async def test_the_warning_follows_those_of_relaxations() -> None:
    relaxed = Relaxation("/properties/a/pattern", "pattern", "no groups", "/properties/a")
    response = await post(writing(TEXT, relaxed), CHAT, chat(response_format=FORMAT))
    assert response.json()["warnings"] == [{**WARNING, "satisfied": False}, CLOSED]


@pytest.mark.parametrize("n", [1, 2])
async def test_a_stream_has_the_warnings_in_its_last_chunk(n: int) -> None:
    body = chat(response_format=FORMAT, stream=True, n=n)
    chunks = events((await post(writing(TEXT), CHAT, body)).text)
    assert [chunk.get("warnings") for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["warnings"] == [{**CLOSED, "choice": index} for index in range(n)]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons.count("stop") == n


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", WITH_SCHEMA)
async def test_other_apis_tell_it_too(path: str, stream: bool) -> None:
    in_call = path == MESSAGES
    bench = writing(CALL if in_call else TEXT)
    told = await warnings_of(bench, path, stream, WITH_SCHEMA[path])
    assert told == [{**CLOSED, "function": "f" if in_call else None}]


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("", ""),
        ('"ab', ""),
        ('{"a/b~": "x', "/a~1b~0"),
        ('{"a": {"b": [1, [2, "x', "/a/b/1/1"),
        ('{"a": {"b": [1, [2, "x"]', "/a/b"),
        ('{"a": {"b": [1', "/a/b/0"),
        ('{"a": tr', "/a"),
        ('{"a": 1, "b', ""),
        ('{"a": "\\"', "/a"),
    ],
)
def test_where_a_text_ends(text: Any, pointer: str) -> None:
    scanner = ValueScanner()
    scanner.push(text.encode())
    assert scanner.pointer == pointer
