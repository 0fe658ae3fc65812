"""Custom tools: their parameters, and the input read from the arguments."""

from __future__ import annotations

import json

import pytest

from app.answer.tools import InputReader, custom_tool
from app.core.specs import Grammar, Regex

INPUTS = ["", "plain", 'a "quoted"\nline\t\\ of \u2028 text', "é😀\x00\x7f", "\\u0041 {}]", '"']


@pytest.mark.parametrize("text", INPUTS)
@pytest.mark.parametrize("ascii", [False, True])
@pytest.mark.parametrize("indent", [None, 2])
def test_the_input_comes_out_whole_in_every_split(
    text: str, ascii: bool, indent: int | None
) -> None:
    written = json.dumps({"input": text}, ensure_ascii=ascii, indent=indent)
    for size in range(1, len(written) + 1):
        reader = InputReader()
        parts = [reader.push(written[at : at + size]) for at in range(0, len(written), size)]
        assert "".join(parts) == text


def test_text_comes_as_soon_as_its_characters_are_whole() -> None:
    reader = InputReader()
    assert reader.push('{"input": "ab') == "ab"
    assert reader.push("\\") == ""
    assert reader.push("n\\ud83d") == "\n"
    assert reader.push("\\ude0") == ""
    assert reader.push('0c"}') == "😀c"


def test_a_grammar_is_enforced_and_told_in_words() -> None:
    tool = custom_tool("run", "Runs it.", Grammar('start: "x"', "lark"))
    asked = tool.parameters["properties"]["input"]
    assert asked["x-grammar"] == {"syntax": "lark", "definition": 'start: "x"'}
    told = tool.shown["properties"]["input"]
    assert 'start: "x"' in told["description"]
    assert "x-grammar" not in told


def test_a_regular_expression_and_free_text() -> None:
    asked = custom_tool("run", None, Regex("a+")).parameters["properties"]["input"]
    assert asked["x-grammar"] == {"syntax": "regex", "definition": "a+"}
    assert custom_tool("run", None).parameters["properties"]["input"] == {"type": "string"}
