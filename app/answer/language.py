"""The texts that an answer may be: content, calls of functions, reasoning before them.

Every text that is admitted reads in one way (``reader``), so what content or arguments are
validated against is what was constrained.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from app.answer.formats import NEWLINES_BEFORE_ANSWER, ReasoningFormat, ToolFormat
from app.answer.prompt import Opening
from app.answer.tools import FunctionTool, ToolUse
from app.core.composite import (
    Composite,
    Either,
    FreeText,
    NotStarting,
    Part,
    Repeated,
    Series,
)
from app.core.composite import FixedText as Text
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidRequest, InvalidSchema
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex

MOST_CALLS = 16
"""Calls of one answer: a model that repeats itself would go on until its budget is spent."""

_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}

_JSON_BEGINNING = re.compile(r'["{\d\-tfn]|\[($|[\s\[\]"{\d\-tfn])')

_LONELY_REF = re.compile(r"json-schema\.org/draft-0[3-7]/")
"""Drafts in which ``$ref`` has no keywords beside it that count (draft 7, section 8.3)."""

_KEPT_BESIDE_REF = ("$schema", "$defs", "definitions")


def answer(
    content: ConstraintSpec | None, use: ToolUse | None, format: ToolFormat
) -> ConstraintSpec | None:
    """What follows the reasoning. ``content`` None is free text; None back is free as a whole.

    Raises ``InvalidRequest`` for parameters that no object can satisfy by their type alone.
    """
    if use is None:
        return content
    calls = _calls(use, format)
    if use.mode == "required":
        return Composite(calls)
    if content is None and format.trigger is not None:
        text = FreeText(without=(format.trigger,))
        return Composite(Series((text, Repeated(calls, at_most=1))))
    if content is None:
        # Text that begins like a call has to become one: it need not be told apart by the name.
        return Composite(Either((_not_calling(FreeText(), [format.begin + format.opening]), calls)))
    return Composite(Either((_not_calling(_part(content), format.leads(use.names)), calls)))


def with_reasoning(
    answer: ConstraintSpec | None, format: ReasoningFormat, opening: Opening
) -> ConstraintSpec | None:
    """``answer`` after reasoning, or after none: see ``prompts.opening``. None stays None."""
    if answer is None or opening == "closed":
        return answer
    body = _part(answer)
    newline = Text("\n")
    if any(_may_start(leaf, "\n") for leaf in _first_leaves(body) if not _is_free(leaf)):
        # The answer's own newlines must not be taken for those before it: all of these are there.
        gap: Part = Text("\n" * NEWLINES_BEFORE_ANSWER)
    else:
        gap = Repeated(newline, at_most=NEWLINES_BEFORE_ANSWER)
    reasoned = Series((FreeText(without=(format.end,)), Text(format.end), gap, body))
    if opening == "open":
        return Composite(reasoned)
    unreasoned = _not_starting(body, _after_newlines([format.begin]))
    return Composite(Either((unreasoned, Series((Text(format.begin), reasoned)))))


def is_open_ended(spec: ConstraintSpec) -> bool:
    """Whether an answer may end inside free text, where ``max_tokens`` cuts it."""
    return isinstance(spec, Composite) and _ends_free(spec.root)


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


def _calls(use: ToolUse, format: ToolFormat) -> Part:
    options = [_call(tool, use.whitespace, format) for tool in use.tools]
    several = use.parallel and format.parallel
    calls: Part = Repeated(
        options[0] if len(options) == 1 else Either(tuple(options)),
        separator=format.separator,
        at_least=1,
        at_most=MOST_CALLS if several else 1,
    )
    if not format.begin and not format.end:
        return calls
    return Series((Text(format.begin), calls, Text(format.end)))


def _call(tool: FunctionTool, whitespace: str, format: ToolFormat) -> Part:
    arguments = _arguments(tool, whitespace)
    head: tuple[Part, ...] = (Text(format.opening + tool.name + format.middle),)
    if format.id_mark is not None:
        call_id = Regex(f"[a-zA-Z0-9]{{{format.id_length}}}")
        named = Text(format.opening + tool.name + format.id_mark)
        head = (named, call_id, Text(format.middle))
    return Series((*head, arguments, Text(format.closing)))


def _arguments(tool: FunctionTool, whitespace: str) -> Part:
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
        whitespace=whitespace,
        subject=f"the parameters of the function {tool.name!r}",
    )


def _part(spec: ConstraintSpec) -> Part:
    return spec.root if isinstance(spec, Composite) else spec


def _after_newlines(marks: Iterable[str]) -> tuple[str, ...]:
    """The marks, and the marks after newlines that the reader may pass over."""
    return tuple(
        "\n" * count + mark for mark in marks for count in range(NEWLINES_BEFORE_ANSWER + 1)
    )


def _not_calling(part: Part, leads: Iterable[str]) -> Part:
    return _not_starting(part, _after_newlines(leads))


def _not_starting(part: Part, prefixes: Iterable[str]) -> Part:
    leaves = list(_first_leaves(part))
    relevant = tuple(
        prefix for prefix in prefixes if any(_may_start(leaf, prefix) for leaf in leaves)
    )
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
                yield from _first_leaves(Text(separator))
        case Text(""):
            return
        case NotStarting(inner):
            yield from _first_leaves(inner)
        case _:
            yield part


def _may_be_empty(part: Part) -> bool:
    """False only where it is certain."""
    match part:
        case Text(text):
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
        case Text(text):
            return _agree(text, prefix)
        case Choice(options):
            return any(_agree(option, prefix) for option in options)
        case JsonSchema() | JsonObject():
            return _JSON_BEGINNING.match(prefix) is not None
    return True


def _agree(text: str, prefix: str) -> bool:
    """Whether one begins with the other: what follows ``text`` may complete ``prefix``."""
    return text.startswith(prefix) or prefix.startswith(text)


def _is_free(leaf: Part) -> bool:
    return isinstance(leaf, FreeText)


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
    match part:
        case JsonSchema() | JsonObject() | Regex() | Choice() | Grammar():
            return False
    return _may_be_empty(part)
