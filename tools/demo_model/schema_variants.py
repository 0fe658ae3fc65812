"""The same JSON Schema as different client libraries write it."""

from dataclasses import dataclass
from typing import Final

from tools.demo_model.records import JsonSchema
from tools.demo_model.words import Words

_DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"


@dataclass(frozen=True, slots=True)
class _Habits:
    """What a library adds to a schema."""

    titles: bool
    closed: bool
    definitions: dict[str, JsonSchema] | None
    """Objects within are moved there; None leaves them in their places."""


def dress(schema: JsonSchema, name: str, words: Words) -> JsonSchema:
    """`schema` as by hand, by pydantic (openai, instructor), without its titles, or by Zod.

    It admits the same objects, or more where objects are left open. `name` becomes a title.
    """
    style = words.pick("hand", "hand", "hand", "pydantic", "pydantic", "bare", "bare", "zod")
    closed, apart, first = words.chance(0.5), words.chance(0.6), words.chance(0.3)
    if style == "hand":
        return _by_hand(schema, closed)
    if style == "zod":
        by_hand = _by_hand(schema, closed)
        return {"$schema": _DRAFT_7, **by_hand} if first else {**by_hand, "$schema": _DRAFT_7}
    definitions: dict[str, JsonSchema] | None = {} if apart else None
    dressed = _by_pydantic(schema, name, _Habits(style == "pydantic", closed, definitions))
    return {"$defs": definitions, **dressed} if definitions else dressed


def _by_hand(schema: JsonSchema, closed: bool) -> JsonSchema:
    copy = {key: value for key, value in schema.items() if key != "additionalProperties"}
    if "properties" in schema:
        parts = schema["properties"].items()
        copy["properties"] = {key: _by_hand(part, closed) for key, part in parts}
        if closed:
            copy["additionalProperties"] = False
    if "items" in schema:
        copy["items"] = _by_hand(schema["items"], closed)
    return copy


def _by_pydantic(schema: JsonSchema, name: str, habits: _Habits) -> JsonSchema:
    dressed = {key: value for key, value in schema.items() if key != "additionalProperties"}
    if habits.titles:
        dressed["title"] = name.replace("_", " ").title() if name.islower() else name
    if "items" in schema:
        dressed["items"] = _part(schema["items"], name, habits, titled=False)
    if "properties" in schema:
        parts = schema["properties"].items()
        dressed["properties"] = {key: _part(part, key, habits) for key, part in parts}
    dressed = dict(sorted(dressed.items()))
    if "properties" in schema and habits.closed:
        dressed["additionalProperties"] = False
    return dressed


def _part(schema: JsonSchema, name: str, habits: _Habits, titled: bool = True) -> JsonSchema:
    """A schema within another: an object may move to the definitions."""
    if "properties" in schema and habits.definitions is not None:
        title = name.title().replace("_", "").replace(" ", "").removesuffix("s")
        habits.definitions[title] = _by_pydantic(schema, title, habits)
        return {"$ref": f"#/$defs/{title}"}
    if not titled and "properties" not in schema:
        return schema
    return _by_pydantic(schema, name, habits)
