"""What a generated paragraph says, and how an answer's keys are laid out.

A `Record` is one paragraph with the facts that stand in it. `arrange` turns the facts into an
answer and its JSON Schema: with the default keys, or with some of the keys in another order, under
other names, as a user's own schema would have them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tools.demo_model.words import Words

Json = Any
JsonSchema = dict[str, Any]

STRING: Final[JsonSchema] = {"type": "string"}
INTEGER: Final[JsonSchema] = {"type": "integer"}
NUMBER: Final[JsonSchema] = {"type": "number"}
BOOLEAN: Final[JsonSchema] = {"type": "boolean"}
STRINGS: Final[JsonSchema] = {"type": "array", "items": {"type": "string"}}


@dataclass(frozen=True, slots=True)
class Field:
    """One fact: names its key may have (the default first, words apart), its type, its value."""

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


def snake(words: str) -> str:
    """The default style of a key: "phone number" becomes "phone_number"."""
    return words.replace(" ", "_")


def _camel(words: str) -> str:
    head, *tail = words.split(" ")
    return head + "".join(word.capitalize() for word in tail)


def _plain(words: str) -> str:
    return words


def _title(words: str) -> str:
    return words.title()


def arrange(facts: Sequence[Fact], words: Words, varied: bool, keep_spaces: bool) -> Arranged:
    """Lays the facts out as one object.

    Not varied: every fact, in its order, under its default name. Varied: some of the facts, perhaps
    in another order, under any of their names, in one of four styles of key. `keep_spaces` leaves
    default names as they are ("blood status") instead of joining their words.
    """
    style = _plain if keep_spaces else snake
    if varied:
        style = words.pick(snake, snake, snake, _camel, _plain, _title)
    return _object(facts, words, varied, style)


def _object(facts: Sequence[Fact], words: Words, varied: bool, style: Any) -> Arranged:
    chosen = _choose(facts, words) if varied else list(range(len(facts)))
    answer: dict[str, Json] = {}
    properties: dict[str, JsonSchema] = {}
    for index in chosen:
        fact = facts[index]
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


def _nested(group: Group, words: Words, varied: bool, style: Any) -> tuple[Json, JsonSchema]:
    """The group's value and schema; every row is laid out in the same way."""
    seed = words.rng.random()
    laid = []
    for row in group.rows:
        same = Words(type(words.rng)(seed), words.split)
        laid.append(_object(row, same, varied, style))
    schema = laid[0].schema
    if not group.many:
        return laid[0].answer, schema
    return [row.answer for row in laid], {"type": "array", "items": schema}


def _choose(facts: Sequence[Fact], words: Words) -> list[int]:
    """Which facts to ask for: usually some of them, half of the time in another order."""
    order = list(range(len(facts)))
    if words.chance(0.7):
        count = words.rng.randint(1, len(order))
        order = sorted(words.rng.sample(order, count))
    if words.chance(0.5):
        words.rng.shuffle(order)
    return order
