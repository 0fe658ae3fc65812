"""What an answer is: decided once, when its prompt is rendered, and looked up from then on.

    conversation, content, tools  ->  prompt  ->  AnswerPlan  ->  bytes  ->  pieces

HTTP speaks the words at both ends; the engine knows tokens, bytes and states alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.answer.choice import ChoiceReader
from app.answer.formats import ChatFormat
from app.answer.language import answer, is_open_ended, with_reasoning
from app.answer.prompt import PreparedPrompt
from app.answer.reader import AnswerReader
from app.answer.tools import ToolUse
from app.core.constraint import ConstraintSpec
from app.core.request import ThinkingBudget

ANSWER_SHARE = 4
"""Reasoning leaves one in so many of ``max_tokens`` to the answer that a constraint asks for."""


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """The plan of the answers to one prompt."""

    prompt: PreparedPrompt
    format: ChatFormat
    content: ConstraintSpec | None
    """What the content has to be; None: any text."""
    tools: ToolUse | None
    constraint: ConstraintSpec | None
    """All that the answer may be, its reasoning and its calls included; None: any text."""
    open_ended: bool
    """The constraint ends in free text: an answer that ``max_tokens`` ends there was cut."""

    @classmethod
    def of(
        cls,
        prompt: PreparedPrompt,
        content: ConstraintSpec | None,
        tools: ToolUse | None,
        format: ChatFormat,
    ) -> AnswerPlan:
        """Raises ``InvalidRequest`` for a function whose parameters no object can satisfy."""
        whole = unreasoned = answer(content, tools, format.tools)
        if format.reasoning is not None:
            whole = with_reasoning(unreasoned, format.reasoning, prompt.opening)
        open_ended = unreasoned is not None and is_open_ended(unreasoned)
        return cls(prompt, format, content, tools, whole, open_ended)

    @property
    def may_reason(self) -> bool:
        return self.format.reasoning is not None and self.prompt.opening != "closed"

    def thinking_budget(self, max_tokens: int) -> ThinkingBudget | None:
        """Tokens that are kept for what follows the reasoning, where that is constrained."""
        reasoning = self.format.reasoning
        if reasoning is None or not self.may_reason or self.constraint is None:
            return None
        begin = reasoning.begin if self.prompt.opening == "possible" else ""
        return ThinkingBudget(max_tokens // ANSWER_SHARE, reasoning.end.encode(), begin.encode())

    def reader(self, index: int) -> ChoiceReader:
        """What takes the choice ``index`` apart."""
        if self.tools is None and not self.may_reason:
            return ChoiceReader(index, None)
        reader = AnswerReader(
            self.format,
            opening=self.prompt.opening,
            tools=() if self.tools is None else self.tools.names,
            content_first=self.content is None,
        )
        return ChoiceReader(index, reader, self.format.tools.id_length)
