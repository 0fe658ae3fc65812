"""Kimi K3: calls follow the content, which may be empty; each argument has a type."""

from __future__ import annotations

import json
import random

import pytest

from app.answer.formats import detect
from app.answer.formats.reasoning import DEFAULT_REASONING, ReasoningUse
from app.answer.plan import AnswerPlan
from app.answer.tools import FunctionTool, ToolUse
from app.core.constraint import ConstraintSpec
from app.core.specs import JsonSchema, Regex
from app.core.text import RenderedPrompt
from tests.answer.rendered import TURNS
from tests.answer.round_trips import check, splits
from tests.answer.tool_templates import KIMI_K3
from tests.answer.walks import Walker, calls, content, cut, read, reasoning
from tests.wide import many

FORMAT = detect(KIMI_K3, ())
SCHEMA = JsonSchema({"type": "object", "properties": {"n": {"type": "integer"}}})
TOOL = FunctionTool(
    "f",
    "",
    {"type": "object", "properties": {"s": {"type": ["string", "null"]}, "n": {"type": "integer"}}},
)
THINKS = '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>'
SAYS = '<|open|>message role="assistant"<|sep|><|open|>response<|sep|>'
RESPONSE_BEGIN, RESPONSE_END = "<|open|>response<|sep|>", "<|close|>response<|sep|>"
CALL = (
    '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>'
    '<|open|>argument key="s" type="string"<|sep|>null<|close|>argument<|sep|>'
    '<|open|>argument key="n" type="number"<|sep|>12<|close|>argument<|sep|>'
    "<|close|>call<|sep|><|close|>tools<|sep|>"
)
WALKER = Walker([*FORMAT.markers(), RESPONSE_BEGIN, RESPONSE_END, "think", "response", '{"n": 1}'])


def planned(
    spec: ConstraintSpec | None,
    mode: str = "auto",
    prompt: str = THINKS,
    reasoning: ReasoningUse = DEFAULT_REASONING,
) -> AnswerPlan:
    use = ToolUse((TOOL,), "required" if mode == "required" else "auto")
    return AnswerPlan.of(RenderedPrompt([1], prompt), spec, use, FORMAT, reasoning)


def test_the_text_of_the_template_is_admitted_and_read_back_in_every_split() -> None:
    report = check(KIMI_K3)
    assert report.format.tools.name == "kimi k3"
    assert (report.failed, report.passed) == ({}, [*TURNS])


@pytest.mark.parametrize("prompt", [THINKS, SAYS])
@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("spec", [None, SCHEMA])
@pytest.mark.parametrize(
    ("said", "called"), [("", True), ('{"n": 1}', False), ("Well", True), ("Well", False)]
)
def test_an_answer_is_content_and_then_perhaps_calls(
    spec: ConstraintSpec | None, mode: str, prompt: str, said: str, called: bool
) -> None:
    plan = planned(spec, mode, prompt)
    thoughts = "Hm.<|close|>think<|sep|>" + RESPONSE_BEGIN if prompt == THINKS else ""
    text = thoughts + said + RESPONSE_END + CALL * called
    fits = (not said if called else said != "Well") if spec else True
    admitted = fits and (mode == "auto" or (called and not said))
    assert WALKER.admits(plan.constraint, text) == admitted
    assert not WALKER.admits(plan.constraint, thoughts + CALL), "content is there in any case"
    if not admitted:
        return
    for chunks in splits(text):
        pieces = read(plan.answer_reader(), chunks)
        assert content(pieces) == said
        assert reasoning(pieces) == ("Hm." if prompt == THINKS else "")
        found = [(name, json.loads(arguments)) for name, arguments in calls(pieces)]
        assert found == [("f", {"s": "null", "n": 12})] * called


def test_a_model_can_end_its_message_as_it_does_where_calls_might_follow() -> None:
    text = "Well" + RESPONSE_END + "<|close|>message<|sep|>"
    plan, free = (
        planned(None, prompt=SAYS),
        AnswerPlan.of(RenderedPrompt([1], SAYS), None, None, FORMAT),
    )
    assert WALKER.admits(plan.constraint, text)
    for each in (plan, free):
        for chunks in splits(text):
            assert content(read(each.answer_reader(), chunks)) == "Well"


def test_the_type_that_is_written_tells_a_string_from_null() -> None:
    plan = planned(None, prompt=SAYS)
    for type, value in (("null", None), ("string", "null")):
        written = RESPONSE_END + CALL.replace('type="string"', f'type="{type}"')
        assert WALKER.admits(plan.constraint, written)
        ((_, arguments),) = calls(read(plan.answer_reader(), [written]))
        assert json.loads(arguments)["s"] == value
    wrong = RESPONSE_END + CALL.replace('type="string"', 'type="number"')
    assert not WALKER.admits(plan.constraint, wrong)


@pytest.mark.parametrize("spec", [None, SCHEMA, Regex("(<.{0,20})?")])
@pytest.mark.parametrize("prompt", [THINKS, SAYS])
def test_whatever_is_admitted_is_read_as_it_was_constrained(
    spec: ConstraintSpec | None, prompt: str
) -> None:
    randoms, seen = random.Random(f"{spec} {prompt}"), {"calls": 0, "content": 0}
    plan = planned(spec, prompt=prompt, reasoning=ReasoningUse(max_tokens=9))
    for at in range(many(12, 2)):
        thoughts = "<|close|>think<|sep|>" + RESPONSE_BEGIN if prompt == THINKS else ""
        begins = ("", RESPONSE_END + "<|open|>tools<|sep|>", "{" if spec is SCHEMA else "<")
        start = thoughts + begins[at % 3]
        text = WALKER.text(plan.constraint, randoms, budget=90, start=start)
        assert text is not None
        pieces = read(plan.answer_reader(), cut(text, randoms))
        assert pieces == read(plan.answer_reader(), [text])
        if calls(pieces):
            seen["calls"] += 1
            assert all(set(json.loads(each)) <= {"s", "n"} for _, each in calls(pieces))
        else:
            assert spec is None or WALKER.admits(spec, content(pieces)), text
        seen["content"] += bool(content(pieces))
    assert all(seen.values()), seen


def test_marks_are_writable() -> None:
    assert FORMAT.markers() >= {"<|open|>", "<|close|>", "<|sep|>"}
