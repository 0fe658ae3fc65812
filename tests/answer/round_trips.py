"""Round trips through a chat template: what it renders of calls is what answers may be.

A conversation whose last message the assistant wrote is rendered without that message and with it:
what is added is the answer as the model has seen it. It has to be in the language that is admitted,
and the reader has to give back what the message says, in every split.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

from app.answer.formats import ChatFormat, detect
from app.answer.language import answer, with_reasoning
from app.answer.prompt import Conversation, Opening, prepare
from app.answer.reader import AnswerReader
from app.answer.tools import FunctionTool, ToolUse
from tests.answer.walks import Walker, calls, content, read, reasoning

_LAST_MARK = re.compile(r"<[^<>]+>\s*\Z")

_WITH_LAST_MARK = re.compile(r"(?<=[>\n\]])[^>\n\]]*\Z")
"""What follows the last character that may end a mark."""

EOS = "<|the_end_of_sequence|>"

_QUESTION = "How is the weather?"

TOOLS = (
    FunctionTool(
        "get_weather",
        "Tells the weather.",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "units": {"type": "object", "properties": {"wind": {"enum": ["kn", "m/s"]}}},
                "hours": {"type": "array", "items": {"type": "number"}},
                "rain": {"type": "boolean"},
            },
            "required": ["city"],
        },
    ),
    FunctionTool("stop-clock", "Stops the clock.", {"type": "object", "properties": {}}),
    FunctionTool("get", "", {"type": "object", "properties": {"key": {"type": "string"}}}),
)

Call = tuple[str, dict[str, Any]]
ULM: Call = ("get_weather", {"city": "Ulm"})
FULL: Call = (
    "get_weather",
    {"city": 'São "Ulm"', "days": 3, "units": {"wind": "m/s"}, "hours": [1, 2.5], "rain": False},
)
STOP: Call = ("stop-clock", {})
MARKS: Call = ("get", {"key": 'a\n"}</tool_call>\t\\ 12'})


@dataclass(frozen=True, slots=True)
class Turn:
    """What the assistant says."""

    calls: tuple[Call, ...] = ()
    content: str = ""
    reasoning: str = ""


TURNS = {
    "one call": Turn((ULM,)),
    "all kinds of values": Turn((FULL,)),
    "no arguments": Turn((STOP,)),
    "marks in a string": Turn((MARKS,)),
    "text and a call": Turn((ULM,), "Let me see."),
    "three calls": Turn((ULM, STOP, FULL)),
    "reasoning and a call": Turn((ULM,), reasoning="The user asks\nfor rain."),
    "text": Turn(content="It rains."),
}


@dataclass(slots=True)
class Report:
    """What was found of one template."""

    format: ChatFormat
    refused: dict[str, str] = field(default_factory=dict)
    """Turns that the template does not take, and why: no failures."""
    failed: dict[str, str] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)


def check(template: str, special_tokens: Sequence[str] = ()) -> Report:
    """All round trips of ``template``."""
    report = Report(detect(template, special_tokens))
    for name, turn in TURNS.items():
        tools = report.format.tools
        if turn.content and turn.calls and tools.trigger is None:
            report.refused[name] = "an answer is text or calls"
            continue
        if len(turn.calls) > 1 and not tools.parallel:
            report.refused[name] = "an answer has one call"
            continue
        try:
            rendered = rendered_answer(template, report.format, turn)
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, RecursionError) as error:
            report.refused[name] = f"{type(error).__name__}: {error}"
            continue
        failure = _failure(report.format, turn, rendered)
        if failure:
            report.failed[name] = f"{failure}: {rendered!r}"
        else:
            report.passed.append(name)
    return report


def rendered_answer(template: str, format: ChatFormat, turn: Turn) -> str:
    """``turn`` as the template writes it, without what ends it.

    Raises what the template raises.
    """
    end = _added(template, format, Turn(content="SAID")).rpartition("SAID")[2]
    end = end.removeprefix(format.content.end)
    added = _added(template, format, turn)
    return added.removesuffix(end) if added.endswith(end) else _LAST_MARK.sub("", added)


def _added(template: str, format: ChatFormat, turn: Turn) -> str:
    """What the message adds to the prompt, a mark that begins reasoning included."""
    question = {"role": "user", "content": _QUESTION}
    function_calls = [
        {"id": f"call_{number}", "type": "function", "function": _function(call)}
        for number, call in enumerate(turn.calls)
    ]
    said: dict[str, Any] = {"role": "assistant", "content": turn.content}
    if function_calls:
        said["tool_calls"] = function_calls
    if turn.reasoning:
        said["reasoning_content"] = turn.reasoning
    prompt = rendered(template, format, [question])
    after = rendered(template, format, [question, said], add_generation_prompt=False)
    start = os.path.commonprefix([prompt, after])  # noqa: RUF071 - of characters
    if start != prompt:  # the history need not show what the prompt opens
        start = _WITH_LAST_MARK.sub("", start)
    if _QUESTION in after[len(start) :]:  # it is written in another way when it is the last
        start = after[: after.index(_QUESTION)] + prompt[prompt.index(_QUESTION) :]
        start = os.path.commonprefix([start, after])  # noqa: RUF071
    begin = "" if format.reasoning is None else format.reasoning.begin.rstrip()
    if begin and start.rstrip().endswith(begin):
        start = start.rstrip().removesuffix(begin)
    return after[len(start) :]


def _function(call: Call) -> dict[str, Any]:
    name, arguments = call
    return {"name": name, "arguments": arguments}


def rendered(
    template: str,
    format: ChatFormat,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
) -> str:
    """The text that the template makes of a conversation, prepared as the server does."""
    given = prepare(Conversation(messages, TOOLS), format)
    texts: Any = render_jinja_template(
        conversations=[[dict(message) for message in given.messages]],
        tools=None if given.tools is None else [dict(tool) for tool in given.tools],
        chat_template=template,
        add_generation_prompt=add_generation_prompt,
        eos_token=EOS,
        bos_token="",
    )
    return str(texts[0][0])


def _failure(format: ChatFormat, turn: Turn, text: str) -> str:
    """What is wrong with the round trip of ``text``; nothing if all is well."""
    use = ToolUse(TOOLS)
    opening: Opening = "closed"
    language = answer(None, use, format.tools, format.content)
    if format.reasoning is not None:
        opening = "possible"
        language = with_reasoning(language, format.reasoning, opening)
    assert language is not None
    if not walker().admits(language, text):
        return "not admitted"
    for chunks in splits(text):
        reader = AnswerReader(format, opening=opening, use=use)
        pieces = read(reader, chunks)
        found = [(name, json.loads(arguments)) for name, arguments in calls(pieces)]
        if found != list(turn.calls):
            return f"read as {found} in {chunks}"
        if content(pieces).strip() != (turn.content if turn.content in text else ""):
            return f"content {content(pieces)!r} in {chunks}"
        if reasoning(pieces) != (turn.reasoning if turn.reasoning in text else ""):
            return f"reasoning {reasoning(pieces)!r} in {chunks}"
    return ""


def splits(text: str) -> Iterator[list[str]]:
    """``text`` whole, in characters, and in two everywhere."""
    yield [text]
    yield list(text)
    for at in range(1, len(text)):
        yield [text[:at], text[at:]]


@cache
def walker() -> Walker:
    return Walker([])
