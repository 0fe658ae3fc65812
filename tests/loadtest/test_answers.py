"""Answers read from streams: text, calls, times, and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadtest.answers import Answer, read_answer
from loadtest.connection import Exchange
from loadtest.requests import Request, Schema, Tools

NUMBER = Schema({"type": "integer"})


def event(**fields: Any) -> bytes:
    return f"data: {json.dumps(fields)}\n\n".encode()


def content(text: str) -> bytes:
    return event(choices=[{"delta": {"content": text}}])


def end(reason: str = "stop") -> bytes:
    return event(choices=[{"delta": {}, "finish_reason": reason}])


def read(*pieces: tuple[float, bytes], status: int = 200, constraint: Any = NUMBER) -> Answer:
    exchange = Exchange(sent=10.0, status=status, pieces=list(pieces), ended=20.0)
    return read_answer(Request("task", (), constraint, 8), 9.0, exchange)


def test_times_count_from_when_the_request_was_due_and_empty_chunks_are_no_tokens() -> None:
    role = event(choices=[{"delta": {"role": "assistant", "content": ""}}])
    answer = read((11, role), (12, content("4")), (15, content("2")), (16, end()))
    assert answer.outcome == "valid"
    assert answer.text == "42"
    assert (answer.first, answer.gaps, answer.seconds) == (3.0, (3.0,), 11.0)
    assert (answer.tokens, answer.counted) == (2, False)


def test_the_text_of_a_completion_is_read_like_that_of_a_chat() -> None:
    pieces = [event(choices=[{"text": text, "finish_reason": None}]) for text in ("", "4", "2")]
    stop = event(choices=[{"text": "", "finish_reason": "stop"}])
    answer = read(*zip((11, 12, 15, 16), (*pieces, stop), strict=True))
    assert (answer.outcome, answer.text) == ("valid", "42")
    assert (answer.first, answer.gaps) == (3.0, (3.0,))


def test_an_event_is_read_when_its_last_byte_has_come() -> None:
    whole = content("42") + end()
    middle = len(content("42")) // 2
    answer = read((11, whole[:middle]), (14, whole[middle:]))
    assert answer.first == 5.0
    assert answer.text == "42"


def test_the_usage_says_how_the_tokens_came_about() -> None:
    details = {"forward_passes": 3, "leapt_tokens": 5, "drafted_tokens": 1}
    usage = event(choices=[], usage={"completion_tokens": 9, "completion_tokens_details": details})
    answer = read((11, content("42") + end() + usage + b"data: [DONE]\n\n"))
    assert (answer.tokens, answer.counted) == (9, True)
    assert (answer.forward_passes, answer.leapt, answer.drafted) == (3, 5, 1)


def test_calls_are_put_together_from_their_deltas() -> None:
    tools = Tools([{"name": "add", "parameters": {"type": "object", "required": ["a"]}}])

    def delta(**function: str) -> bytes:
        return event(choices=[{"delta": {"tool_calls": [{"index": 0, "function": function}]}}])

    stream = delta(name="add") + delta(arguments='{"a"') + delta(arguments=": 1}")
    answer = read((11, stream + end("tool_calls")), constraint=tools)
    assert answer.outcome == "valid"
    assert json.loads(answer.text) == [["add", '{"a": 1}']]
    missing = read((11, delta(name="add", arguments="{}") + end()), constraint=tools)
    assert missing.outcome == "invalid"


@pytest.mark.parametrize(
    ("pieces", "status", "outcome"),
    [
        ([b'{"error": "bad schema"}'], 400, "refused"),
        ([b"overloaded"], 503, "failed"),
        ([content("42")], 200, "failed"),
        ([content("42"), event(error={"message": "gone"}), end()], 200, "failed"),
        ([b"data: {\n\n"], 200, "failed"),
        ([content("4x"), end()], 200, "invalid"),
        ([content("4x"), end("length")], 200, "truncated"),
        ([content("42"), end("length")], 200, "valid"),
    ],
)
def test_every_end_has_its_outcome(pieces: list[bytes], status: int, outcome: str) -> None:
    answer = read((11, b"".join(pieces)), status=status)
    assert answer.outcome == outcome
    if outcome in ("refused", "failed"):
        assert answer.detail
