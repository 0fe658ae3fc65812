"""What requests tell the prompt beside their messages: the answer's schema, template variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic_core import to_json

from app.answer.schema_prompt import MOST_CHARACTERS, Told, told_schema
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidRequest
from app.core.specs import JsonSchema
from app.http.config import ApiConfig
from app.http.requests.constraints import JsonSchemaResponse, ResponseFormat
from app.http.requests.ignored import Ignored
from app.http.requests.wire import refusal

SchemaInPrompt = Literal["auto", True, False]

_SET_HERE = frozenset(
    [
        *("add_generation_prompt", "chat_template", "continue_final_message", "documents"),
        *("messages", "tokenize", "tools"),
    ]
)
"""Variables that have fields of their own in requests, or none (CVE-2025-62426)."""

_LONGEST = 4096
"""Bytes of all options as JSON."""


def template_options(
    given: Mapping[str, Any] | None, config: ApiConfig, ignored: Ignored
) -> dict[str, Any]:
    """``chat_template_kwargs``: those that the template reads; the others are left out by name.

    Raises ``InvalidRequest`` for those that the server sets, and for more than ``_LONGEST``.
    """
    options: dict[str, Any] = {}
    for name, value in (given or {}).items():
        param = f"chat_template_kwargs.{name}"
        if name in _SET_HERE:
            raise refusal(param, "it is not for chat_template_kwargs to set; leave it out")
        if name in config.chat_format.variables:
            options[name] = value
        else:
            ignored.leave_out(param, f"{param} is not read by this model's chat template")
    if len(to_json(options)) > _LONGEST:
        raise InvalidRequest(
            f"chat_template_kwargs has more than {_LONGEST} bytes as JSON, the limit; shorten it",
            param="chat_template_kwargs",
        )
    return options


def told(
    asked: SchemaInPrompt | None,
    content: ConstraintSpec | None,
    config: ApiConfig,
    format: ResponseFormat | None = None,
    *,
    by_format: bool = False,
) -> Told | None:
    """What the prompt tells of ``content``; None: nothing.

    ``format``, or ``by_format``: it was asked for as OpenAI's and Anthropic's APIs have it, whose
    servers tell the model. Raises ``InvalidRequest`` where there is nothing to tell though it was
    asked for.
    """
    if not isinstance(content, JsonSchema):
        if asked is True:
            raise InvalidRequest(
                "schema_in_prompt tells the model the JSON Schema of its answer, and this request "
                "has none; give one, or leave schema_in_prompt out",
                param="schema_in_prompt",
            )
        return None
    default: SchemaInPrompt = "auto"
    if config.schema_in_prompt != "auto":
        default = config.schema_in_prompt == "true"
    mode = default if asked is None else asked
    by_format = (by_format or format is not None) and config.chat_format.reads_schemas
    if mode is False or (mode == "auto" and not by_format):
        return None
    named = format.inner if isinstance(format, JsonSchemaResponse) else None
    schema = told_schema(
        content.schema, named.name if named else None, named.description if named else None
    )
    if not schema:
        return None
    too_long = asked is not True and len(schema) > MOST_CHARACTERS
    return Told("" if too_long else schema, asked=asked is True)
