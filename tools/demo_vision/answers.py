"""Token rows for training the answers, with the patches that each answer is copied from."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers import PreTrainedTokenizerFast

from tools.demo_model.records import Json
from tools.demo_model.tokenizer import END
from tools.demo_vision.corpus import (
    ACROSS,
    HEADS,
    IMAGE,
    NOTHING,
    PATCHES,
    asked_of,
    written,
)
from tools.demo_vision.picture import ALPHABET
from tools.demo_vision.scenes import FIELDS, Kind
from tools.demo_vision.tokenizer import prompt

IGNORED: Final = -100


@dataclass(frozen=True, slots=True)
class Rows:
    """Conversations with their answers, padded on the right.

    `inputs` and `labels` are [rows, length]; a label is at the token before the one that it names,
    and is `IGNORED` if there is nothing to learn. `sources` are [rows, length]: the index in the
    row of the patch that the next token is copied from, `IGNORED` if there is none.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    sources: torch.Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """A conversation with its answer, token by token: see `Rows`, but `labels` and `sources` are at
    their own tokens."""

    inputs: list[int]
    labels: list[int]
    sources: list[int]


def padded(rows: Sequence[Row], pad: int) -> Rows:
    """The rows as one batch."""
    length = -(max(len(row.inputs) for row in rows) // -16) * 16
    inputs = torch.full((len(rows), length), pad)
    labels, sources = torch.full_like(inputs, IGNORED), torch.full_like(inputs, IGNORED)
    for number, row in enumerate(rows):
        inputs[number, : len(row.inputs)] = torch.tensor(row.inputs)
        labels[number, : len(row.inputs) - 1] = torch.tensor(row.labels[1:])
        sources[number, : len(row.inputs) - 1] = torch.tensor(row.sources[1:])
    return Rows(inputs, labels, sources)


def row(
    tokenizer: PreTrainedTokenizerFast,
    kind: Kind,
    record: dict[str, Json],
    labels: torch.Tensor,
    seed: str,
) -> Row:
    """A question about a picture, which depends on the seed, and its answer.

    `labels` are the labels of the picture's patches.
    """
    messages, record, decided = asked_of(kind, record, random.Random(seed))
    image: Any = tokenizer.convert_tokens_to_ids(IMAGE)
    ids: list[int] = []
    for token in tokenizer.encode(prompt(messages)):
        ids += [token] * (PATCHES if token == image else 1)
    start = ids.index(image)
    targets, source = [IGNORED] * len(ids), [IGNORED] * len(ids)
    texts, ends = _patches_by_field(labels)
    for text, field in [*pieces(kind, record), (END, None)]:
        tokens = tokenizer.encode(text)
        ids += tokens
        # A key that the prompt does not determine cannot be learned.
        is_key = text.endswith('": ')
        targets += [IGNORED if is_key and not decided else token for token in tokens]
        if field is not None and field.endswith("$"):
            at = ends.get(field[:-1], IGNORED)
            source += [IGNORED if at == IGNORED else start + at] * len(tokens)
        elif field is not None and texts.get(field, ("", []))[0] == text:
            source += [start + patch for patch in texts[field][1]]
        else:
            source += [IGNORED] * len(tokens)
    return Row(ids, targets, source)


def pieces(kind: Kind, record: dict[str, Json]) -> Iterator[tuple[str, str | None]]:
    """The answer's text in parts, each with the field that it is copied from."""
    yield "{", None
    for number, (key, value) in enumerate(record.items()):
        yield f"{', ' if number else ''}{json.dumps(key)}: ", None
        if isinstance(value, list):
            yield "[", None
            for index, part in enumerate(value):
                assert isinstance(part, dict)
                yield "{" if index == 0 else ", {", None
                for place, (inner, scalar) in enumerate(part.items()):
                    yield f"{', ' if place else ''}{json.dumps(inner)}: ", None
                    yield from _scalar(scalar, f"{kind}.{inner}{index}")
                yield "}", None
            yield "]", None
        elif isinstance(value, dict):
            yield "{", None
            for place, (inner, scalar) in enumerate(value.items()):
                yield f"{', ' if place else ''}{json.dumps(inner)}: ", None
                yield from _scalar(scalar, f"{kind}.{inner}")
            yield "}", None
        else:
            yield from _scalar(value, f"{kind}.{key}")
    yield "}", None


def _scalar(value: Json, field: str) -> Iterator[tuple[str, str | None]]:
    text = written(value)
    if isinstance(value, str):
        yield '"', None
        yield text[1:-1], field
        yield '"', f"{field}$"
    else:
        yield text, field


def _patches_by_field(
    labels: torch.Tensor,
) -> tuple[dict[str, tuple[str, list[int]]], dict[str, int]]:
    """For each field its text and every character's patch; and the patch where the text ends."""
    found: dict[str, list[int]] = {}
    heads = list(HEADS)
    fields = labels[:, heads.index("field")].tolist()
    # Text runs from left to right; a tilted line is in two rows of patches.
    for patch in sorted(range(PATCHES), key=lambda patch: patch % ACROSS):
        if fields[patch] > 1:
            found.setdefault(FIELDS[fields[patch] - 1], []).append(patch)
    texts: dict[str, tuple[str, list[int]]] = {}
    for field, patches in found.items():
        text, where = "", []
        for patch in patches:
            slots = [slot for slot in labels[patch, :3].tolist() if slot != NOTHING]
            text += "".join(ALPHABET[slot - 1] for slot in slots)
            where += [patch] * len(slots)
        texts[field] = (text, where)
    return texts, {field: patches[-1] for field, patches in found.items()}
