"""Reasoning marks of models: texts of their templates are admitted and read back."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from app.answer.formats import detect
from app.answer.formats.reasoning import BARE, DEFAULT_REASONING, ReasoningUse
from app.answer.pieces import CallStart
from app.answer.plan import AnswerPlan
from app.answer.prompt import Conversation, Opening, template_input
from app.answer.tools import FunctionTool, ToolUse
from app.core.constraint import ConstraintSpec
from app.core.request import ThinkingBudget
from app.core.specs import JsonObject, JsonSchema, Regex
from app.core.text import RenderedPrompt
from tests.answer.reasoners import HARMONY, REASONERS
from tests.answer.rendered import render
from tests.answer.round_trips import splits
from tests.answer.walks import Walker, calls, content, cut, read, reasoning
from tests.wide import many

format_of = cache(lambda template: detect(template, ()))
MARKS = sorted(
    {mark for template in REASONERS.values() for mark in format_of(template).markers()}
    | {"analysis", "commentary", "final", " to=functions.", "json", "assistant", "thought"}
)
WALKER = Walker([*MARKS, "\n\n", '{"n": 1}', "f", "g"])
QUESTION = {"role": "user", "content": "Hi"}
OPENED = {"think, opened", "command", "kimi k3", "apriel"}
SCHEMA = JsonSchema({"type": "object", "properties": {"n": {"type": "integer"}}})
TOOLS = (
    FunctionTool("f", "", {"type": "object", "properties": {"n": {"type": "integer"}}}),
    FunctionTool("g", "", None),
)
CONTENTS: dict[str, ConstraintSpec | None] = {
    "json": SCHEMA,
    "text": None,
    "marks": Regex(r"\{<\|END_RESPONSE\|>\}|a(</response>|<\|END_TEXT\|>)*"),
}


def rendered(template: str, *messages: Mapping[str, Any], prompts: bool = False) -> str:
    given = template_input(Conversation(messages), format_of(template))
    return render(template, given.messages, add_generation_prompt=prompts)


@cache
def prompt_of(template: str) -> str:
    return rendered(template, QUESTION, prompts=True)


def planned(
    template: str,
    content: ConstraintSpec | None = None,
    tools: ToolUse | None = None,
    use: ReasoningUse = DEFAULT_REASONING,
    prompt: str | None = None,
) -> AnswerPlan:
    tail = prompt_of(template) if prompt is None else prompt
    return AnswerPlan.of(RenderedPrompt([1], tail[-64:]), content, tools, format_of(template), use)


def answer_of(template: str, message: Mapping[str, Any]) -> str:
    """The text that the template adds to the prompt for the assistant's ``message``."""
    prompt = prompt_of(template)
    whole = rendered(template, QUESTION, message)
    assert whole.startswith(prompt)
    return whole[len(prompt) :].removesuffix("<|call|>").removesuffix("<|end|>")


@pytest.mark.parametrize("name", REASONERS)
def test_what_a_template_renders_is_admitted_and_read_back_in_every_split(name: str) -> None:
    template = REASONERS[name]
    said = {"role": "assistant", "content": '{"n": 1}', "reasoning_content": "A lamp\nor two."}
    text = answer_of(template, said)
    assert "A lamp\nor two." in text, "the template did not render the reasoning"
    plan = planned(template, SCHEMA)
    assert plan.opening == ("open" if name in OPENED else "possible")
    assert WALKER.admits(plan.constraint, text)
    free = planned(template, use=ReasoningUse(max_tokens=30))
    assert WALKER.admits(free.constraint, text)
    for chunks in splits(text):
        for reader in (plan.answer_reader(), free.answer_reader()):
            pieces = read(reader, chunks)
            assert (reasoning(pieces), content(pieces)) == ("A lamp\nor two.", '{"n": 1}')


@pytest.mark.parametrize("name", REASONERS)
@pytest.mark.parametrize("kind", CONTENTS)
def test_whatever_is_admitted_is_read_as_it_was_constrained(name: str, kind: str) -> None:
    spec, randoms = CONTENTS[kind], random.Random(f"{name} {kind}")
    for wanted in (None, True, False):
        plan = planned(REASONERS[name], spec, use=ReasoningUse(wanted=wanted, max_tokens=9))
        for _ in range(many(4, 2)):
            text = WALKER.text(plan.constraint, randoms, budget=80)
            assert text is not None
            reader = plan.answer_reader()
            whole = content(read(reader, [text]))
            pieces = read(plan.answer_reader(), cut(text, randoms))
            assert content(pieces) == whole
            if spec is not None:
                assert WALKER.admits(spec, whole), text
            if wanted is False:
                assert reasoning(pieces) == ""


@pytest.mark.parametrize("name", REASONERS)
def test_reasoning_that_is_asked_for_has_to_begin_and_has_its_budget(name: str) -> None:
    plan = planned(REASONERS[name], SCHEMA, use=ReasoningUse(wanted=True, max_tokens=30))
    marks = plan.format.reasoning
    assert marks is not None
    begin = "" if name in OPENED else marks.begin
    assert plan.thinking_budget(100) == ThinkingBudget(70, marks.end.encode(), begin.encode())
    assert WALKER.forced(plan.constraint).startswith(begin)


@pytest.mark.parametrize("name", REASONERS)
def test_reasoning_that_is_not_wanted_is_ruled_out_or_ends_at_once(name: str) -> None:
    plan = planned(REASONERS[name], SCHEMA, use=ReasoningUse(wanted=False))
    marks = plan.format.reasoning
    assert marks is not None
    begins = marks.end if name in OPENED else plan.format.content.begin
    assert WALKER.forced(plan.constraint).startswith(begins)


@pytest.mark.parametrize(
    ("name", "tail", "opening"),
    [
        ("think", "<|bot|><think>\n\n</think>\n\n", "closed"),
        ("think", "<|bot|><think>\n", "open"),
        ("glm", "<|bot|>", "possible"),
        ("glm", "<|bot|>\n<think></think>", "closed"),
        ("gemma", "<|channel>thought\n<channel|>", "closed"),
        ("solar", "<|begin|>assistant<|think|><|end|><|begin|>assistant", "closed"),
        ("solar", "user<|content|>x<|end|><|begin|>assistant", "possible"),
        ("gpt-oss", "<|message|>x<|end|><|start|>assistant", "possible"),
        ("kimi k3", "<|bot|><|open|>response<|sep|>", "closed"),
        ("command", "<|START_THINKING|><|END_THINKING|>", "closed"),
    ],
)
def test_the_end_of_the_prompt_tells_where_an_answer_begins(
    name: str, tail: str, opening: Opening
) -> None:
    plan = planned(REASONERS[name], SCHEMA, prompt=tail)
    assert plan.opening == opening
    if name == "kimi k3":
        assert WALKER.admits(plan.constraint, '{"n": 1}<|close|>response<|sep|>')


def test_an_answer_without_reasoning_may_need_the_end_mark() -> None:
    plan = planned(REASONERS["minimax m3"], SCHEMA)
    assert WALKER.admits(plan.constraint, '</mm:think>{"n": 1}')
    assert not WALKER.admits(plan.constraint, '{"n": 1}')
    assert content(read(plan.answer_reader(), list('</mm:think>{"n": 1}'))) == '{"n": 1}'


def test_a_newline_before_the_mark_is_written_once_and_read_in_any_case() -> None:
    plan = planned(REASONERS["glm"], SCHEMA)
    assert WALKER.admits(plan.constraint, '\n<think>x</think>\n{"n": 1}')
    assert reasoning(read(plan.answer_reader(), ["<think>x</think>"])) == "x"
    behind = planned(REASONERS["glm"], SCHEMA, prompt="<|bot|>\n")
    assert WALKER.admits(behind.constraint, '<think>x</think>\n{"n": 1}')


CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"n": 1}'
OTHER_CALL = " to=functions.g<|channel|>commentary json<|message|>{}"
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
COMMENTARY = "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("kind", ["text", "json"])
@pytest.mark.parametrize(
    ("text", "said", "called"),
    [
        (CALL, "", [("f", '{"n": 1}')]),
        (OTHER_CALL, "", [("g", "{}")]),
        (THOUGHT + CALL, "", [("f", '{"n": 1}')]),
        (THOUGHT + THOUGHT + OTHER_CALL, "", [("g", "{}")]),
        (THOUGHT + COMMENTARY + CALL, "Wait.", [("f", '{"n": 1}')]),
        (COMMENTARY + THOUGHT + THOUGHT + CALL, "Wait.", [("f", '{"n": 1}')]),
        (THOUGHT + FINAL + '{"n": 2}', '{"n": 2}', []),
        (FINAL + '{"n": 2}', '{"n": 2}', []),
    ],
)
def test_harmony_is_one_language_of_messages(
    mode: Any, kind: str, text: str, said: str, called: list[tuple[str, str]]
) -> None:
    plan = planned(HARMONY, CONTENTS[kind], ToolUse(TOOLS, mode))
    admitted = (bool(called) or mode == "auto") and (kind == "text" or said != "Wait.")
    assert WALKER.admits(plan.constraint, text) == admitted
    if not admitted:
        return
    for chunks in splits(text):
        pieces = read(plan.answer_reader(), chunks)
        assert (content(pieces), calls(pieces)) == (said, called)
        assert reasoning(pieces) == "Hm." * text.count("Hm.")


def test_random_texts_of_harmony_are_read_as_they_were_constrained() -> None:
    randoms, seen = random.Random(5), {"calls": 0, "content": 0, "reasoning": 0}
    for kind in ("text", "json"):
        plan = planned(HARMONY, CONTENTS[kind], ToolUse(TOOLS))
        for start in ["", THOUGHT, THOUGHT + FINAL, CALL[:20], " to=", COMMENTARY + CALL[:30]] * 3:
            text = WALKER.text(plan.constraint, randoms, budget=60, start=start)
            if text is None:
                continue
            pieces = read(plan.answer_reader(), cut(text, randoms))
            found = calls(pieces)
            assert len(found) == sum(isinstance(piece, CallStart) for piece in pieces) <= 1
            for _, arguments in found:
                assert set(json.loads(arguments)) <= {"n"}
            if kind == "json" and not found:
                assert WALKER.admits(SCHEMA, content(pieces))
            seen["calls"] += bool(found)
            seen["content"] += bool(content(pieces))
            seen["reasoning"] += bool(reasoning(pieces))
    assert all(seen.values()), seen


def test_free_text_of_harmony_is_read_by_its_channels_without_a_constraint() -> None:
    plan = planned(HARMONY)
    assert plan.constraint is None
    in_json = FINAL.replace("<|message|>", " <|constrain|>json<|message|>")
    for text, thought in (
        (THOUGHT + FINAL + "Yes.", "Hm."),
        (FINAL + "Yes.", ""),
        (THOUGHT + in_json + "Yes.", "Hm."),
        (in_json.replace(" ", "") + "Yes.", ""),
        (in_json.replace("<|constrain|>", "") + "Yes.", ""),
    ):
        for chunks in splits(text):
            pieces = read(plan.answer_reader(), chunks)
            assert (reasoning(pieces), content(pieces)) == (thought, "Yes.")
    assert read(plan.answer_reader(), [THOUGHT + "<|channel|>fin"])[1:] == []
    assert read(plan.answer_reader(), ["<|channel|>final <|constr"]) == []
    barred = planned(HARMONY, None, ToolUse(TOOLS), ReasoningUse(wanted=False))
    assert WALKER.admits(barred.constraint, COMMENTARY + CALL)
    assert not WALKER.admits(barred.constraint, COMMENTARY + THOUGHT + CALL)


@pytest.mark.parametrize("name", ["solar", "command", "kimi k3"])
@pytest.mark.parametrize("kind", ["text", "json"])
def test_calls_that_a_template_does_not_know_are_content_to_the_model(name: str, kind: str) -> None:
    plan = planned(REASONERS[name], CONTENTS[kind], ToolUse(TOOLS), ReasoningUse(wanted=False))
    marks, around = plan.format.reasoning, plan.format.content
    assert marks is not None
    call = '{"tool_calls": [{"name": "f", "arguments": {"n": 1}}]}'
    before = marks.end if name in OPENED else ""
    for said, called in (('{"n": 1}', []), (call, [("f", '{"n": 1}')])):
        text = before + around.begin + said + around.end
        assert WALKER.admits(plan.constraint, text)
        for chunks in splits(text):
            pieces = read(plan.answer_reader(), chunks)
            assert (content(pieces), calls(pieces)) == ("" if called else said, called)


def test_free_text_is_open_ended_even_if_it_has_an_end_mark() -> None:
    for name, open_ended in (("command", True), ("solar", True)):
        plan = planned(REASONERS[name], use=ReasoningUse(max_tokens=9))
        assert plan.open_ended == open_ended
        assert not planned(REASONERS[name], SCHEMA, use=ReasoningUse(max_tokens=9)).open_ended


def test_all_marks_of_harmony_are_writable() -> None:
    assert detect(HARMONY, ()).markers() >= {
        "<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|constrain|>",
    }  # fmt: skip
    assert "<|call|>" not in detect(HARMONY, ()).markers(), "it ends the answer"


def test_a_call_of_harmony_is_written_back_as_the_template_has_it() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "g", "arguments": {}}}
    said = {
        "role": "assistant", "content": "Wait.", "reasoning_content": "Hm.", "tool_calls": [call],
    }  # fmt: skip
    text = answer_of(HARMONY, said)
    assert (
        text == f"<|channel|>analysis<|message|>Hm.\n\nWait.<|end|><|start|>assistant{OTHER_CALL}"
    )


def test_completions_of_text_have_no_marks() -> None:
    plan = AnswerPlan.of(RenderedPrompt([1]), JsonObject(), None, detect(HARMONY, ()))
    assert plan.constraint == JsonObject()
    assert (plan.format.reasoning, plan.format.content) == (None, BARE)
