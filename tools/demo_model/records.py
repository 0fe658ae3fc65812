"""The facts of a generated paragraph, and the object that answers it.

A `Record` is one paragraph with its facts. `arrange` turns the facts into an answer and its JSON
Schema: with the default keys, or with some of the keys in another order, under other names, as a
user's own schema would have them.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tools.demo_model.words import Words

Json = Any
JsonSchema = dict[str, Any]
_MISSING: Final = object()
_Style = Callable[[str], str]
"""Writes a name, words apart, as a key: "phone number" as "phone_number" or "phoneNumber"."""

STRING: Final[JsonSchema] = {"type": "string"}
INTEGER: Final[JsonSchema] = {"type": "integer"}
NUMBER: Final[JsonSchema] = {"type": "number"}
BOOLEAN: Final[JsonSchema] = {"type": "boolean"}
STRINGS: Final[JsonSchema] = {"type": "array", "items": {"type": "string"}}


@dataclass(frozen=True, slots=True)
class Field:
    """One fact: its key's names (the default first, words apart), its type, its value."""

    names: tuple[str, ...]
    schema: JsonSchema
    value: Json


@dataclass(frozen=True, slots=True)
class Group:
    """A nested object, or an array of such objects when `many`; every row has the same fields."""

    names: tuple[str, ...]
    rows: tuple[tuple[Field, ...], ...]
    many: bool


Fact = Field | Group


@dataclass(frozen=True, slots=True)
class Record:
    """A paragraph (or a bare name), what it is about, its facts, and a sentence that sums it up."""

    kind: str
    noun: str
    text: str
    facts: tuple[Fact, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class Arranged:
    """An answer and the schema it satisfies."""

    answer: dict[str, Json]
    schema: JsonSchema


def _snake(name: str) -> str:
    return name.replace(" ", "_")


def _camel(name: str) -> str:
    head, *tail = name.split(" ")
    return head + "".join(word.capitalize() for word in tail)


_STYLES: Final[tuple[_Style, ...]] = (_snake, _snake, _snake, _camel, str, str.title)


def arrange(facts: Sequence[Fact], words: Words, varied: bool, keep_spaces: bool) -> Arranged:
    """An answer with the facts, and its schema.

    Not varied: every fact, in order, under its first name, words joined by "_", or as they are with
    `keep_spaces` ("blood status"). Varied: some of the facts, perhaps in another order, under any
    of their names, in one of four styles of key.
    """
    style: _Style = str if keep_spaces else _snake
    if varied:
        style = words.pick(*_STYLES)
    return _object(facts, words, varied, style)


def _object(facts: Sequence[Fact], words: Words, varied: bool, style: _Style) -> Arranged:
    answer: dict[str, Json] = {}
    properties: dict[str, JsonSchema] = {}
    for fact in _chosen(facts, words) if varied else facts:
        names = fact.names
        key = style(words.pick(*names) if varied and words.chance(0.5) else names[0])
        if key in properties:
            continue
        if isinstance(fact, Field):
            answer[key], properties[key] = fact.value, fact.schema
        else:
            answer[key], properties[key] = _nested(fact, words, varied, style)
    schema: JsonSchema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return Arranged(answer, schema)


def _nested(group: Group, words: Words, varied: bool, style: _Style) -> tuple[Json, JsonSchema]:
    """The group's value and schema; all rows have the same keys in the same order."""
    seed = words.rng.random()
    rows = [
        _object(row, Words(random.Random(seed), words.split), varied, style) for row in group.rows
    ]
    schema = rows[0].schema
    if not group.many:
        return rows[0].answer, schema
    return [row.answer for row in rows], {"type": "array", "items": schema}


def _chosen(facts: Sequence[Fact], words: Words) -> list[Fact]:
    """The facts to request: usually some of them, half of the time in another order."""
    order = list(range(len(facts)))
    if words.chance(0.7):
        count = words.rng.randint(1, len(order))
        order = sorted(words.rng.sample(order, count))
    if words.chance(0.5):
        words.rng.shuffle(order)
    return [facts[index] for index in order]


def fields(value: Json, path: str = "") -> dict[str, Json]:
    """The fields of an answer by path; a list of scalars is one field."""
    if isinstance(value, dict):
        return {
            k: v for key, part in value.items() for k, v in fields(part, f"{path}/{key}").items()
        }
    if isinstance(value, list) and value and isinstance(value[0], dict):
        parts = (fields(part, f"{path}/{index}") for index, part in enumerate(value))
        return {key: leaf for part in parts for key, leaf in part.items()}
    return {path: value}


def agreeing(expected: dict[str, Json], found: dict[str, Json]) -> int:
    """Number of expected fields that were found with the same value."""
    return sum(found.get(path, _MISSING) == value for path, value in expected.items())
