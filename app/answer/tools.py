"""Functions that an answer may call: which and how often, and the texts of the calls."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.answer.formats import ToolFormat
from app.core.composite import Either, FixedText, Part, Repeated, Series
from app.core.errors import InvalidRequest, InvalidSchema
from app.core.specs import JsonSchema, OnUnsupported, Regex

MOST_CALLS = 16
"""Calls of one answer: a model that repeats itself would go on until its budget is spent."""

_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}

_LONELY_REF = re.compile(r"json-schema\.org/draft-0[3-7]/")
"""Drafts in which ``$ref`` has no keywords beside it that count (draft 7, section 8.3)."""

_KEPT_BESIDE_REF = ("$schema", "$defs", "definitions")


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function that an answer may call."""

    name: str
    description: str | None = None
    parameters: Any = None
    """JSON Schema of the arguments; None: there are none."""
    strict: bool | None = None
    """False leaves objects open, as the specification does; else they are closed."""
    custom: bool = False
    """Whether calls have one text in place of arguments (``app.answer.custom``)."""
    shown: Any = None
    """What the prompt shows in place of ``parameters``; None: those."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Which functions an answer may call."""

    tools: tuple[FunctionTool, ...]
    mode: Literal["auto", "required"] = "auto"
    """Content or calls, or calls alone."""
    parallel: bool = True
    """Whether there may be several calls."""
    whitespace: str = "spaced"
    """In arguments, as in ``JsonSchema``."""

    on_unsupported: OnUnsupported | None = None
    """What becomes of keywords that cannot be enforced; None: strict functions are refused."""

    def relaxes(self, tool: FunctionTool) -> bool:
        """Whether the function's parameters are relaxed where they cannot be enforced."""
        if self.on_unsupported is not None:
            return self.on_unsupported == "relax"
        return tool.strict is not True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.tools)


def new_call_id(length: int | None) -> str:
    """An id that the model's chat template takes back: so many letters and digits.

    None: in OpenAI's form.
    """
    if length is None:
        return f"call_{secrets.token_hex(12)}"
    alphabet = string.ascii_letters + string.digits
    return "".join(secrets.choice(alphabet) for _ in range(length))


def calls_of(use: ToolUse, format: ToolFormat) -> Part:
    """The texts of one call or several.

    Raises ``InvalidRequest`` for parameters that no object can satisfy by their type alone.
    """
    calls = Repeated(
        Either(tuple(_call(tool, use, format) for tool in use.tools)),
        separator=format.separator,
        at_least=1,
        at_most=MOST_CALLS if use.parallel and format.parallel else 1,
    )
    return Series((FixedText(format.begin), calls, FixedText(format.end)))


def _call(tool: FunctionTool, use: ToolUse, format: ToolFormat) -> Part:
    named, arguments = format.opening + tool.name, _arguments(tool, use)
    head: tuple[Part, ...] = (FixedText(named + format.middle),)
    if format.id_mark is not None:
        call_id = Regex(f"[a-zA-Z0-9]{{{format.id_length}}}")
        head = (FixedText(named + format.id_mark), call_id, FixedText(format.middle))
    return Series((*head, arguments, FixedText(format.closing)))


def _arguments(tool: FunctionTool, use: ToolUse) -> Part:
    """Any object for ``{"type": "object"}``; without parameters none, as OpenAI has it."""
    parameters = _NO_PARAMETERS if tool.parameters is None else tool.parameters
    try:
        schema = objects_of(parameters)
    except InvalidSchema as error:
        raise InvalidRequest(
            f"the parameters of the function {tool.name!r} have to describe an object: "
            f"{error.reason}",
            param="tools",
        ) from error
    return JsonSchema(
        schema,
        close_objects=tool.strict is not False,
        whitespace=use.whitespace,
        subject=subject_of(tool.name),
        relax=use.relaxes(tool),
    )


def subject_of(name: str) -> str:
    """What errors about the parameters of the function ``name`` are about."""
    return f"the parameters of the function {name!r}"


def objects_of(schema: Any) -> Any:
    """A schema for the JSON objects that are valid against ``schema``.

    Raises ``InvalidSchema`` if its type leaves out objects.
    """
    if schema is True:
        return {"type": "object"}
    if not isinstance(schema, Mapping):
        return schema  # no object (false), or no schema
    dialect = schema.get("$schema")
    if "$ref" in schema and isinstance(dialect, str) and _LONELY_REF.search(dialect):
        kept = {key: schema[key] for key in _KEPT_BESIDE_REF if key in schema}
        return {**kept, "type": "object", "allOf": [{"$ref": schema["$ref"]}]}
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise InvalidSchema(f"the type has to be 'object', not {kind!r}", pointer="/type")
    return {**schema, "type": "object"}
