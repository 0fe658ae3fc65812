"""Python types as specifications, through Outlines' own conversion (``outlines.types``).

Models, dataclasses and TypedDicts become their JSON Schema; Literal, Enum, numbers, dates, unions
and containers of those become what Outlines makes of them, and Outlines' terms stand for
themselves. Outlines is imported on use, which takes about a second; there is none for Python 3.14
yet. It imports diskcache (CVE-2025-69872), whose cache is never opened.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidSchema, UnsupportedSchema
from app.core.specs import Choice, Grammar, JsonSchema, Regex

_COUNTS: dict[str, Callable[[Any], str]] = {
    "KleeneStar": lambda term: "*",
    "KleenePlus": lambda term: "+",
    "Optional": lambda term: "?",
    "QuantifyExact": lambda term: f"~{term.count}",
    "QuantifyMinimum": lambda term: f"~{term.min_count} ({_lark(term.term)})*",
    "QuantifyMaximum": lambda term: f"~0..{term.max_count}",
    "QuantifyBetween": lambda term: f"~{term.min_count}..{term.max_count}",
}
_SLASH = re.compile(r"\\.|/", re.DOTALL)


def from_python_type(
    python_type: Any, *, strict: bool = False, close_objects: bool = False
) -> ConstraintSpec:
    """The specification of a Python type or an Outlines term.

    ``strict`` gives a pydantic model (or pydantic dataclass) the very schema that the OpenAI SDK
    sends for it: every property required, objects closed. ``close_objects`` is ``JsonSchema``'s.
    Raises ``InvalidSchema`` for what Outlines does not take, and ``UnsupportedSchema`` for terms
    that cannot be followed exactly.
    """
    from pydantic import BaseModel, PydanticUserError, TypeAdapter

    # what the SDK's ``response_format`` takes: models, and pydantic's dataclasses
    is_model = isinstance(python_type, type) and issubclass(python_type, BaseModel)
    if strict and (is_model or hasattr(python_type, "__pydantic_config__")):
        try:
            schema = strict_schema(TypeAdapter(python_type).json_schema())
        except (PydanticUserError, RecursionError) as error:
            raise InvalidSchema(f"{_name(python_type)} has no JSON Schema: {error}") from error
        return JsonSchema(schema, close_objects=close_objects)
    from outlines.types import dsl

    try:
        term = dsl.python_types_to_terms(python_type)
    except (TypeError, ValueError, RecursionError, PydanticUserError) as error:
        raise InvalidSchema(f"{_name(python_type)} cannot be converted: {error}") from error
    match term:
        case dsl.JsonSchema():
            return JsonSchema(_schema_of(term), close_objects=close_objects)
        case dsl.CFG():
            return Grammar(term.definition)
        case dsl.Regex():
            return Regex(term.pattern)
    texts = _texts(term)
    if texts is not None:
        return Choice(texts)
    if any(isinstance(inside, dsl.JsonSchema) for inside in _walk(term)):
        # As a regular expression Outlines would drop what it cannot express in one.
        return Grammar("start: " + _lark(term))
    return Regex(_pattern(term))


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """``schema`` in the strict form of OpenAI's SDK, key for key in the same order.

    As documented for Structured Outputs: objects are closed and all their properties required,
    a reference has no siblings, a default of null is left out.
    """
    root = copy.deepcopy(dict(schema))
    _make_strict(root, root)
    return root


def _make_strict(schema: Any, root: dict[str, Any]) -> None:
    """Make ``schema`` strict in place; anything but a dict is left unchanged."""
    if not isinstance(schema, dict):
        return
    for keyword in ("$defs", "definitions"):
        _make_all_strict(schema.get(keyword), root)
    if schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        schema["required"] = list(properties)
        _make_all_strict(properties, root)
    _make_strict(schema.get("items"), root)
    _make_all_strict(schema.get("anyOf"), root)
    _make_all_strict(schema.get("allOf"), root)
    match schema.get("allOf"):
        case [dict() as part]:
            schema.update(part)
            del schema["allOf"]
    if "default" in schema and schema["default"] is None:
        del schema["default"]
    reference = schema.get("$ref")
    if isinstance(reference, str) and len(schema) > 1:
        for key, value in _resolve(reference, root).items():
            schema.setdefault(key, value)
        del schema["$ref"]
        _make_strict(schema, root)


def _make_all_strict(schemas: Any, root: dict[str, Any]) -> None:
    for schema in schemas.values() if isinstance(schemas, dict) else schemas or ():
        _make_strict(schema, root)


def _resolve(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    here: Any = root
    for step in reference.removeprefix("#/").split("/"):
        here = here[step.replace("~1", "/").replace("~0", "~")]
    return copy.deepcopy(dict(here))


def _schema_of(term: Any) -> Any:
    if term.whitespace_pattern is not None:
        raise UnsupportedSchema("whitespace_pattern", "", "leave it out; see LEAPJSON_WHITESPACE")
    return json.loads(term.schema)


def _walk(term: Any) -> list[Any]:
    """The term and every term inside it."""
    found, pending = [], [term]
    while pending:
        here = pending.pop()
        found.append(here)
        pending.extend(_options(here) or getattr(here, "terms", []))
        pending.extend([here.term] if hasattr(here, "term") else [])
    return found


def _options(term: Any) -> list[Any]:
    """The options of a term, as terms; empty if it is not a choice."""
    from outlines.types import dsl

    if isinstance(term, dsl.Choice):
        return [dsl.python_types_to_terms(item) for item in term.items]
    return term.terms if isinstance(term, dsl.Alternatives) else []


def _texts(term: Any) -> tuple[str, ...] | None:
    """The texts of a term that is nothing but a choice of texts."""
    from outlines.types import dsl

    options = [term] if isinstance(term, dsl.String) else _options(term)
    texts = [option.value for option in options if isinstance(option, dsl.String)]
    return tuple(texts) if texts and len(texts) == len(options) else None


def _pattern(term: Any) -> str:
    from outlines.types import dsl

    if any(isinstance(inside, dsl.CFG) for inside in _walk(term)):
        raise UnsupportedSchema("CFG", "", "a grammar inside another term is not supported")
    return dsl.to_regex(term)


def _lark(term: Any) -> str:
    """A term that holds a schema, in Lark's notation."""
    from outlines.types import dsl

    match term:
        case dsl.JsonSchema():
            return f" %json {json.dumps(_schema_of(term))} "
        case dsl.String():
            text = "".join(c if c.isalnum() else f"\\U{ord(c):08x}" for c in term.value)
            return f'"{text}"' if text else "()"
        case dsl.Sequence():
            return "(" + " ".join(map(_lark, term.terms)) + ")"
        case dsl.Alternatives() | dsl.Choice():
            return "(" + " | ".join(map(_lark, _options(term))) + ")"
    counts = _COUNTS.get(type(term).__name__)
    if counts is not None:
        return f"({_lark(term.term)}){counts(term)}"
    pattern = _pattern(term).replace("\n", "\\n")
    return "/" + _SLASH.sub(lambda found: r"\/" if found[0] == "/" else found[0], pattern) + "/"


def _name(python_type: Any) -> str:
    return getattr(python_type, "__name__", None) or repr(python_type)
