"""The generated examples: messages, the answer to them, and the schema of the answer.

    for example in examples("contact", count=10, seed=1, split="held_out"):
        example.messages, example.schema, example.answer

The same arguments always give the same examples. No invented word of one split is in the other.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tools.demo_model import chat, scenes
from tools.demo_model.kinds import KINDS
from tools.demo_model.prompts import Ask, Message, Shown, messages
from tools.demo_model.records import Json, JsonSchema, arrange
from tools.demo_model.scene import Scene, answer_of, written_out
from tools.demo_model.words import Split, Words

Kind = Literal[
    "character", "city", "contact", "event", "invoice", "notes", "review", "talk", "summary",
    "call", "form", "result", "no_call",
]  # fmt: skip
ToolKind = Literal["call", "form", "result", "no_call"]
"""Kinds with functions in the prompt: `form` has a text that fills in a function's parameters."""

_SHARES: Final[dict[Kind, float]] = {
    "character": 0.05, "city": 0.11, "contact": 0.125, "event": 0.11, "invoice": 0.115,
    "notes": 0.085, "review": 0.085, "talk": 0.02, "summary": 0.03,
    "call": 0.13, "form": 0.08, "result": 0.03, "no_call": 0.03,
}  # fmt: skip
_SCENES: Final[dict[Kind, Callable[[Words], Scene]]] = {
    "call": scenes.call, "form": scenes.form, "result": scenes.result, "no_call": scenes.no_call,
}  # fmt: skip
_SPACED_KEYS: Final = ("character", "city")
"""Kinds whose default keys keep their spaces, as LMSYS writes them: "blood status"."""


@dataclass(frozen=True, slots=True)
class Example:
    """One conversation and the answer that belongs to it.

    `answer` and `schema` are None for plain text; the schema allows no additional properties. Calls
    of functions have an answer but no schema: the schemas of the functions are in `scene`. `text`
    is the assistant's text, for an object exactly `json.dumps(answer, ensure_ascii=False)`.
    """

    kind: Kind
    messages: tuple[Message, ...]
    schema: JsonSchema | None
    answer: dict[str, Json] | None
    text: str
    decided: bool = True
    """Whether the prompt alone decides the keys; otherwise a server has to force them."""
    scene: Scene | None = None
    """The conversation as a client sends it, if it has functions."""


def examples(kind: Kind, count: int, seed: int, split: Split = "train") -> Iterator[Example]:
    """Yields `count` examples of one kind."""
    words = Words(random.Random(f"{kind} {seed} {split}"), split)
    for _ in range(count):
        yield _example(kind, words)


def mixture(seed: int, split: Split = "train", easy: float = 0.0) -> Iterator[Example]:
    """An endless stream of all kinds, in the shares the model is trained on.

    Cost: about 0.2 ms an example. With probability `easy` an example has short labelled notes,
    regardless of the shares: for the start of a training.
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
    if kind in _SCENES:
        scene = _SCENES[kind](words)
        answer = answer_of(scene.calls) if scene.calls else None
        shown_turns = tuple(written_out(scene))
        return Example(kind, shown_turns, None, answer, scene.text, scene=scene)
    record = KINDS[kind](words)
    shown = words.pick(*(Shown.NOTHING,) * 10, *(Shown.SCHEMA,) * 7, *(Shown.KEYS,) * 3)
    varied = words.chance(0.45 if shown is Shown.NOTHING else 0.85)
    arranged = arrange(record.facts, words, varied, keep_spaces=kind in _SPACED_KEYS)
    turns = messages(Ask(record, arranged.schema, shown), words)
    text = json.dumps(arranged.answer, ensure_ascii=False)
    decided = shown is not Shown.NOTHING or not varied
    return Example(kind, tuple(turns), arranged.schema, arranged.answer, text, decided)
