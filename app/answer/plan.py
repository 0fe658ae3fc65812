"""What an answer is: decided once, when its prompt is rendered, and looked up from then on.

    conversation, content, tools  ->  prompt  ->  AnswerPlan  ->  bytes  ->  pieces

HTTP speaks the words at both ends; the engine knows tokens, bytes and states alone. Every text that
the constraint admits reads in one way (``reader``), so what content or arguments are validated
against is what was constrained.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from app.answer.choice import ChoiceReader
from app.answer.confidence_reader import ConfidenceReader, ContentKind
from app.answer.fields import FieldReader
from app.answer.formats.calls import ToolFormat
from app.answer.formats.chat import ChatFormat
from app.answer.formats.reasoning import NEWLINES_BEFORE_ANSWER, ReasoningFormat
from app.answer.locator import AnswerLocator
from app.answer.prompt import Opening, opening
from app.answer.reader import AnswerReader
from app.answer.reasoning import AS_IT_IS, UNTAUGHT, ReasoningUse
from app.answer.spans import Quotable, SpanReader
from app.answer.tools import ToolUse
from app.core.composite import (
    Composite,
    Either,
    FixedText,
    FreeText,
    NotStarting,
    Part,
    Repeated,
    Series,
)
from app.core.constraint import ConstraintSpec
from app.core.request import JsonLocator, ThinkingBudget
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex
from app.core.text import RenderedPrompt

_JSON_BEGINNING = re.compile(r'["{\d\-tfn]|\[($|[\s\[\]"{\d\-tfn])')

ANSWER_SHARE = 4
"""Reasoning leaves one in so many of ``max_tokens`` to the answer that a constraint asks for."""


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """The plan of the answers to one prompt."""

    prompt: Sequence[int]
    """In tokens."""
    opening: Opening
    format: ChatFormat
    content: ConstraintSpec | None
    """What the content has to be; None: any text."""
    tools: ToolUse | None
    constraint: ConstraintSpec | None
    """All that the answer may be, its reasoning and its calls included; None: any text."""
    open_ended: bool
    """The constraint ends in free text: an answer that ``max_tokens`` ends there was cut."""
    reasoning: ReasoningUse

    @classmethod
    def of(
        cls,
        prompt: RenderedPrompt,
        content: ConstraintSpec | None,
        tools: ToolUse | None,
        format: ChatFormat,
        reasoning: ReasoningUse = AS_IT_IS,
    ) -> AnswerPlan:
        """Raises ``InvalidRequest`` for a function whose parameters no object can satisfy."""
        if format.reasoning is None and reasoning.wanted:
            format = replace(format, reasoning=UNTAUGHT)
        whole = unreasoned = answer(content, tools, format.tools)
        start: Opening = "closed"
        if format.reasoning is not None and prompt.tail is not None:
            start = opening(prompt.tail, format.reasoning)
            if reasoning.wanted and start != "open":
                start = "needed"
            barred = reasoning.wanted is False
            if start != "closed" and (barred or start == "needed" or reasoning.is_limited):
                # Free text as well: its marks have to be asked for, or ruled out.
                unreasoned = unreasoned or Composite(FreeText())
            if unreasoned is not None and barred and start == "possible":
                body = _part(unreasoned)
                bounded = _not_starting(body, [format.reasoning.begin])
                whole = unreasoned if bounded is body else Composite(bounded)
                start = "closed"
            else:
                whole = with_reasoning(unreasoned, format.reasoning, start, empty=barred)
        open_ended = unreasoned is not None and is_open_ended(unreasoned)
        return cls(prompt.tokens, start, format, content, tools, whole, open_ended, reasoning)

    def thinking_budget(self, max_tokens: int) -> ThinkingBudget | None:
        """Tokens that are kept for what follows the reasoning, where that is constrained."""
        reasoning = self.format.reasoning
        if reasoning is None or self.opening == "closed" or self.constraint is None:
            return None
        begin = "" if self.opening == "open" else reasoning.begin
        kept, limit = max_tokens // ANSWER_SHARE, self.reasoning.limit(max_tokens)
        if limit is not None:
            kept = max(max_tokens - limit, 0)
        return ThinkingBudget(kept, reasoning.end.encode(), begin.encode())

    @property
    def has_json(self) -> bool:
        """Whether the content, or the arguments of calls, are JSON values for certain."""
        return self._content_is == "json" or self.tools is not None

    @property
    def is_text(self) -> bool:
        """Whether the only value is the content, and that a text."""
        return self._content_is == "text" and self.tools is None

    @property
    def locator(self) -> Callable[[], JsonLocator] | None:
        """Makes what finds the values of an answer; None: it is one."""
        located = self.is_text or self._content_is == "json"
        if located and self._is_content_alone:
            return None
        return lambda: AnswerLocator(self._answer_reader(), content=located)

    def reader(
        self,
        index: int,
        *,
        confidence: bool = False,
        exact: bool = False,
        texts: Quotable | None = None,
    ) -> ChoiceReader:
        """What takes the choice ``index`` apart.

        ``confidence``: that of its values, too; ``exact``: where choices are not, too; ``texts``:
        where values stand in these, too.
        """
        confidences = None
        if confidence or exact:
            confidences = ConfidenceReader(self._content_is, listed=confidence)
        spans = None if texts is None else self._span_reader(texts)
        if self._is_content_alone:
            return ChoiceReader(index, None, confidence=confidences, spans=spans)
        reader = self._answer_reader()
        tools = () if self.tools is None else self.tools.tools
        custom = frozenset(tool.name for tool in tools if tool.custom)
        ids = self.format.tools.ids
        shown = self.reasoning.shown
        return ChoiceReader(index, reader, ids, confidences, spans, custom, shows_reasoning=shown)

    def field_reader(self) -> FieldReader:
        """What finds the values of a choice as they become whole."""
        return FieldReader(content=self._content_is == "json")

    def _span_reader(self, texts: Quotable) -> SpanReader:
        content = self.content.schema if isinstance(self.content, JsonSchema) else None
        tools = () if self.tools is None else self.tools.tools
        return SpanReader(content, {tool.name: tool.parameters for tool in tools}, texts)

    @property
    def _content_is(self) -> ContentKind:
        match self.content:
            case JsonSchema() | JsonObject():
                return "json"
            case Choice() | Regex() | Grammar():
                return "text"
        return "free"

    @property
    def _is_content_alone(self) -> bool:
        return self.tools is None and self.opening == "closed"

    def _answer_reader(self) -> AnswerReader:
        return AnswerReader(
            self.format,
            opening=self.opening,
            use=self.tools,
            content_first=self.content is None,
        )


def answer(
    content: ConstraintSpec | None, use: ToolUse | None, format: ToolFormat
) -> ConstraintSpec | None:
    """What follows the reasoning. ``content`` None is free text; None back is free as a whole.

    Raises ``InvalidRequest`` for parameters that no object can satisfy by their type alone.
    """
    if use is None:
        return content
    calls = format.calls(use)
    if use.mode == "required":
        return Composite(calls)
    if content is not None:
        return Composite(Either((_not_starting(_part(content), format.leads(use.names)), calls)))
    if format.trigger is not None:
        text = FreeText(without=(format.trigger,))
        return Composite(Series((text, Repeated(calls, at_most=1))))
    # Text that begins like a call has to become one: it need not be told apart by the name.
    return Composite(Either((_not_starting(FreeText(), format.heads()), calls)))


def with_reasoning(
    answer: ConstraintSpec | None,
    format: ReasoningFormat,
    opening: Opening,
    *,
    empty: bool = False,
) -> ConstraintSpec | None:
    """``answer`` after reasoning, or after none: see ``prompt.opening``. None stays None.

    ``empty``: the reasoning ends where it begins.
    """
    if answer is None or opening == "closed":
        return answer
    body = _part(answer)
    constrained = (leaf for leaf in _first_leaves(body) if not isinstance(leaf, FreeText))
    if any(_may_start(leaf, "\n") for leaf in constrained):
        # The answer's own newlines must not be taken for those before it: all of these are there.
        gap: Part = FixedText("\n" * NEWLINES_BEFORE_ANSWER)
    else:
        gap = Repeated(FixedText("\n"), at_most=NEWLINES_BEFORE_ANSWER)
    thoughts = () if empty else (FreeText(without=(format.end,)),)
    reasoned: Part = Series((*thoughts, FixedText(format.end), gap, body))
    if opening == "open":
        return Composite(reasoned)
    reasoned = Series((FixedText(format.begin), reasoned))
    if opening == "needed":
        return Composite(reasoned)
    return Composite(Either((_not_starting(body, [format.begin]), reasoned)))


def is_open_ended(spec: ConstraintSpec) -> bool:
    """Whether an answer may end inside free text, where ``max_tokens`` cuts it."""
    return isinstance(spec, Composite) and _ends_free(spec.root)


def _part(spec: ConstraintSpec) -> Part:
    return spec.root if isinstance(spec, Composite) else spec


def _not_starting(part: Part, marks: Iterable[str]) -> Part:
    """The texts of ``part`` before which the reader finds none of ``marks``."""
    leaves = list(_first_leaves(part))
    # The reader may pass over newlines before a mark.
    prefixes = (
        "\n" * count + mark for mark in marks for count in range(NEWLINES_BEFORE_ANSWER + 1)
    )
    relevant = tuple(each for each in prefixes if any(_may_start(leaf, each) for leaf in leaves))
    return NotStarting(part, relevant) if relevant else part


def _first_leaves(part: Part) -> Iterator[Part]:
    """The parts that may hold the first character, and perhaps some that cannot."""
    match part:
        case Series(parts):
            for each in parts:
                yield from _first_leaves(each)
                if not _may_be_empty(each):
                    return
        case Either(parts):
            for each in parts:
                yield from _first_leaves(each)
        case Repeated(inner, separator):
            yield from _first_leaves(inner)
            if _may_be_empty(inner):
                yield from _first_leaves(FixedText(separator))
        case FixedText(""):
            return
        case NotStarting(inner):
            yield from _first_leaves(inner)
        case _:
            yield part


def _may_be_empty(part: Part) -> bool:
    """False only where it is certain."""
    match part:
        case FixedText(text):
            return not text
        case Series(parts):
            return all(map(_may_be_empty, parts))
        case Either(parts):
            return any(map(_may_be_empty, parts))
        case Repeated(inner, _, at_least):
            return at_least == 0 or _may_be_empty(inner)
        case NotStarting(inner):
            return _may_be_empty(inner)
        case JsonSchema() | JsonObject():
            return False
        case Choice(options):
            return "" in options
    return True


def _may_start(leaf: Part, prefix: str) -> bool:
    """Whether a text that begins with ``leaf`` may begin with ``prefix``; False if certain."""
    match leaf:
        case FixedText(text):
            return _agree(text, prefix)
        case Choice(options):
            return any(_agree(option, prefix) for option in options)
        case JsonSchema() | JsonObject():
            return _JSON_BEGINNING.match(prefix) is not None
    return True


def _agree(text: str, prefix: str) -> bool:
    """Whether one begins with the other: what follows ``text`` may complete ``prefix``."""
    return text.startswith(prefix) or prefix.startswith(text)


def _ends_free(part: Part) -> bool:
    match part:
        case FreeText():
            return True
        case Series(parts):
            for each in reversed(parts):
                if _ends_free(each):
                    return True
                if not _is_optional(each):
                    return False
            return False
        case Either(parts):
            return any(map(_ends_free, parts))
        case Repeated(inner) | NotStarting(inner):
            return _ends_free(inner)
    return False


def _is_optional(part: Part) -> bool:
    """Whether nothing is a text of ``part``, as far as its shape tells."""
    leaf = isinstance(part, JsonSchema | JsonObject | Regex | Choice | Grammar)
    return not leaf and _may_be_empty(part)
