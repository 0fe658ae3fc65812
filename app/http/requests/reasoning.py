"""How much a request wants its answers to reason, in OpenAI's and in OpenRouter's words.

``reasoning_effort`` is OpenAI's field; ``reasoning`` is OpenRouter's, and that of Responses, which
has ``effort`` alone: https://openrouter.ai/docs/use-cases/reasoning-tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from app.answer.reasoning import ReasoningUse, share_of
from app.core.errors import InvalidRequest
from app.http.config import ApiConfig
from app.http.requests.wire import Effort, Wire

_SWITCHES = ("enable_thinking", "thinking")
_GRADED = ("reasoning_effort", "reasoning_strength", "thinking_effort")
"""Variables that tell a model how much."""
_WITHOUT = ("none", "minimal")
"""Efforts that are no reasoning at all."""


class ReasoningFields(Wire):
    effort: Effort | None = None
    max_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Extension of Responses: the most tokens for reasoning; 0 is none."""
    exclude: bool | None = None
    """Extension of Responses: reason, but do not show it."""
    enabled: bool | None = None
    """Extension of Responses: whether to reason, where nothing else says so."""


class ThinkingSwitch(Wire):
    """The field ``thinking`` where it only says whether to reason."""

    type: Literal["enabled", "disabled", "adaptive", "auto"]
    budget_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None


def with_thinking(
    fields: ReasoningFields | None, switch: ThinkingSwitch | None
) -> ReasoningFields | None:
    """``fields`` and what ``switch`` says. Raises ``InvalidRequest`` where they disagree."""
    if switch is None or switch.type in ("adaptive", "auto"):
        return fields
    said = {"enabled": switch.type == "enabled", "max_tokens": switch.budget_tokens}
    before = fields or ReasoningFields()
    for name, value in said.items():
        if value is not None and getattr(before, name) not in (None, value):
            raise InvalidRequest(
                f"thinking and reasoning.{name} differ; send one of them", param="thinking"
            )
    return before.model_copy(update={k: v for k, v in said.items() if v is not None})


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of the reasoning, and what the chat template is told of it."""

    use: ReasoningUse
    options: dict[str, Any]


def asked_reasoning(
    fields: ReasoningFields | None,
    config: ApiConfig,
    *,
    effort: str | None = None,
    param: str = "reasoning",
) -> Asked:
    """``effort`` is the one that stands in a field of its own; ``param`` is the object's name.

    Raises ``InvalidRequest`` for fields that say the contrary of each other.
    """
    fields = fields or ReasoningFields()
    if effort is not None and fields.effort not in (None, effort):
        raise InvalidRequest(
            f"reasoning_effort and {param}.effort differ; send one of them", param=param
        )
    effort = effort or fields.effort
    wanted = fields.enabled
    for said in (
        None if effort is None else effort not in _WITHOUT,
        None if fields.max_tokens is None else fields.max_tokens > 0,
    ):
        if said is not None and wanted not in (None, said):
            raise InvalidRequest(
                f"{param} asks for reasoning and for none: enabled, effort and max_tokens have to "
                "agree",
                param=param,
            )
        wanted = wanted if said is None else said
    told = template_words(wanted, effort, fields.max_tokens, config)
    is_told = effort is not None and not config.chat_format.efforts.keys().isdisjoint(_GRADED)
    use = ReasoningUse(
        wanted=wanted,
        max_tokens=fields.max_tokens if wanted else None,
        share=None if effort is None or is_told else share_of(effort),
        shown=not fields.exclude,
    )
    return Asked(use, told)


def template_words(
    wanted: bool | None, effort: str | None, max_tokens: int | None, config: ApiConfig
) -> dict[str, Any]:
    """The same in the template's own words, as far as it has any."""
    known = config.chat_format.variables
    told: dict[str, Any] = {}
    if wanted is not None:
        told |= {name: wanted for name in _SWITCHES if name in known}
    for name, words in config.chat_format.efforts.items():
        if effort is not None or wanted is False:
            told[name] = words[effort or "none"]
        elif wanted and words["none"] not in ("minimal", "low"):
            told[name] = words["medium"]  # its default may be none
    if "thinking_budget" in known and (max_tokens is not None or wanted is False):
        told["thinking_budget"] = max_tokens if wanted else 0
    return told
