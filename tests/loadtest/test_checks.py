"""Verdicts on answers, tested with answers whose verdict is obvious."""

from __future__ import annotations

import pytest

from loadtest.requests import Call, Constraint, Content, Pattern, Schema, Tools, verdict

EVEN = Schema({"type": "object", "properties": {"n": {"multipleOf": 2}}, "required": ["n"]})
TOOLS = Tools([{"name": "f", "parameters": EVEN.schema}, {"name": "g", "parameters": {}}])


@pytest.mark.parametrize(
    ("constraint", "text", "calls", "finish", "expected"),
    [
        (EVEN, '{"n": 2}', [], "stop", "valid"),
        (EVEN, '{"n": 3}', [], "stop", "invalid"),
        (EVEN, '{"n": 2', [], "stop", "invalid"),
        (EVEN, '{"n": 2', [], "length", "truncated"),
        (EVEN, "", [], "stop", "invalid"),
        (Pattern("a+"), "aa", [], "stop", "valid"),
        (Pattern("a+"), "aab", [], "stop", "invalid"),
        (Pattern("a+b"), "aa", [], "length", "truncated"),
        (TOOLS, "", [Call("f", '{"n": 4}')], "tool_calls", "valid"),
        (TOOLS, "", [Call("f", '{"n": 4}'), Call("g", "{}")], "tool_calls", "valid"),
        (TOOLS, "", [Call("f", '{"n": 4}'), Call("f", "{}")], "tool_calls", "invalid"),
        (TOOLS, "", [Call("h", "{}")], "tool_calls", "invalid"),
        (TOOLS, "I will not.", [], "stop", "invalid"),
        (None, "anything", [], "length", "valid"),
        (None, "anything", [], "content_filter", "invalid"),
        (Schema({"pattern": r"\p{L}"}), '"a"', [], "stop", "unjudged"),
        (Schema({"$ref": "http://127.0.0.1:9/a.json"}), '"a"', [], "stop", "unjudged"),
        (Schema({"$ref": "#/$defs/a", "$defs": {"a": {"const": 1}}}), "1", [], "stop", "valid"),
    ],
)
def test_an_answer_gets_its_verdict(
    constraint: Constraint | None, text: str, calls: list[Call], finish: str, expected: str
) -> None:
    assert verdict(constraint, Content(text, calls, finish)) == expected
