"""Endless examples: a picture, a question about it, and the answer in JSON.

`rendered` also returns the content of each patch of a picture: the vision tower learns from it.
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tools.demo_model.records import Json
from tools.demo_model.words import Split
from tools.demo_vision.picture import ALPHABET, SIDE, Glyph, Picture
from tools.demo_vision.scenes import FIELDS, KINDS, PAGE, Kind, Record, draw

PATCH: Final = 16
"""Width and height of a patch in pixels."""
ACROSS: Final = SIDE // PATCH
PATCHES: Final = ACROSS * ACROSS
IMAGE: Final = "<image>"

NOTHING: Final = 0
"""In `patch_labels`: no character, no field, or the beginning of a run of text."""
UNASKED: Final = 255
"""In place of a field, if the field does not matter."""
HEADS: Final = {
    "first": len(ALPHABET) + 1,
    "second": len(ALPHABET) + 1,
    "third": len(ALPHABET) + 1,
    "before": len(ALPHABET) + 1,
    "field": len(FIELDS) + 1,
    "last": 2,
}
"""Outputs for each patch, with their numbers of classes: the characters whose middle lies in it,
from left to right; the character before them in the same run of text; the field of the run; and
whether the run ends here."""

_NOUNS: Final[dict[Kind, tuple[str, ...]]] = {
    "receipt": ("receipt", "bill"),
    "badge": ("badge", "name tag"),
    "chart": ("chart", "bar chart"),
    "card": ("card", "character"),
}
_ASKED: Final = (
    "Read this {}.", "Read the {}.", "Extract the {}.", "What does the {} say?",
    "The {} as JSON.", "Read the picture.", "What does it say?", "Give me JSON.",
)  # fmt: skip
_SYSTEM: Final = ("You read pictures.", "You extract data as JSON.", "Answer in JSON.")


@dataclass(frozen=True, slots=True)
class Example:
    """A picture, the conversation about it up to the answer, and the answer."""

    kind: Kind
    picture: Picture
    record: Record
    """Content of the picture, with all of its keys."""
    messages: tuple[dict[str, str], ...]
    """`IMAGE` in their text is the place of the picture."""
    answer: str


def examples(
    kind: Kind, count: int, seed: int, words: Split = "held_out", fonts: Split = "held_out"
) -> Iterator[Example]:
    """`count` examples of a kind, each with all of its keys; they depend on the arguments alone."""
    for number in range(count):
        record, picture = draw(kind, f"{seed} {number}", words, fonts)
        rng = random.Random(f"asked {kind} {seed} {number}")
        yield Example(kind, picture, record, asked(kind, rng), written(record))


def asked_of(
    kind: Kind, record: Record, rng: random.Random
) -> tuple[tuple[dict[str, str], ...], Record, bool]:
    """A conversation about a picture, the record to answer, and whether it decides the keys."""
    shape = rng.random()
    if shape < 0.6:
        return asked(kind, rng), record, True
    keys = rng.sample(list(record), rng.randint(1, len(record)))
    part = {key: record[key] for key in keys}
    if shape < 0.8:
        return asked(kind, rng, rng.choice(("", "Keys: ")) + ", ".join(keys)), part, True
    return asked(kind, rng), part, False


def asked(kind: Kind, rng: random.Random, text: str | None = None) -> tuple[dict[str, str], ...]:
    """A conversation with a picture before or after the question."""
    text = text or rng.choice(_ASKED).format(rng.choice(_NOUNS[kind]))
    both = f"{IMAGE}{text}" if rng.random() < 0.5 else f"{text}{IMAGE}"
    user = {"role": "user", "content": both}
    if rng.random() < 0.15:
        return {"role": "system", "content": rng.choice(_SYSTEM)}, user
    return (user,)


def written(value: Json) -> str:
    """JSON as `json.dumps` writes it, but with two decimals in amounts, as printed."""
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, dict):
        parts = (f"{json.dumps(key)}: {written(part)}" for key, part in value.items())
        return f"{{{', '.join(parts)}}}"
    return json.dumps(value, ensure_ascii=False)


def patch_labels(glyphs: tuple[Glyph, ...]) -> NDArray[np.uint8]:
    """[PATCHES, HEADS]: right outputs of the heads for each patch, from the top left, in rows."""
    labels = np.zeros((PATCHES, len(HEADS)), np.uint8)
    inside: dict[int, list[Glyph]] = defaultdict(list)
    for glyph in glyphs:
        row, column = int(glyph.y // PATCH), int(glyph.x // PATCH)
        if 0 <= row < ACROSS and 0 <= column < ACROSS:
            inside[row * ACROSS + column].append(glyph)
    for patch, found in inside.items():
        found.sort(key=lambda glyph: glyph.x)
        for slot, glyph in enumerate(found[:3]):
            labels[patch, slot] = 1 + ALPHABET.index(glyph.character)
        before = found[0].before
        labels[patch, 3] = 1 + ALPHABET.index(before) if before else NOTHING
        field = found[0].field
        labels[patch, 4] = UNASKED if field == PAGE else 1 + FIELDS.index(field)
        labels[patch, 5] = any(glyph.last for glyph in found)
    return labels


def rendered(
    seed: int, count: int, kinds: tuple[Kind, ...] = KINDS
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], list[Record]]:
    """Grey pictures [count, SIDE, SIDE] for training, their patches' labels, and their records.

    The kinds take turns.
    """
    pictures = np.empty((count, SIDE, SIDE), np.uint8)
    labels = np.empty((count, PATCHES, len(HEADS)), np.uint8)
    records: list[Record] = []
    for index in range(count):
        kind = kinds[index % len(kinds)]
        record, picture = draw(kind, f"{seed} {index}", "train", "train", grey=True)
        pictures[index] = picture.pixels
        labels[index] = patch_labels(picture.glyphs)
        records.append(record)
    return pictures, labels, records
