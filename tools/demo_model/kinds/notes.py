"""Short notes with invented labels: a value must be found by its key alone.

This is the plainest form of extraction, and the one that teaches the model to follow keys that it
has never seen.
"""

from typing import Any

from tools.demo_model.records import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    Fact,
    Field,
    JsonSchema,
    Record,
)
from tools.demo_model.words import Words


def record(words: Words) -> Record:
    """One to six labelled values of any simple type, one to a line or in sentences."""
    labels: dict[str, tuple[Any, JsonSchema]] = {}
    for _ in range(words.pick(1, 2, 3, 3, 4, 5, 6)):
        labels[_label(words)] = _value(words)
    shape = words.pick("{}: {}", "{}: {}", "{} = {}", "{} - {}", "The {} is {}.", "its {} is {}")
    joint = " " if shape.endswith(".") else words.pick("\n", "\n", ", ", "; ")
    lines = [shape.format(label, _written(value)) for label, (value, _) in labels.items()]
    facts: tuple[Fact, ...] = tuple(
        Field((label,), schema, value) for label, (value, schema) in labels.items()
    )
    summary = f"These notes give the {next(iter(labels))}."
    return Record("notes", words.pick("notes", "data", "fields"), joint.join(lines), facts, summary)


def _label(words: Words) -> str:
    common = words.pick(
        "colour", "size", "weight", "owner", "status", "author", "title", "year", "genre", "price",
        "model", "brand", "city", "code", "team", "score", "age", "species", "material", "language",
    )  # fmt: skip
    return words.pick(common, common, words.word(), f"{words.word()} {common}")


def _value(words: Words) -> tuple[Any, JsonSchema]:
    kind = words.rng.random()
    if kind < 0.12:
        return words.chance(0.5), BOOLEAN
    if kind < 0.25:
        return words.rng.randint(0, 10 ** words.rng.randint(1, 6)), INTEGER
    if kind < 0.35:
        return round(words.rng.uniform(-90, 900), words.pick(1, 2)), NUMBER
    return words.pick(
        words.word(), words.name(), words.person(), words.company(), words.date(),
        f"{words.word()} {words.word()}", f"{words.word()} {words.word()} {words.word()}",
        f"{words.name()}-{words.digits(3)}", words.email(words.person()), words.street(),
        words.word().upper(),
    ), STRING  # fmt: skip


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
