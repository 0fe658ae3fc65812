"""A function, a request for it, and what came of it."""

from dataclasses import dataclass, field
from typing import Final

from tools.demo_model.records import Json, JsonSchema
from tools.demo_model.words import Words

_DONE: Final = ("ok", "done", "true", "sent", "saved", "success")


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument: names it may have, its schema, its value, and a description.

    A value None is one that the request does not say; only an `optional` argument has it.
    """

    names: tuple[str, ...]
    schema: JsonSchema
    value: Json
    about: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """A function, a request that calls for it, its result, and a sentence that states it."""

    topic: str
    names: tuple[str, ...]
    about: tuple[str, ...]
    arguments: tuple[Argument, ...]
    request: str
    result: Json
    statement: str
    shared: str = field(default="")
    """A request for several values of the first argument, `{}` in their place; "": none."""


def phrase(words: Words) -> str:
    """A few words of lower case, some of them English."""
    common = ("cheap", "new", "red", "small", "budget", "travel", "garden", "best", "old")
    return " ".join(
        words.pick(*common) if words.chance(0.4) else words.word()
        for _ in range(words.rng.randint(2, 4))
    )


def done(words: Words) -> Json:
    """What a function returns that only does something."""
    return words.pick(words.pick(*_DONE), {"status": words.pick(*_DONE)}, {"ok": True})
