"""Whether the prompt tells the model the schema of its answer."""

from __future__ import annotations

from app.answer.told import MOST_CHARACTERS, Told, told_schema
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidRequest
from app.core.specs import JsonSchema
from app.http.config import ApiConfig
from app.http.requests.generation import SchemaInPrompt


def told(
    asked: SchemaInPrompt | None,
    content: ConstraintSpec | None,
    config: ApiConfig,
    *,
    by_format: bool,
    name: str | None = None,
    description: str | None = None,
) -> Told | None:
    """What the prompt tells of ``content``; None: nothing.

    ``by_format``: it was asked for as OpenAI's and Anthropic's APIs have it, whose servers tell the
    model; ``name`` and ``description`` are those of the format. Raises ``InvalidRequest`` where
    there is nothing to tell though it was asked for.
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
    if mode is False or (mode == "auto" and not (by_format and config.chat_format.reads_schemas)):
        return None
    schema = told_schema(content.schema, name, description)
    if not schema:
        return None
    too_long = asked is not True and len(schema) > MOST_CHARACTERS
    return Told("" if too_long else schema, asked=asked is True)
