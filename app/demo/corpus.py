"""The generated examples: messages, the answer to them, and the schema of the answer.

    for example in examples("contact", count=10, seed=1, split="held_out"):
        example.messages, example.schema, example.answer

The same arguments always give the same examples. No invented word of one split is in the other.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from app.demo import chat
from app.demo.kinds import EXTRACTIONS, KINDS
from app.demo.prompts import Ask, Message, Shown, messages
from app.demo.records import Json, JsonSchema, arrange
from app.demo.words import Split, Words

Kind = Literal[
    "character", "city", "contact", "event", "invoice", "notes", "review", "talk", "summary"
]

_SHARES: Final[dict[Kind, float]] = {
    "character": 0.07, "city": 0.15, "contact": 0.17, "event": 0.15, "invoice": 0.16,
    "notes": 0.12, "review": 0.12, "talk": 0.02, "summary": 0.04,
}  # fmt: skip
_SPACED_KEYS: Final = (
    "character",
    "city",
)  # "blood status", "top 3 landmarks": LMSYS writes them so


@dataclass(frozen=True, slots=True)
class Example:
    """One conversation and the answer that belongs to it.

    `answer` and `schema` are None for plain text; the schema closes the object. `text` is what the
    assistant says: for an object exactly `json.dumps(answer, ensure_ascii=False)`.
    """

    kind: Kind
    messages: tuple[Message, ...]
    schema: JsonSchema | None
    answer: dict[str, Json] | None
    text: str
    decided: bool = True
    """Whether the prompt alone decides the keys; if not, only a server that forces them can."""


def examples(kind: Kind, count: int, seed: int, split: Split = "train") -> Iterator[Example]:
    """Yields `count` examples of one kind."""
    words = Words(random.Random(f"{kind} {seed} {split}"), split)
    for _ in range(count):
        yield _example(kind, words)


def mixture(seed: int, split: Split = "train", easy: float = 0.0) -> Iterator[Example]:
    """An endless stream of all kinds, in the shares the model is trained on.

    Cost: about 0.2 ms an example. `easy` is the share of short labelled notes on top, for the start
    of a training.
    """
    words = Words(random.Random(f"mixture {seed} {split}"), split)
    kinds, shares = list(_SHARES), list(_SHARES.values())
    while True:
        kind: Kind = "notes" if words.chance(easy) else words.rng.choices(kinds, shares)[0]
        yield _example(kind, words)


def _example(kind: Kind, words: Words) -> Example:
    if kind == "talk" or kind == "summary":
        turns, text = (chat.talk if kind == "talk" else chat.summary)(words)
        return Example(kind, tuple(turns), None, None, text)
    record = KINDS[kind](words)
    shown = words.pick(*(Shown.NOTHING,) * 10, *(Shown.SCHEMA,) * 7, *(Shown.KEYS,) * 3)
    varied = words.chance(0.45 if shown is Shown.NOTHING else 0.85)
    arranged = arrange(record.facts, words, varied, keep_spaces=kind in _SPACED_KEYS)
    turns = messages(Ask(record, arranged.schema, shown), words)
    text = json.dumps(arranged.answer, ensure_ascii=False)
    decided = shown is not Shown.NOTHING or not varied
    return Example(kind, tuple(turns), arranged.schema, arranged.answer, text, decided)


__all__ = ["EXTRACTIONS", "Example", "Kind", "examples", "mixture"]
