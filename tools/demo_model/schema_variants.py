"""The same JSON Schema as different client libraries write it."""

from dataclasses import dataclass
from typing import Final

from tools.demo_model.records import JsonSchema
from tools.demo_model.words import Words

_DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"


@dataclass(frozen=True, slots=True)
class _Style:
    """Additions of a library to a schema."""

    titles: bool
    closed: bool
    definitions: dict[str, JsonSchema] | None
    """Definitions that nested objects are moved to; None keeps them in place."""


def schema_variant(schema: JsonSchema, name: str, words: Words) -> JsonSchema:
    """`schema` as by hand, by pydantic (openai, instructor), by pydantic without titles, or by Zod.

    It accepts the same objects, or more if it leaves objects open. `name` becomes a title.
    """
    library = words.pick("hand", "hand", "hand", "pydantic", "pydantic", "bare", "bare", "zod")
    closed, apart, first = words.chance(0.5), words.chance(0.6), words.chance(0.3)
    if library == "hand":
        return _by_hand(schema, closed)
    if library == "zod":
        by_hand = _by_hand(schema, closed)
        return {"$schema": _DRAFT_7, **by_hand} if first else {**by_hand, "$schema": _DRAFT_7}
    definitions: dict[str, JsonSchema] | None = {} if apart else None
    variant = _by_pydantic(schema, name, _Style(library == "pydantic", closed, definitions))
    return {"$defs": definitions, **variant} if definitions else variant


def _by_hand(schema: JsonSchema, closed: bool) -> JsonSchema:
    variant = _without_closing(schema)
    if "properties" in schema:
        nested = schema["properties"].items()
        variant["properties"] = {key: _by_hand(each, closed) for key, each in nested}
        if closed:
            variant["additionalProperties"] = False
    if "items" in schema:
        variant["items"] = _by_hand(schema["items"], closed)
    return variant


def _by_pydantic(schema: JsonSchema, name: str, style: _Style) -> JsonSchema:
    variant = _without_closing(schema)
    if style.titles:
        variant["title"] = name.replace("_", " ").title() if name.islower() else name
    if "items" in schema:
        variant["items"] = _nested(schema["items"], name, style, titled=False)
    if "properties" in schema:
        nested = schema["properties"].items()
        variant["properties"] = {key: _nested(each, key, style) for key, each in nested}
    variant = dict(sorted(variant.items()))
    if "properties" in schema and style.closed:
        variant["additionalProperties"] = False
    return variant


def _nested(schema: JsonSchema, name: str, style: _Style, titled: bool = True) -> JsonSchema:
    """A schema within another: an object may move to the definitions."""
    if "properties" in schema and style.definitions is not None:
        title = name.title().replace("_", "").replace(" ", "").removesuffix("s")
        style.definitions[title] = _by_pydantic(schema, title, style)
        return {"$ref": f"#/$defs/{title}"}
    if not titled and "properties" not in schema:
        return schema
    return _by_pydantic(schema, name, style)


def _without_closing(schema: JsonSchema) -> JsonSchema:
    return {key: value for key, value in schema.items() if key != "additionalProperties"}
