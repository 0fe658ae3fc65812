"""A function, a request that needs it, and its result."""

from dataclasses import dataclass
from typing import Final

from tools.demo_model.records import Json, JsonSchema
from tools.demo_model.words import Words

_DONE: Final = ("ok", "done", "true", "sent", "saved", "success")


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument: the names it may have, its schema, its value, and a description.

    The value None means that the request has no value; only an `optional` argument may have it.
    """

    names: tuple[str, ...]
    schema: JsonSchema
    value: Json
    about: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """A function, a request that needs it, its result, and a sentence that states the result."""

    topic: str
    names: tuple[str, ...]
    about: tuple[str, ...]
    arguments: tuple[Argument, ...]
    request: str
    result: Json
    statement: str
    shared: str = ""
    """A request for several values of the first argument, with `{}` for them; "" for none."""


def phrase(words: Words) -> str:
    """A few lower-case words, some of them English."""
    common = ("cheap", "new", "red", "small", "budget", "travel", "garden", "best", "old")
    return " ".join(
        words.pick(*common) if words.chance(0.4) else words.word()
        for _ in range(words.rng.randint(2, 4))
    )


def done(words: Words) -> Json:
    """The result of a function that has an effect and returns no data."""
    return words.pick(words.pick(*_DONE), {"status": words.pick(*_DONE)}, {"ok": True})
