"""Constraint and reader agree: random texts of the constraint are read back."""

from __future__ import annotations

import json
import random
import re
import time
from typing import Any

import jsonschema
import pytest

from app.answer.formats import ChatFormat, detect
from app.answer.formats.calls import ToolFormat
from app.answer.formats.families import BARE, HERMES, IN_CODE, LLAMA, PLAIN
from app.answer.formats.reasoning import ReasoningFormat
from app.answer.formats.spelled import SpelledCalls
from app.answer.language import _may_start, answer, is_open_ended, with_reasoning
from app.answer.pieces import CallStart, Content
from app.answer.pieces import TextPiece as Piece
from app.answer.prompt import Opening
from app.answer.reader import AnswerReader
from app.answer.tools import FunctionTool, ToolUse, objects_of
from app.core.composite import Composite, FreeText
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidRequest, InvalidSchema
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex
from tests.answer import templates
from tests.answer.walks import Walker, calls, content, cut, read
from tests.wide import many

THINK = ReasoningFormat("<think>", "</think>")
MISTRAL_LIST = detect(templates.MISTRAL_LIST, ()).tools
MISTRAL_ID = detect(templates.MISTRAL_CALL_ID, ()).tools
PLANNED = {
    "hermes": HERMES,
    "llama": LLAMA,
    "plain": PLAIN,
    "mistral": MISTRAL_ID,
    "mistral list": MISTRAL_LIST,
}
NUMBERED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = (
    FunctionTool("f", parameters=NUMBERED),
    FunctionTool("fg", parameters={"anyOf": [NUMBERED, {"type": "string"}]}),
    FunctionTool("none", parameters={"type": "object", "properties": {}}),
)
NAMED = {"type": "object", "properties": {"name": {"type": "string"}, "parameters": {}}}
CONTENTS: dict[str, ConstraintSpec | None] = {
    "free": None,
    "schema": JsonSchema(NAMED, close_objects=True),
    "string": JsonSchema({"type": "string"}),
    "newlines": Regex(r"\n*a"),
    "anything": Regex(r"[\s\S]*"),
    "choice": Choice(["\n\nyes", "<think>", "<tool_call>", '{"name": "f", "parameters": x']),
    "grammar": Grammar('root ::= [^<]* "</think>" [\\n]*'),
}
WALKER = Walker(
    [
        "<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "\n\n",
        '{"name": "', '{"tool_calls": [{"name": "', '", "arguments": ', '", "parameters": ',
        "fg", "none", '<tool_call>\n{"name": "f', '{"n": ', ", ", "[", "<", "]}", "[CALL_ID]",
        "</thi", "nk>", "_call>", "f", *PLAIN.leads("f"), *LLAMA.leads("f"),
        *MISTRAL_LIST.heads(), *HERMES.heads(), *IN_CODE.leads("f"), *BARE.leads("f"), "\n}\n```",
        '[TOOL_CALLS][{"name": "f"',
    ]
)  # fmt: skip


def check_content(spec: ConstraintSpec | None, text: str) -> None:
    match spec:
        case JsonSchema(schema):
            jsonschema.validate(json.loads(text), schema)
        case Regex(pattern):
            assert re.fullmatch(pattern, text)
        case Choice(options):
            assert text in options
        case Grammar():
            assert re.fullmatch(r"[^<]*</think>\n*", text)


def check_calls(pieces: list[Piece], use: ToolUse) -> None:
    found = calls(pieces)
    assert len(found) == sum(isinstance(piece, CallStart) for piece in pieces)
    schemas: dict[str, Any] = {tool.name: tool.parameters for tool in use.tools}
    for name, arguments in found:
        value = json.loads(arguments)
        assert isinstance(value, dict)
        jsonschema.validate(value, schemas[name])
        assert set(value) <= {"n"}
    assert len(found) <= use.most_calls
    assert use.mode == "auto" or found


@pytest.mark.parametrize("opening", ["closed", "open", "possible"])
@pytest.mark.parametrize(
    ("kind", "mode"),
    [("free", "required"), *((kind, "auto") for kind in CONTENTS if kind != "grammar")],
)
@pytest.mark.parametrize("name", PLANNED)
def test_whatever_is_admitted_is_read_as_it_was_constrained(
    name: str, kind: str, mode: Any, opening: Opening
) -> None:
    format, spec = ChatFormat(PLANNED[name], THINK), CONTENTS[kind]
    use = ToolUse(TOOLS, mode, most_calls=1 if kind == "schema" else 16)
    language = with_reasoning(answer(spec, use, format.tools), THINK, opening)
    randoms = random.Random(f"{name} {kind} {mode} {opening}")
    seen = {True: 0, False: 0}
    for start in [*[""] * 3, *beginnings(format.tools, opening)]:
        text = WALKER.text(language, randoms, start=start)
        if text is None:
            continue
        reader = AnswerReader(format, opening=opening, use=use, content_first=spec is None)
        pieces = read(reader, cut(text, randoms))
        seen[bool(calls(pieces))] += 1
        check_calls(pieces, use)
        if not calls(pieces):
            check_content(spec, content(pieces))
        elif spec is not None or mode == "required":
            assert content(pieces) == ""
    assert seen[True], "no walk had a call"
    assert seen[False] or mode == "required", "no walk had content"


def beginnings(format: ToolFormat, opening: Opening) -> list[str]:
    """Beginnings of calls, and texts that look like them."""
    before = {"closed": [""], "open": ["x</think>"], "possible": ["", "<think>x</think>"]}
    return [
        head + newlines + lead
        for head in before[opening]
        for newlines in ("", "\n", "\n\n", "\n\n\n")
        for lead in (*format.leads(["fg"]), "", '"')
    ]


@pytest.mark.parametrize("opening", ["open", "possible"])
@pytest.mark.parametrize("kind", [kind for kind in CONTENTS if kind != "free"])
def test_content_after_reasoning_is_what_its_constraint_admits(kind: str, opening: Opening) -> None:
    spec = CONTENTS[kind]
    language = with_reasoning(spec, THINK, opening)
    randoms = random.Random(f"{kind} {opening}")
    for _ in range(many(20, 3)):
        text = WALKER.text(language, randoms)
        assert text is not None
        reader = AnswerReader(ChatFormat(PLAIN, THINK), opening=opening)
        check_content(spec, content(read(reader, cut(text, randoms))))


@pytest.mark.parametrize("gap", ["", "\n", "\n\n"])
def test_json_may_follow_the_reasoning_as_closely_as_the_model_likes(gap: str) -> None:
    for spec in (JsonObject(), answer(None, ToolUse(TOOLS, "required"), PLAIN)):
        language = with_reasoning(spec, THINK, "open")
        text = '{"tool_calls": [{"name": "none", "arguments": {}}]}'
        assert WALKER.admits(language, f"hm</think>{gap}{text}")
        assert not WALKER.admits(language, f"hm</think>\n\n\n{text}")


def test_without_tools_the_content_is_the_answer() -> None:
    assert answer(None, None, HERMES) is None
    assert answer(Regex("a"), None, HERMES) == Regex("a")
    assert with_reasoning(None, THINK, "open") is None
    assert with_reasoning(Regex("a"), THINK, "closed") == Regex("a")


@pytest.mark.parametrize(
    ("parameters", "strict", "admitted", "refused"),
    [
        (None, None, "{}", '{"a": 1}'),
        (None, False, "{}", '{"a": 1}'),
        (True, None, '{"a": 1}', "1"),
        ({}, None, '{"a": 1}', '"a"'),
        ({"type": "object"}, None, '{"a": 1}', "null"),
        ({"type": "object", "properties": {}}, None, "{}", '{"a": 1}'),
        ({"type": "object", "properties": {}}, False, '{"a": 1}', "[]"),
        ({"type": ["object", "null"], "properties": {}}, None, "{}", "null"),
        ({"anyOf": [NUMBERED, {"type": "null"}]}, None, '{"n": 1}', "null"),
        ({"$defs": {"N": NUMBERED}, "$ref": "#/$defs/N"}, None, '{"n": 1}', "{}"),
    ],
)
def test_arguments_are_always_an_object(
    parameters: Any, strict: bool | None, admitted: str, refused: str
) -> None:
    tool = FunctionTool("f", parameters=parameters, strict=strict)
    spec = answer(None, ToolUse((tool,), "required"), LLAMA)
    head, tail = '{"name": "f", "parameters": ', "}"
    assert WALKER.admits(spec, head + admitted + tail)
    assert not WALKER.admits(spec, head + refused + tail)


def test_a_reference_that_stands_alone_in_draft_7_still_names_an_object() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"N": {"type": ["integer", "object"]}},
        "$ref": "#/definitions/N",
        "title": "not looked at",
    }
    spec = JsonSchema(objects_of(schema))
    assert WALKER.admits(spec, "{}")
    assert not WALKER.admits(spec, "3")


def test_parameters_that_are_no_object_are_refused_by_the_functions_name() -> None:
    use = ToolUse((FunctionTool("f", parameters={"type": "string"}),))
    with pytest.raises(InvalidRequest, match="'f'") as refusal:
        answer(None, use, HERMES)
    assert refusal.value.param == "tools"
    with pytest.raises(InvalidSchema):
        objects_of({"type": ["string", "null"]})


def test_one_call_alone_where_the_format_or_the_request_says_so() -> None:
    two = '{}}\n</tool_call>\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    text = '<tool_call>\n{"name": "f", "arguments": ' + two
    tools = (FunctionTool("f"),)
    several, one = (answer(None, ToolUse(tools, most_calls=most), HERMES) for most in (2, 1))
    assert WALKER.admits(several, text)
    assert not WALKER.admits(one, text)


@pytest.mark.parametrize("format", [IN_CODE, BARE])
def test_calls_without_marks_have_the_arguments_of_their_function(format: SpelledCalls) -> None:
    free, required = (answer(None, ToolUse(TOOLS, mode), HERMES) for mode in ("auto", "required"))
    assert free is not None
    assert required is not None
    name = TOOLS[0].name

    def text(name: str, arguments: str) -> str:
        return "One moment.\n" + format.spelled([{"name": name, "arguments": arguments}])

    assert WALKER.admits(free, text(name, '{"n": 1}'))
    assert not WALKER.admits(free, text(name, "1"))
    assert WALKER.admits(free, text("other", "1"))
    assert not WALKER.admits(required, text(name, '{"n": 1}'))


@pytest.mark.parametrize("options", [("",), ("a", "ab", "b"), ("b", "abc", "a"), ("abd", "c")])
def test_a_choice_may_start_as_its_options_do_or_with_one_of_them(options: tuple[str, ...]) -> None:
    may_start = _may_start(Choice(options))
    for prefix in ("a", "ab", "abc", "abd", "b", "ba", "c", "d"):
        expected = any(each.startswith(prefix) or prefix.startswith(each) for each in options)
        assert may_start(prefix) == expected


def test_many_options_are_compared_with_many_functions_quickly() -> None:
    """One by one, 20,000 options and 1,000 functions took 12 s."""
    use = ToolUse(tuple(FunctionTool(f"f{number}") for number in range(1_000)))
    options = tuple(map(str, range(20_000)))
    started = time.process_time()
    answer(Choice(options), use, PLAIN)
    assert time.process_time() - started < 2


def test_json_content_may_look_like_a_call_of_another_function() -> None:
    spec = answer(CONTENTS["schema"], ToolUse(TOOLS), LLAMA)
    text = '{"name": "other", "parameters": {}}'
    assert WALKER.admits(spec, text)
    reader = AnswerReader(ChatFormat(LLAMA), use=ToolUse(TOOLS), content_first=False)
    assert read(reader, [text]) == [Content(text)]


@pytest.mark.parametrize("name", PLANNED)
def test_the_marks_of_a_required_call_are_forced(name: str) -> None:
    format = PLANNED[name]
    one = answer(None, ToolUse(TOOLS[2:], "required"), format)
    several = answer(None, ToolUse(TOOLS, "required"), format)
    (head,) = format.heads()
    assert WALKER.forced(one).startswith(head + "none")
    assert WALKER.forced(several) == head


def test_text_that_begins_like_a_call_has_to_become_one() -> None:
    spec = answer(None, ToolUse(TOOLS), LLAMA)
    assert WALKER.admits(spec, '{"name": "none", "parameters": {}}')
    assert WALKER.admits(spec, '{"name"')
    assert not WALKER.admits(spec, '{"name": "other", "parameters": {}}')


@pytest.mark.parametrize(
    ("spec", "open_ended"),
    [
        (answer(None, ToolUse(TOOLS), HERMES), True),
        (answer(None, ToolUse(TOOLS), LLAMA), True),
        (answer(None, ToolUse(TOOLS, "required"), HERMES), False),
        (answer(Regex(".*"), ToolUse(TOOLS), HERMES), False),
        (with_reasoning(JsonObject(), THINK, "open"), False),
        (Composite(FreeText()), True),
        (JsonObject(), False),
    ],
)
def test_an_answer_that_may_end_in_free_text_is_open_ended(
    spec: ConstraintSpec, open_ended: bool
) -> None:
    assert is_open_ended(spec) == open_ended
