"""What prompts have beside the messages: the schema, template variables, how much to reason.

``reasoning_effort`` is OpenAI's field; ``reasoning`` is OpenRouter's, and that of Responses, which
has ``effort`` alone: https://openrouter.ai/docs/use-cases/reasoning-tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_core import to_json

from app.answer.formats.reasoning import SHARES, ReasoningUse
from app.answer.schema_prompt import MOST_CHARACTERS, SchemaPrompt, schema_text
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidRequest
from app.core.specs import JsonSchema
from app.http.config import ApiConfig
from app.http.requests.constraints import JsonSchemaResponse, ResponseFormat
from app.http.requests.wire import Effort, Ignored, Wire, invalid

SchemaInPrompt = Literal["auto", True, False]

_SET_HERE = frozenset(
    [
        *("add_generation_prompt", "chat_template", "continue_final_message", "documents"),
        *("messages", "tokenize", "tools"),
    ]
)
"""Variables that requests may only set by other fields, or not at all (CVE-2025-62426)."""

_LONGEST = 4096
"""Maximum bytes of all options as JSON."""


def template_options(
    given: Mapping[str, Any] | None, config: ApiConfig, ignored: Ignored
) -> dict[str, Any]:
    """The ``chat_template_kwargs`` that the template reads; the others are ignored and reported.

    Raises ``InvalidRequest`` for variables that the server sets, and beyond ``_LONGEST``.
    """
    options: dict[str, Any] = {}
    for name, value in (given or {}).items():
        param = f"chat_template_kwargs.{name}"
        if name in _SET_HERE:
            raise invalid(param, "chat_template_kwargs cannot set it; leave it out")
        if name in config.chat_format.variables:
            options[name] = value
        else:
            ignored.leave_out(param, f"{param} is not used by this model's chat template")
    if len(to_json(options)) > _LONGEST:
        raise InvalidRequest(
            f"chat_template_kwargs has more than the limit of {_LONGEST} bytes as JSON; shorten it",
            param="chat_template_kwargs",
        )
    return options


def schema_prompt(
    asked: SchemaInPrompt | None,
    content: ConstraintSpec | None,
    config: ApiConfig,
    format: ResponseFormat | Literal["output_config"] | None,
) -> SchemaPrompt | None:
    """The schema of ``content`` as the prompt shows it; None: it shows none.

    ``format``: the field of OpenAI's or Anthropic's API that it is in, whose servers show it to
    the model. Raises ``InvalidRequest`` if the request wants a schema to be shown and has none.
    """
    if not isinstance(content, JsonSchema):
        if asked is True:
            raise InvalidRequest(
                "schema_in_prompt adds the JSON Schema of the answer to the prompt, and this "
                "request has none; give one, or leave schema_in_prompt out",
                param="schema_in_prompt",
            )
        return None
    default = {"auto": "auto", "true": True, "false": False}[config.schema_in_prompt]
    mode = default if asked is None else asked
    by_format = format is not None and config.chat_format.reads_schemas
    if mode is False or (mode == "auto" and not by_format):
        return None
    named = format.inner if isinstance(format, JsonSchemaResponse) else None
    schema = schema_text(
        content.schema, named.name if named else None, named.description if named else None
    )
    if not schema:
        return None
    too_long = asked is not True and len(schema) > MOST_CHARACTERS
    return SchemaPrompt("" if too_long else schema, asked=asked is True)


_SWITCHES = ("enable_thinking", "thinking")
_GRADED = ("reasoning_effort", "reasoning_strength", "thinking_effort")
"""Template variables for the reasoning effort."""
_WITHOUT = ("none", "minimal")
"""Efforts that mean no reasoning."""


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
    """``fields`` and ``switch`` together. Raises ``InvalidRequest`` where they disagree."""
    if switch is None or switch.type in ("adaptive", "auto"):
        return fields
    switched = {"enabled": switch.type == "enabled", "max_tokens": switch.budget_tokens}
    before = fields or ReasoningFields()
    for name, value in switched.items():
        if value is not None and getattr(before, name) not in (None, value):
            raise InvalidRequest(
                f"thinking and reasoning.{name} differ; send only one of them", param="thinking"
            )
    return before.model_copy(update={k: v for k, v in switched.items() if v is not None})


def asked_reasoning(
    fields: ReasoningFields | None,
    config: ApiConfig,
    *,
    effort: str | None = None,
    param: str = "reasoning",
) -> tuple[ReasoningUse, dict[str, Any]]:
    """How much answers reason, and the variables of the chat template for that.

    ``effort`` is the field ``reasoning_effort``; ``param`` is the name of ``fields``. Raises
    ``InvalidRequest`` for fields that contradict each other.
    """
    fields = fields or ReasoningFields()
    if effort is not None and fields.effort not in (None, effort):
        raise InvalidRequest(
            f"reasoning_effort and {param}.effort differ; send only one of them", param=param
        )
    effort = effort or fields.effort
    wanted = fields.enabled
    for implied in (
        None if effort is None else effort not in _WITHOUT,
        None if fields.max_tokens is None else fields.max_tokens > 0,
    ):
        if implied is not None and wanted not in (None, implied):
            raise InvalidRequest(
                f"{param} turns reasoning both on and off: enabled, effort and max_tokens must "
                "agree",
                param=param,
            )
        wanted = wanted if implied is None else implied
    is_graded = effort is not None and not config.chat_format.efforts.keys().isdisjoint(_GRADED)
    use = ReasoningUse(
        wanted=wanted,
        max_tokens=fields.max_tokens if wanted else None,
        share=None if effort is None or is_graded else SHARES.get(effort),
        shown=not fields.exclude,
    )
    return use, template_words(wanted, effort, fields.max_tokens, config)


def template_words(
    wanted: bool | None, effort: str | None, max_tokens: int | None, config: ApiConfig
) -> dict[str, Any]:
    """The chat template's variables that set the reasoning, if it has any."""
    known = config.chat_format.variables
    variables: dict[str, Any] = {}
    if wanted is not None:
        variables |= {name: wanted for name in _SWITCHES if name in known}
    for name, words in config.chat_format.efforts.items():
        if effort is not None or wanted is False:
            variables[name] = words[effort or "none"]
        elif wanted and words["none"] not in ("minimal", "low"):
            variables[name] = words["medium"]  # the template's own default may be no reasoning
    if "thinking_budget" in known and (max_tokens is not None or wanted is False):
        variables["thinking_budget"] = max_tokens if wanted else 0
    return variables
