"""Tool calls of chat templates: each family's format is detected, admitted and read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.answer.formats import ChatFormat, detect
from app.answer.formats.calls import ShortIds
from app.answer.formats.reasoning import ReasoningFormat
from app.answer.formats.spelled import SpelledCalls
from app.answer.language import answer, with_reasoning
from app.answer.prompt import Conversation, template_input
from app.answer.reader import AnswerReader
from app.answer.tools import ToolUse
from app.core.literals import Literals
from app.core.specs import JsonSchema
from tests.answer import templates
from tests.answer.rendered import FULL, TOOLS, TURNS, ULM, Call
from tests.answer.round_trips import check, splits, walker
from tests.answer.tool_templates import DEEPSEEK_R1_CALLS, GRANITE_3, TOOL_TEMPLATES
from tests.answer.walks import calls, content, read, reasoning

THINK = ReasoningFormat("<think>", "</think>")
SCHEMA = JsonSchema({"type": "object", "properties": {"name": {"type": "string"}}})
OTHERS = {
    "qwen 3": ("hermes", templates.QWEN3),
    "mistral 11": ("mistral", templates.MAGISTRAL),
    "mistral with ids": ("mistral", templates.MISTRAL_CALL_ID),
    "mistral list": ("mistral", templates.MISTRAL_LIST),
    "granite 3": ("granite", GRANITE_3),
    "deepseek r1": ("deepseek v3", DEEPSEEK_R1_CALLS),
    "no calls": ("plain", templates.CHATML),
}
BY_TEMPLATE = {
    name: detect(template, ()).tools
    for name, template in (
        *((name, template.text) for name, template in TOOL_TEMPLATES.items()),
        *((name, template) for name, (_, template) in OTHERS.items()),
    )
}


def spelled(format: SpelledCalls, *called: Call) -> str:
    """Calls as the model writes them."""
    ids = {"id": format.ids.new()} if isinstance(format.ids, ShortIds) else {}
    return format.spelled(
        {"name": name, "arguments": format.written(each), **ids} for name, each in called
    )


@pytest.mark.parametrize("name", TOOL_TEMPLATES)
def test_what_a_template_writes_is_admitted_and_read_back_in_every_split(name: str) -> None:
    template = TOOL_TEMPLATES[name]
    report = check(template.text)
    assert report.format.tools.name == template.format
    assert report.format.tools.parallel == template.parallel
    assert report.failed == {}
    assert {"one call", "all kinds of values", "no arguments", "text"} <= set(report.passed)
    assert ("three calls" in report.passed) == template.parallel


@pytest.mark.parametrize("name", OTHERS)
def test_texts_of_other_templates_are_admitted_and_read_back(name: str) -> None:
    format, template = OTHERS[name]
    report = check(template)
    assert report.format.tools.name == format
    assert report.failed == {}
    assert {"one call", "three calls", "text"} <= set(report.passed)


def test_histories_that_leave_out_what_the_prompt_opens_are_no_failures() -> None:
    template = TOOL_TEMPLATES["qwen 2.5"].text
    opened = template.replace("'<|assistant|>'", "'<|assistant|><think>'")
    for before in ("", "</think>"):
        report = check(
            opened.replace("{{- message.content", "{{- '" + before + "' + message.content")
        )
        assert report.failed == {}
        assert set(report.passed) == set(TURNS)
        assert report.notes == ([] if before else ["history has no <think>"])


def test_a_word_that_models_put_before_free_content_is_removed() -> None:
    word = "助手："
    template = TOOL_TEMPLATES["hunyuan"].text + "{#以" + word + "开头#}"
    said = "{%- else %}{{- '" + word + "' + message.content }}"
    report = check(template.replace("{%- else %}{{- message.content }}", said))
    assert report.failed == {}
    reader = AnswerReader(report.format, use=ToolUse(TOOLS), content_first=False)
    assert content(read(reader, [word])) == word, "content with a constraint keeps every word"
    assert content(read(AnswerReader(report.format, use=ToolUse(TOOLS)), [word[:1]])) == word[:1]


def test_parts_of_a_history_that_answers_do_not_have_are_reported() -> None:
    template = TOOL_TEMPLATES["qwen 2.5"].text
    for written, cause in (
        (template.replace("'\\n</tool_call>'", "' \\n</tool_call>'"), "blanks around marks"),
        (template.replace("arguments | tojson", "arguments | tojson(indent=2)"), "indented JSON"),
    ):
        assert set(check(written).causes.values()) == {cause}


@pytest.mark.parametrize("name", BY_TEMPLATE)
def test_calls_follow_reasoning_and_stand_beside_a_schema(name: str) -> None:
    """``response_format`` with tools: the answer is JSON of the schema, or calls."""
    format = BY_TEMPLATE[name]
    assert isinstance(format, SpelledCalls)
    use, called = ToolUse(TOOLS), [ULM, FULL] if format.parallel else [FULL]
    language = with_reasoning(answer(SCHEMA, use, format), THINK, "possible")
    for text, content_text in ((spelled(format, *called), ""), ('{"name": "get"}',) * 2):
        thought = f"<think>\nhm\n</think>\n\n{text}"
        assert walker().admits(language, text)
        assert walker().admits(language, thought)
        for chunks in splits(thought):
            whole = ChatFormat(format, THINK)
            reader = AnswerReader(whole, opening="possible", use=use, content_first=False)
            pieces = read(reader, chunks)
            assert reasoning(pieces) == "hm"
            assert content(pieces) == content_text
            found = [(call, json.loads(arguments)) for call, arguments in calls(pieces)]
            assert found == ([] if content_text else called)


@pytest.mark.parametrize("name", BY_TEMPLATE)
def test_a_format_takes_no_further_text_after_its_calls(name: str) -> None:
    format = BY_TEMPLATE[name]
    assert isinstance(format, SpelledCalls)
    language = answer(None, ToolUse(TOOLS, "required"), format)
    text = spelled(format, ULM)
    assert walker().admits(language, text)
    assert not walker().admits(language, text + " ")
    quote = format.notation.quote if isinstance(format.notation, Literals) else '"'
    more = f"Ulm{quote}, {quote}x{quote}: {quote}"
    assert not walker().admits(language, text.replace("Ulm", more))
    assert not walker().admits(language, text.replace("get_weather", "get_news"))


def test_a_template_that_writes_no_calls_is_given_them_as_text() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "get", "arguments": {"key": "é"}}}
    said = {"role": "assistant", "content": "So.", "tool_calls": [call]}
    given = template_input(Conversation([said], TOOLS), detect(GRANITE_3, ()))
    assert given.messages == [
        {
            "role": "assistant",
            "content": 'So.\n<|tool_call|>[{"name": "get", "arguments": {"key": "é"}}]',
        }
    ]
    assert given.tools is not None


TURNS_ALTERNATE = """\
{%- set ns = namespace(odd=false) %}
{%- for each in messages if each.role != 'tool' and each.tool_calls is not defined %}
{%- if (each.role == 'assistant') != ns.odd %}{{ raise_exception('not in turn') }}{% endif %}
{%- set ns.odd = not ns.odd %}
{%- endfor %}"""


@pytest.mark.parametrize("turns_alternate", [False, True])
def test_a_template_that_writes_calls_otherwise_is_given_them_as_text(
    turns_alternate: bool,
) -> None:
    function = {"name": "get", "arguments": {"key": "é's", "n": None}}
    call = {"id": "1", "type": "function", "function": function}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "12"},
        {"role": "assistant", "content": "Twelve."},
    ]
    template = TOOL_TEMPLATES["llama 3.2 pythonic"].text
    format = detect(TURNS_ALTERNATE * turns_alternate + template, ())
    said = template_input(Conversation(messages, TOOLS), format).messages
    assert said[1] == {"role": "assistant", "content": '[get(key="é\'s", n=None)]'}
    if turns_alternate:
        assert said[2] == {"role": "user", "content": "Result of get:\n12"}
    else:
        assert said[2]["role"] == "tool"
    writes_calls = detect(TOOL_TEMPLATES["olmo 3"].text, ())
    assert "tool_calls" in template_input(Conversation(messages, TOOLS), writes_calls).messages[1]


def test_marks_of_strings_are_found_as_the_tokens_they_are() -> None:
    assert set(BY_TEMPLATE["gemma 4"].marks()) == {"<|tool_call>", "<tool_call|>", '<|"|>'}


def test_a_template_that_shows_no_tools_has_a_message_that_does_in_the_models_own_form() -> None:
    given = template_input(
        Conversation([{"role": "user", "content": "?"}], TOOLS), detect(DEEPSEEK_R1_CALLS, ())
    )
    assert given.tools is None
    system = given.messages[0]["content"]
    assert "<｜tool▁sep｜>NAME\n```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜>" in system
    assert '"name":"stop-clock"' in system


def test_arguments_are_text_for_templates_that_write_them_as_they_are() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "get", "arguments": {"key": "é"}}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    for name, arguments in (("functionary 3.1", '{"key": "é"}'), ("qwen 2.5", {"key": "é"})):
        given = template_input(Conversation([said], TOOLS), detect(TOOL_TEMPLATES[name].text, ()))
        assert given.messages[0]["tool_calls"][0]["function"]["arguments"] == arguments


def test_ids_of_kimi_are_the_function_and_the_number_of_the_call() -> None:
    made = [
        {"id": id, "type": "function", "function": {"name": "get", "arguments": {}}}
        for id in ("x0", "x1", "x1")  # some clients use ids again
    ]
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]} for call in made] + [
        {"role": "tool", "tool_call_id": "x1", "content": "1"}
    ]
    given = template_input(
        Conversation(messages, TOOLS), detect(TOOL_TEMPLATES["kimi k2"].text, ())
    )
    ids = [call["id"] for message in given.messages for call in message.get("tool_calls", ())]
    assert ids == ["functions.get:0", "functions.get:1", "functions.get:2"]
    assert given.messages[3]["tool_call_id"] == "functions.get:2"


def test_marks_of_every_family_are_found_as_the_tokens_they_are() -> None:
    assert set(BY_TEMPLATE["deepseek v3"].marks()) == {
        "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>",
    }  # fmt: skip
    assert set(BY_TEMPLATE["command r7b"].marks()) == {"<|START_ACTION|>", "<|END_ACTION|>"}
    assert set(BY_TEMPLATE["nemotron nano 2"].marks()) == {"<TOOLCALL>", "</TOOLCALL>"}
