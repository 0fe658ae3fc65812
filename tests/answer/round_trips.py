"""Round trips through a chat template: the calls that it renders are valid answers.

A conversation that ends with an assistant message is rendered without that message and with it: the
difference is the answer as the model has seen it in training. The constraint has to admit it, and
the reader has to return the content of the message, for every split of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import jinja2

from app.answer.formats import ChatFormat, detect
from app.answer.plan import AnswerPlan
from app.answer.reader import AnswerReader
from app.answer.tools import ToolUse
from app.core.text import RenderedPrompt
from tests.answer.rendered import TOOLS, TURNS, Added, Turn, added_answer, takes_system
from tests.answer.walks import Walker, calls, content, read, reasoning
from tests.wide import many

_BLANKS_AT_MARKS = re.compile(r" +(?=\n?<)|(?<=>) +|^ +")


@dataclass(slots=True)
class Report:
    """The results for one template."""

    format: ChatFormat
    refused: dict[str, str] = field(default_factory=dict)
    """Turns that the template does not support, with the reason; they are not failures."""
    failed: dict[str, str] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    """For failed turns: the part of the rendered text that no answer has; "": unknown."""
    notes: list[str] = field(default_factory=list)
    """Differences between histories and prompts."""
    passed: list[str] = field(default_factory=list)

    @property
    def is_chat(self) -> bool:
        """Whether the template rendered any turn; those of embedding and ranking models do not."""
        return bool(self.passed or self.failed)


def check(template: str, special_tokens: Sequence[str] = ()) -> Report:
    """All round trips of ``template``."""
    found = detect(template, special_tokens)
    report = Report(replace(found, takes_system=takes_system(template)))
    for name, turn in TURNS.items():
        tools = report.format.tools
        if turn.content and turn.calls and tools.trigger is None:
            report.refused[name] = "an answer is text or calls"
            continue
        if len(turn.calls) > 1 and not tools.parallel:
            report.refused[name] = "an answer has one call"
            continue
        try:
            added = added_answer(template, report.format, turn)
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, RecursionError) as error:
            report.refused[name] = f"{type(error).__name__}: {error}"
            continue
        if not _is_written(turn, added.text):
            report.refused[name] = "the template does not write it"
            continue
        if added.note and added.note not in report.notes:
            report.notes.append(added.note)
        failure = _failure(report.format, turn, added)
        if failure:
            report.failed[name] = f"{failure}: {added.text!r}"
            report.causes[name] = _cause(report.format, turn, added)
        else:
            report.passed.append(name)
    return report


def _failure(format: ChatFormat, turn: Turn, added: Added) -> str:
    """The failure in the round trip of an answer; "" if there is none."""
    use, text = ToolUse(TOOLS), added.text
    plan = AnswerPlan.of(RenderedPrompt((), added.prompt), None, use, format)
    if not walker().admits(plan.constraint, text):
        return "not admitted"
    for chunks in splits(text):
        reader = AnswerReader(plan.format, opening=plan.opening, use=use)
        pieces = read(reader, chunks)
        found = [(name, json.loads(arguments)) for name, arguments in calls(pieces)]
        if found != list(turn.calls):
            return f"read as {found} in {chunks}"
        if content(pieces).strip() != (turn.content if turn.content in text else ""):
            return f"content {content(pieces)!r} in {chunks}"
        if reasoning(pieces) != (turn.reasoning if turn.reasoning in text else ""):
            return f"reasoning {reasoning(pieces)!r} in {chunks}"
    return ""


def _cause(format: ChatFormat, turn: Turn, added: Added) -> str:
    """The part of the history that answers do not have; "" if it is unknown."""
    text = added.text
    if not turn.calls and text.endswith(turn.content):
        return f"{text.removesuffix(turn.content)!r} before content"
    ways = {
        "blanks around marks": _behind(
            _BLANKS_AT_MARKS.sub("", added.prompt), _BLANKS_AT_MARKS.sub("", text)
        ),
        "indented JSON": re.sub(
            r",\n\s+", ", ", re.sub(r"(?<=[\[{])\n\s*|\n\s*(?=[\]}])", "", text)
        ),
    }
    for name, way in ways.items():
        if way != text and not _failure(format, turn, Added(way, added.prompt)):
            return name
    if not turn.calls:
        return ""
    if _last_line(added.prompt, format) in text:
        return "several messages"
    if turn.content and text.endswith(turn.content):
        return "content behind calls"
    lead = format.tools.leads([turn.calls[0][0]])[0]
    before, found, behind = text.partition(lead)
    if not found:
        return f"calls without {lead!r}"
    if not _failure(format, turn, Added(found + behind, added.prompt)):
        return f"{before!r} before calls"
    return ""


def _last_line(prompt: str, format: ChatFormat) -> str:
    """Last line of a prompt without its reasoning mark: the beginning of the answer's message."""
    begin = "" if format.reasoning is None else format.reasoning.begin.strip()
    return prompt.rstrip().removesuffix(begin).rstrip().splitlines()[-1]


def _behind(prompt: str, text: str) -> str:
    """``text`` without the end of the prompt, if that is repeated."""
    sizes = range(min(len(prompt), len(text)), 0, -1)
    return text[next((size for size in sizes if prompt.endswith(text[:size])), 0) :]


def _is_written(turn: Turn, text: str) -> bool:
    if turn.calls:
        return all(name in text for name, _ in turn.calls)
    return turn.content in text


def splits(text: str) -> Iterator[list[str]]:
    """``text`` whole, in characters, and split at every position.

    ``make test-all`` splits it in two each time, ``make test`` in pieces of about 40 characters.
    """
    yield [text]
    yield list(text)
    size = many(len(text), len(text) // 40 + 1)
    for at in range(1, size + 1):
        yield [text[:at], *(text[start : start + size] for start in range(at, len(text), size))]


@cache
def walker() -> Walker:
    return Walker([])
