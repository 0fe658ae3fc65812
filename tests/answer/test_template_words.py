"""Names of reasoning variables and fields, detected in the text of a template."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.answer.formats import detect
from app.answer.formats.reasoning import effort_words, reasoning_fields
from app.answer.prompt import Conversation, template_input
from tests.answer.reasoners import HARMONY, REASONERS

WRITTEN = "{{ 'Reasoning: ' + reasoning_effort }}"
CLOSED = "{% if reasoning_effort not in ['high', 'low', 'no_think'] %}{{ raise_exception() }}"
SHORT = "{% if reasoning_effort in ['low', 'minimal'] %}<think></think>{% endif %}"
FOLDED = '{{ reasoning_effort | lower == "none" }}'
MODE = "{% if thinking_mode == 'enabled' %}{% elif thinking_mode == 'disabled' %}{% endif %}"
MORE = "{% if reasoning_effort == 'max' %}Think hard.{% endif %}"


@pytest.mark.parametrize(
    ("template", "variable", "words"),
    [
        (WRITTEN, "reasoning_effort", "low low low medium high high high"),
        (CLOSED, "reasoning_effort", "no_think no_think low high high high high"),
        (SHORT, "reasoning_effort", "minimal minimal low medium high high high"),
        (FOLDED, "reasoning_effort", "none none low medium high high high"),
        (MORE, "reasoning_effort", "low low low medium high max max"),
        (MODE, "thinking_mode", "disabled disabled enabled enabled enabled enabled enabled"),
        (WRITTEN.replace("reasoning_effort", "reasoning_strength"), "reasoning_strength",
         "low low low medium high high high"),
    ],
)  # fmt: skip
def test_each_effort_is_the_nearest_word_that_the_template_takes(
    template: str, variable: str, words: str
) -> None:
    found = effort_words(template, [variable, "messages"])
    assert list(found) == [variable]
    assert " ".join(found[variable].values()) == words


def test_a_variable_that_the_template_sets_itself_is_not_passed() -> None:
    assert effort_words(WRITTEN, ["messages"]) == {}
    assert detect(HARMONY, ()).efforts.keys() == {"reasoning_effort"}


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("{{ message.reasoning_content }}", {"reasoning_content"}),
        ("{{ m['reasoning'] or m.get('thinking') }}", {"reasoning", "thinking"}),
        ('{% if "thought" in m %}', {"thought"}),
        ("{{ enable_thinking }} {{ reasoning }} {{ m.thinking_budget }}", set()),
    ],
)
def test_reasoning_is_handed_over_under_the_names_that_are_read(
    template: str, names: set[str]
) -> None:
    assert reasoning_fields(template) == names


def test_reasoning_of_the_history_goes_where_the_template_reads_it() -> None:
    said = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
    for name, field in (("gemma", "reasoning"), ("command r7b", "thinking")):
        (given,) = template_input(Conversation([said]), detect(REASONERS[name], ())).messages
        assert given == {"role": "assistant", "content": "Yes.", field: "Hm."}
    blocks = "{{ '[THINK]' + block['thinking'] + '[/THINK]' }}"
    (given,) = template_input(Conversation([said]), detect(blocks, ())).messages
    assert given["content"] == [
        {"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Yes."},
    ]  # fmt: skip
    function = {"name": "f", "arguments": {}}
    call = {**said, "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    (given,) = template_input(Conversation([call]), detect(blocks, ())).messages
    thoughts, text = given["content"]  # the template writes no calls: they are text
    assert thoughts["thinking"] == "Hm."
    assert text["text"].startswith('Yes.\n\n{"tool_calls": ')
    marked = replace(detect(blocks, ()), image_marker="[IMG]")
    (given,) = template_input(Conversation([{**said, "content": "[IMG]"}]), marked).messages
    assert given["content"][1]["text"] != "[IMG]"  # it stays text, and no image
