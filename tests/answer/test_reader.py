from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answer.formats import ChatFormat, detect
from app.answer.formats.calls import ToolFormat
from app.answer.formats.families import BARE, HERMES, IN_CODE, LLAMA, MISTRAL, PLAIN
from app.answer.formats.reasoning import ReasoningFormat
from app.answer.formats.spelled import SpelledCalls
from app.answer.incoming import Incoming
from app.answer.pieces import CallArguments, CallEnd, CallStart, Content, Reasoning
from app.answer.prompt import Opening
from app.answer.reader import AnswerReader
from app.answer.tools import FunctionTool, ToolUse
from tests.answer import templates
from tests.answer.walks import calls, content, cut, read, reasoning

USE = ToolUse((FunctionTool("f"), FunctionTool("fg")))
THINK = ReasoningFormat("<think>", "</think>")
LATE_NAME = SpelledCalls(
    name="late name",
    call='<call>{"arguments": $arguments, "name": "$name"}',
    separator="\n",
    trigger="<call>",
)
SPELLED = [HERMES, LLAMA, MISTRAL, PLAIN, LATE_NAME]
PARTS = [
    "<think>", "</think>", "<tool_call>", '<tool_call>\n{"name": "', "}\n</tool_call>", "\n", " ",
    '{"name": "', "f", '", "arguments": ', '", "parameters": ', "{}", '{"a": "}\\""}', "}", "text",
    "[TOOL_CALLS]", "[ARGS]", '{"tool_calls": [', ", ", "]}", "é", "<", "[",
    '```json\n{\n  "name": "f', '{"name": "f", "arguments": ', '",\n  "arguments": ', "\n}\n```",
]  # fmt: skip


def reader(
    tools: ToolFormat, opening: Opening = "closed", *, content_first: bool = True
) -> AnswerReader:
    format = ChatFormat(tools, THINK)
    return AnswerReader(format, opening=opening, use=USE, content_first=content_first)


@given(
    st.sampled_from(SPELLED),
    st.sampled_from(["closed", "open", "possible"]),
    st.booleans(),
    st.lists(st.sampled_from(PARTS), max_size=12).map("".join),
    st.randoms(use_true_random=False),
)
def test_chunks_of_any_size_give_the_same_pieces(
    tools: ToolFormat, opening: Opening, first: bool, text: str, randoms: random.Random
) -> None:
    whole = read(reader(tools, opening, content_first=first), [text])
    chunks = cut(text, randoms)
    assert read(reader(tools, opening, content_first=first), chunks) == whole


@given(
    st.sampled_from(SPELLED),
    st.sampled_from(["closed", "open", "possible"]),
    st.lists(st.sampled_from(PARTS), max_size=12).map("".join),
)
def test_pieces_are_slices_in_order(tools: ToolFormat, opening: Opening, text: str) -> None:
    position = 0
    for piece in read(reader(tools, opening), [text]):
        assert position <= piece.start <= piece.end <= len(text)
        if isinstance(piece, (Content, Reasoning, CallArguments)):
            assert piece.text == text[piece.start : piece.end]
        position = piece.end


def test_text_and_calls_are_told_apart() -> None:
    text = (
        'I look.\n\n<tool_call>\n{"name": "f", "arguments": {"a": "}\\""}}\n</tool_call>'
        '\n<tool_call>\n{"name": "fg", "arguments": {}}\n</tool_call>'
    )
    pieces = read(reader(HERMES), [text])
    assert content(pieces) == "I look."
    assert calls(pieces) == [("f", '{"a": "}\\""}'), ("fg", "{}")]
    assert [piece.index for piece in pieces if isinstance(piece, CallStart)] == [0, 1]


@pytest.mark.parametrize("format", [IN_CODE, BARE])
def test_calls_may_have_no_marks_where_the_template_asks_for_them(format: SpelledCalls) -> None:
    def written(name: str, arguments: str) -> str:
        return format.spelled([{"name": name, "arguments": arguments}])

    text = "I look.\n" + written("fg", '{"a": 1}') + "\n" + written("f", "{}")
    pieces = read(reader(HERMES), [text])
    assert (content(pieces), calls(pieces)) == ("I look.", [("fg", '{"a": 1}'), ("f", "{}")])
    other = "Like this:\n\n" + written("other", "{}")
    assert content(read(reader(HERMES), [other, written("f", "{}")])) == other
    assert content(read(reader(HERMES, content_first=False), [written("f", "{}")]))


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        (LLAMA, '{"name": "f", "parameters": {"a": [1]}}'),
        (PLAIN, '{"tool_calls": [{"name": "f", "arguments": {"a": [1]}}]}'),
        (MISTRAL, '[TOOL_CALLS]f[ARGS]{"a": [1]}'),
        (LATE_NAME, '<call>{"arguments": {"a": [1]}, "name": "f"}'),
    ],
)
def test_every_format_is_read(tools: ToolFormat, text: str) -> None:
    pieces = read(reader(tools), [text])
    assert calls(pieces) == [("f", '{"a": [1]}')]
    assert content(pieces) == ""


def test_ids_between_name_and_arguments_are_passed_over() -> None:
    tools = detect(templates.MISTRAL_CALL_ID, ()).tools
    text = "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS]fg[CALL_ID]123456789[ARGS]{}"
    assert calls(read(reader(tools), [text])) == [("f", "{}"), ("fg", "{}")]


def test_a_call_is_over_with_its_last_character() -> None:
    within = reader(MISTRAL)
    within.push("[TOOL_CALLS]f[ARGS]{")
    assert within.in_calls
    assert within.push("}") == [CallArguments(0, "}", 20, 21), CallEnd(0, 21, 21)]


def test_json_that_only_begins_like_a_call_is_content() -> None:
    text = '{"name": "fx", "parameters": {}}'
    assert read(reader(LLAMA), [text]) == [Content(text)]


def test_marks_inside_content_with_a_constraint_of_its_own_are_content() -> None:
    text = '{"a": "<tool_call>"}'
    assert read(reader(HERMES, content_first=False), [text]) == [Content(text)]
    assert not calls(read(reader(HERMES), [text]))


def test_without_tools_everything_is_content() -> None:
    text = ' <tool_call>\n{"name": "f", "arguments": {}}\n</tool_call> \n'
    plain = AnswerReader(ChatFormat(HERMES))
    assert read(plain, [text]) == [Content(text)]


@pytest.mark.parametrize(("opening", "begin"), [("open", ""), ("possible", "<think>")])
def test_reasoning_loses_the_white_space_around_it(opening: Opening, begin: str) -> None:
    text = begin + "\nfirst\n\nsecond \n</think>\n\n\n answer "
    pieces = read(reader(HERMES, opening), [text])
    assert reasoning(pieces) == "first\n\nsecond"
    assert content(pieces) == "\n answer "


def test_no_reasoning_where_none_was_begun() -> None:
    pieces = read(reader(HERMES, "possible"), ["\n\n<thin ice</think>"])
    assert pieces == [Content("\n\n<thin ice</think>")]


def test_empty_reasoning_has_no_piece() -> None:
    assert read(reader(HERMES, "possible"), ["<think>\n\n</think>\n\nyes"]) == [Content("yes", 19)]


def test_calls_inside_the_reasoning_are_reasoning() -> None:
    text = "maybe <tool_call>?</think>\n\n<tool_call>\n{"
    pieces = read(reader(HERMES, "open"), [text])
    assert pieces == [Reasoning("maybe <tool_call>?")]


CUT: dict[ToolFormat, str] = {
    HERMES: 'yes\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
    LLAMA: '{"name": "f", "parameters": {"a": 1}}',
    MISTRAL: 'yes[TOOL_CALLS]f[ARGS]{"a": 1}',
    PLAIN: '{"tool_calls": [{"name": "f", "arguments": {"a": 1}}]}',
    LATE_NAME: 'yes <call>{"arguments": {"a": 1}, "name": "f"}',
}


@pytest.mark.parametrize("tools", SPELLED)
def test_an_answer_cut_off_anywhere_has_the_pieces_it_had_before(tools: ToolFormat) -> None:
    text = CUT[tools]
    whole = reader(tools).push(text)
    arguments = "".join(piece.text for piece in whole if isinstance(piece, CallArguments))
    for length in range(len(text)):
        pieces = read(reader(tools), [text[:length]])
        names = [piece.name for piece in pieces if isinstance(piece, CallStart)]
        found = "".join(piece.text for piece in pieces if isinstance(piece, CallArguments))
        assert names in ([], ["f"])
        assert arguments.startswith(found)
        if names:
            assert content(pieces) == content(whole)


def test_text_comes_at_once_where_no_mark_can_begin() -> None:
    incremental = reader(HERMES)
    assert incremental.push("The") == [Content("The")]
    assert incremental.push(" answer <") == [Content(" answer", 3)]
    assert incremental.push("3") == [Content(" <3", 10)]


def test_a_large_prefill_is_read_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 MiB of beginnings of calls took 8.5 s, since each copied and searched all that follows."""
    searched = 0
    before = Incoming.before

    def counting(incoming: Incoming, mark: str) -> tuple[int, bool]:
        nonlocal searched
        searched += len(incoming.text)
        return before(incoming, mark)

    monkeypatch.setattr(Incoming, "before", counting)
    counts = []
    for size in (10_000, 20_000):
        searched = 0
        reader(HERMES).push('```json\n{\n  "name": "x' * size)
        counts.append(searched)
    assert counts[1] < 2.5 * counts[0]
