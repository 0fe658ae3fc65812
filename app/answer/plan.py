"""The form of an answer, decided once, when its prompt is rendered.

    conversation, content, tools  ->  prompt  ->  AnswerPlan  ->  bytes  ->  pieces

HTTP handles both ends of this line; the engine only sees tokens, bytes and states. The reader
parses every text that the constraint admits in exactly one way, so content and arguments satisfy
their own constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.answer.confidence import ContentKind
from app.answer.fields import ClosedValue, ValueScanner
from app.answer.formats.chat import ChatFormat
from app.answer.formats.reasoning import (
    BARE,
    DEFAULT_REASONING,
    FALLBACK_REASONING,
    NEWLINES_BEFORE_ANSWER,
    ReasoningUse,
)
from app.answer.language import answer, free_content, is_open_ended, with_reasoning
from app.answer.pieces import CallArguments, CallStart, Content
from app.answer.prompt import Conversation, Opening, Prefill, Prompt, opening, render
from app.answer.reader import AnswerLocator, AnswerReader
from app.answer.tools import ToolUse
from app.core.composite import Composite
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidRequest
from app.core.images import ExpandedPrompt, PromptImages
from app.core.request import JsonLocator, ThinkingBudget
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex
from app.core.text import RenderedPrompt, Tokenizer

ANSWER_SHARE = 4
"""Reasoning leaves ``max_tokens // ANSWER_SHARE`` to a constrained answer by default."""


def prepare(
    prompt: Prompt,
    content: ConstraintSpec | None,
    tools: ToolUse | None,
    tokenizer: Tokenizer,
    format: ChatFormat,
    *,
    expand: Callable[[Sequence[int]], ExpandedPrompt] | None = None,
    room: int | None = None,
    add_special_tokens: bool = True,
) -> AnswerPlan:
    """Tokenize ``prompt`` and plan the answers to it. Any thread may call it.

    ``expand`` inserts the tokens of images. ``room``: maximum tokens of a prompt with a schema
    nobody asked for; a longer one is rendered without it. Raises ``InvalidRequest``.
    """
    rendered = render(prompt, tokenizer, format, add_special_tokens)
    if expand is not None:
        expanded = expand(rendered.tokens)
        rendered = replace(rendered, tokens=expanded.tokens, images=expanded.images)
    if not isinstance(prompt, Conversation):
        return AnswerPlan.of(rendered, content, tools, format)
    shown = prompt.schema_prompt
    optional = shown is not None and shown.schema and not shown.asked
    if shown is not None and optional and room is not None and len(rendered.tokens) > room:
        without = replace(prompt, schema_prompt=replace(shown, schema=""))
        return prepare(without, content, tools, tokenizer, format, expand=expand)
    shows_schema = None if shown is None else bool(shown.schema)
    plan = AnswerPlan.of(rendered, content, tools, format, prompt.reasoning, shows_schema)
    return plan if prompt.prefill is None else plan.with_prefill(prompt.prefill, tokenizer.encode)


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """The plan of the answers to one prompt."""

    prompt: Sequence[int]
    """Tokens of the prompt."""
    opening: Opening
    format: ChatFormat
    content: ConstraintSpec | None
    """Constraint on the content; None: any text."""
    tools: ToolUse | None
    constraint: ConstraintSpec | None
    """Constraint on the whole answer, with reasoning and calls; None: any text."""
    open_ended: bool
    """The constraint ends in free text: an answer that ``max_tokens`` ends there was cut."""
    reasoning: ReasoningUse
    shows_schema: bool | None = None
    """Whether the prompt shows the content's schema; False: it was too long."""
    images: PromptImages | None = None
    """Images of the prompt, with their places."""
    prefill: Prefill | None = None
    """The client's prefill of the answer."""
    prefill_text: str = ""
    """Text of the prefill, with the marks around it: the prompt ends with it."""

    @classmethod
    def of(
        cls,
        prompt: RenderedPrompt,
        content: ConstraintSpec | None,
        tools: ToolUse | None,
        format: ChatFormat,
        reasoning: ReasoningUse = DEFAULT_REASONING,
        shows_schema: bool | None = None,
    ) -> AnswerPlan:
        """Raises ``InvalidRequest`` for a function whose parameters no object can satisfy."""
        format = _fitted(format, prompt.tail)
        if format.reasoning is None and reasoning.wanted:
            format = replace(format, reasoning=FALLBACK_REASONING)
        again = None if reasoning.wanted is False else format.reasoning
        whole = unreasoned = answer(content, tools, format.tools, format.content, again)
        start: Opening = "closed"
        if format.reasoning is not None and prompt.tail is not None:
            start = opening(prompt.tail, format.reasoning)
            if reasoning.wanted and start != "open":
                start = "needed"
            barred = reasoning.wanted is False
            if start != "closed" and (barred or start == "needed" or reasoning.is_limited):
                # Free text too: the constraint has to require its marks, or exclude them.
                unreasoned = unreasoned or Composite(free_content(format.content))
            whole = with_reasoning(unreasoned, format.reasoning, start, barred=barred)
            if barred and start == "possible" and not format.reasoning.unreasoned:
                start = "closed"
        return cls(
            prompt.tokens,
            start,
            format,
            content,
            tools,
            whole,
            unreasoned is not None and is_open_ended(unreasoned),
            reasoning,
            shows_schema,
            prompt.images,
        )

    def with_prefill(self, prefill: Prefill, encode: Callable[[str], Sequence[int]]) -> AnswerPlan:
        """The plan of answers that continue ``prefill``; ``encode`` tokenizes it.

        Raises ``InvalidRequest`` if it starts a call, or is reasoning and the answer has none.
        """
        reasoning, around = self.format.reasoning, self.format.content
        text = around.begin + prefill.content
        reasons = reasoning is not None and self.opening != "closed"
        if not prefill.content and not reasons:
            raise InvalidRequest(
                "the assistant prefill is reasoning, but this answer has none; prefill content",
                role="prompt",
            )
        if reasoning is not None and reasons:
            line = "\n" if reasoning.end.startswith("</") else ""
            thought = prefill.reasoning
            if self.opening != "open":
                thought = reasoning.begin + (f"{line}{thought}" if thought else "")
            if not prefill.content:
                text = thought
            elif self.opening == "possible" and not prefill.reasoning:
                text = reasoning.unreasoned + text
            else:
                behind = reasoning.then or "\n" * NEWLINES_BEFORE_ANSWER
                text = f"{thought}{line}{reasoning.end}{behind}{text}"
        plan = replace(
            self, prompt=[*self.prompt, *encode(text)], prefill=prefill, prefill_text=text
        )
        reader = plan.answer_reader()
        reader.push(text)
        if reader.in_calls:
            raise InvalidRequest(
                "the assistant prefill starts a tool call; prefill text", role="prompt"
            )
        return plan

    @property
    def image_tokens(self) -> int:
        """Tokens of the prompt that stand for images."""
        seen = () if self.images is None else self.images.images
        return sum(each.image.num_tokens for each in seen)

    def thinking_budget(self, max_tokens: int) -> ThinkingBudget | None:
        """The budget of the reasoning, if a constrained part follows it."""
        reasoning = self.format.reasoning
        if reasoning is None or self.opening == "closed" or self.constraint is None:
            return None
        if self.prefill is not None and self.prefill.content:
            return None
        begin = "" if self.opening == "open" or self.prefill_text else reasoning.begin
        kept, limit = max_tokens // ANSWER_SHARE, self.reasoning.limit(max_tokens)
        if limit is not None:
            kept = max(max_tokens - limit, 0)
        return ThinkingBudget(kept, reasoning.end.encode(), begin.encode())

    @property
    def has_json(self) -> bool:
        """Whether the content, or the arguments of calls, are JSON values for certain."""
        return self.content_is == "json" or self.tools is not None

    @property
    def translates(self) -> bool:
        """Whether arguments are written in a notation of the model's own, and not as JSON."""
        return self.tools is not None and not self.format.tools.in_json

    @property
    def is_text(self) -> bool:
        """Whether the content is the only value, and a text."""
        return self.content_is == "text" and self.tools is None

    @property
    def locator(self) -> Callable[[], JsonLocator] | None:
        """Makes the locator of an answer's values; None: the whole answer is one."""
        located = self.is_text or self.content_is == "json"
        if located and self.is_content_alone:
            return None
        return lambda: AnswerLocator(self.answer_reader(), content=located)

    def closed_value(self, choice: int, text: bytes) -> ClosedValue | None:
        """The JSON value that is being written where ``text``, an answer's beginning, ends.

        Cost: O(text), a millisecond for each KB.
        """
        if not self.has_json:
            return None
        whole = self.prefill_text + text.decode(errors="ignore")
        name, written = None, list[str]()
        is_json = self.content_is == "json"
        if self.is_content_alone:
            written.append(whole)
        else:
            for piece in self.answer_reader().push(whole):
                match piece:
                    case CallStart():
                        name, written = piece.name, []
                    case CallArguments() | Content():
                        is_json = is_json or isinstance(piece, CallArguments)
                        written.append(piece.text)
        if not is_json:
            return None
        scanner = ValueScanner()
        scanner.push("".join(written).encode())
        tools = () if self.tools is None else self.tools.tools
        is_input = any(tool.custom and tool.name == name for tool in tools)
        return ClosedValue(choice, name, "" if is_input else scanner.pointer)

    @property
    def content_is(self) -> ContentKind:
        match self.content:
            case JsonSchema() | JsonObject():
                return "json"
            case Choice() | Regex() | Grammar():
                return "text"
        return "free"

    @property
    def is_content_alone(self) -> bool:
        """Whether nothing but content can come: no marks need be looked for."""
        around = self.format.content
        return self.tools is None and self.opening == "closed" and not (around.begin or around.end)

    def answer_reader(self) -> AnswerReader:
        """A reader of the text of one answer."""
        return AnswerReader(
            self.format, opening=self.opening, use=self.tools, content_first=self.content is None
        )


def _fitted(format: ChatFormat, tail: str | None) -> ChatFormat:
    """``format`` for answers to a prompt that ends in ``tail``; None: it is no conversation."""
    reasoning, around = format.reasoning, format.content
    if tail is None:
        return replace(format, reasoning=None, content=BARE)
    if around.begin and tail.endswith(around.begin):
        return replace(format, reasoning=None, content=replace(around, begin=""))
    if reasoning is not None and reasoning.begin.startswith("\n") and tail.endswith("\n"):
        return replace(format, reasoning=replace(reasoning, begin=reasoning.begin.lstrip()))
    return format
