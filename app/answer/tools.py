"""Functions that an answer may call: which and how often, and their arguments.

OpenAI's custom tools take one text instead of arguments. Models only know functions, so the prompt
shows a function with the parameter ``input``, which the model calls in its usual format with
``{"input": "..."}``; clients get the text inside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.core.arguments import ignores_beside_ref
from app.core.errors import InvalidRequest, InvalidSchema
from app.core.specs import Grammar, JsonSchema, OnUnsupported, Regex

MOST_CALLS = 16
"""Default maximum of calls per answer: a model that repeats itself would use up its budget."""

_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}

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
    """Whether calls have one text in place of arguments (``app.answer.tools``)."""
    shown: Any = None
    """Parameters for the prompt, if they differ from ``parameters``."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Which functions an answer may call."""

    tools: tuple[FunctionTool, ...]
    mode: Literal["auto", "required"] = "auto"
    """auto: content or calls; required: only calls."""
    most_calls: int = MOST_CALLS
    """Maximum calls of one answer."""
    whitespace: str = "spaced"
    """White space in arguments, as in ``JsonSchema``."""
    on_unsupported: OnUnsupported | None = None
    """Handling of keywords that cannot be enforced; None: an error for strict functions only."""

    def relaxes(self, tool: FunctionTool) -> bool:
        """Whether the function's parameters are relaxed where they cannot be enforced."""
        if self.on_unsupported is not None:
            return self.on_unsupported == "relax"
        return tool.strict is not True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.tools)


def arguments_of(tool: FunctionTool, use: ToolUse) -> JsonSchema:
    """The constraint on arguments: any object for ``{"type": "object"}``, none without
    parameters, as at OpenAI.

    Raises ``InvalidRequest`` for parameters that no object can satisfy by their type alone.
    """
    parameters = _NO_PARAMETERS if tool.parameters is None else tool.parameters
    try:
        schema = objects_of(parameters)
    except InvalidSchema as error:
        raise InvalidRequest(
            f"the parameters of the function {tool.name!r} must describe an object: {error.reason}",
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
    """The subject of errors about a function's parameters."""
    return f"the parameters of the function {name!r}"


def objects_of(schema: Any) -> Any:
    """A schema for the JSON objects that are valid against ``schema``.

    Raises ``InvalidSchema`` if its type leaves out objects.
    """
    if schema is True:
        return {"type": "object"}
    if not isinstance(schema, Mapping):
        return schema  # no object (false), or no schema
    if "$ref" in schema and ignores_beside_ref(schema):
        kept = {key: schema[key] for key in _KEPT_BESIDE_REF if key in schema}
        return {**kept, "type": "object", "allOf": [{"$ref": schema["$ref"]}]}
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise InvalidSchema(f"type must be 'object', not {kind!r}", pointer="/type")
    return {**schema, "type": "object"}


_INPUT = "input"

_BEGINNING = re.compile(r'\s*\{\s*"[^"]*+"\s*:\s*"')
_CHARACTERS = re.compile(
    r'(?:[^"\\]|\\[^u]|\\u[dD][89abAB]..\\u.{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*+', re.DOTALL
)
"""Complete characters of a JSON string; a pair of surrogate escapes is one character."""


def custom_tool(
    name: str, description: str | None, format: Grammar | Regex | None = None
) -> FunctionTool:
    """A tool whose input is any text, or one of ``format``."""
    plain: dict[str, Any] = {"type": "string"}
    match format:
        case Grammar(text, syntax):
            plain["description"] = f"A text of this grammar (notation: {syntax}):\n{text}"
            asked = {**plain, "x-grammar": {"syntax": syntax, "definition": text}}
        case Regex(pattern):
            plain["description"] = f"A text that this regular expression matches whole:\n{pattern}"
            asked = {**plain, "x-grammar": {"syntax": "regex", "definition": pattern}}
        case None:
            asked = plain
    return FunctionTool(
        name, description, _parameters(asked), strict=True, custom=True, shown=_parameters(plain)
    )


def custom_arguments(input: str) -> dict[str, str]:
    """The arguments of an earlier call with this input, as the model wrote them."""
    return {_INPUT: input}


def _parameters(input: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {_INPUT: input},
        "required": [_INPUT],
        "additionalProperties": False,
    }


class InputReader:
    """Extracts a custom tool's input from the JSON of a call's arguments, in chunks of any size."""

    def __init__(self) -> None:
        self._begun = False
        self._held = ""

    def push(self, text: str) -> str:
        """The part of the input in ``text``; an incomplete escape is held back."""
        self._held += text
        if not self._begun:
            beginning = _BEGINNING.match(self._held)
            if beginning is None:
                return ""
            self._begun = True
            self._held = self._held[beginning.end() :]
        whole = _CHARACTERS.match(self._held)
        assert whole is not None
        self._held = self._held[whole.end() :]
        written: str = json.loads(f'"{whole[0]}"', strict=False)
        return written
