"""Answers as chat templates render them: the text that a message adds to the prompt."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

from app.answer.formats import ChatFormat
from app.answer.formats.reasoning import ReasoningFormat
from app.answer.prompt import Conversation, opening, template_input
from app.answer.tools import FunctionTool

_HALF_A_MARK = re.compile(r"<[^<>\s]*\Z|\[/?[A-Z_]*\Z")

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
                "units": {"type": "object", "properties": {"wind": {"type": "string"}}},
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
    """A message of the assistant."""

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


@dataclass(frozen=True, slots=True)
class Added:
    """An answer as the template renders it, without the end of the turn."""

    text: str
    prompt: str
    """The text before the answer; only its reasoning marks matter."""
    note: str = ""


def takes_system(template: str) -> bool:
    """Whether the template renders system messages, tested as in the tokenizer."""
    said = ({"role": "system", "content": "a system message"}, {"role": "user", "content": "x"})
    try:
        return "a system message" in render(template, said)
    except (jinja2.TemplateError, TypeError):
        return False


def added_answer(template: str, format: ChatFormat, turn: Turn) -> Added:
    """``turn`` as the template renders it. Raises the errors of the template."""
    prompt, text = _added(template, format, turn)
    text = text.removesuffix(_turn_end(template, format, turn, text))
    if format.reasoning is None:
        return Added(text, prompt)
    return _after_prompt(text, prompt, format.reasoning)


def _after_prompt(text: str, prompt: str, reasoning: ReasoningFormat) -> Added:
    """``text`` as the answer to ``prompt``: a history may lack the reasoning mark of a prompt."""
    begin, end = reasoning.begin.strip(), reasoning.end.strip()
    opened = opening(prompt, reasoning)
    begun = text.lstrip()
    if opened == "open":
        begun = begun.removeprefix(begin)
        if end in begun:
            return Added(begun, prompt)
        return Added(reasoning.end + begun, prompt, f"history has no {begin}")
    if begun.startswith(begin):
        return Added(text, "without reasoning")
    if opened == "closed" and begun.startswith(end):
        return Added(begun.removeprefix(end), prompt, f"history has no {begin}")
    return Added(text, prompt)


def _turn_end(template: str, format: ChatFormat, turn: Turn, text: str) -> str:
    """The end of the turn after the answer ``text``: the same for other answers."""
    said = Turn(content="SAID", reasoning=turn.reasoning)
    end = _added(template, format, said)[1].rpartition("SAID")[2]
    end = end.removeprefix(format.content.end)
    if end and text.endswith(end):
        return end
    if not turn.calls:
        return ""
    # A turn with calls may end differently, or the last turn of a conversation has no end.
    others = (Turn((each,)) for each in (STOP, MARKS, ("get", {"key": "key"})))
    ends = [_added(template, format, each)[1] for each in others]
    behind = os.path.commonprefix([each[::-1] for each in (text, *ends)])[::-1]  # noqa: RUF071
    marks = re.findall(r"<[^<>]+>\s*", behind)
    known = "".join(format.tools.marks()) + format.content.end
    while marks and marks[0].strip() in known:
        del marks[0]
    return "".join(marks)


def _added(template: str, format: ChatFormat, turn: Turn) -> tuple[str, str]:
    """A prompt, and the text that the message adds to it, with the begin mark of reasoning."""
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
    if start != prompt:  # the history may lack the mark that the prompt opens
        start = _HALF_A_MARK.sub("", start)
    if _QUESTION in after[len(start) :]:  # the last message is rendered differently
        start = after[: after.index(_QUESTION)] + prompt[prompt.index(_QUESTION) :]
        start = os.path.commonprefix([start, after])  # noqa: RUF071
    begin = "" if format.reasoning is None else format.reasoning.begin.rstrip()
    if begin and start.rstrip().endswith(begin):
        start = start.rstrip().removesuffix(begin)
    text = after[len(start) :]
    asked = rendered(template, format, [question], add_generation_prompt=False)
    head = prompt.removeprefix(asked).lstrip()
    if head and text.lstrip().startswith(head):  # newlines before it differ
        text = text.lstrip().removeprefix(head)
    return prompt, text


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
    """The text of a conversation by the template, prepared as in the server."""
    given = template_input(Conversation(messages, TOOLS), format)
    return render(
        template, given.messages, given.tools, add_generation_prompt=add_generation_prompt
    )


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    add_generation_prompt: bool = True,
) -> str:
    """The text of a conversation by the template alone."""
    texts: Any = render_jinja_template(
        conversations=[[dict(message) for message in messages]],
        tools=None if tools is None else [dict(tool) for tool in tools],
        chat_template=template,
        add_generation_prompt=add_generation_prompt,
        eos_token=EOS,
        bos_token="",
    )
    return str(texts[0][0])
