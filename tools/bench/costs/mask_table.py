"""Transfers that the mask table on a device saves, counted on the CPU: no time is measured.

Real answers to real schemas are followed token by token, without leaps, several at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from app.constraint import Compiler
from app.core.constraint import Constraint, Mask
from app.core.errors import ConstraintError, RejectedToken
from app.core.specs import JsonSchema
from app.model.cuda.mask_table import MaskTable
from app.text import Vocabulary
from loadtest.tables import table
from tools import datasets

COLUMNS = ("answers", "steps", "rows", "masks sent", "KiB a step", "if all were sent")
STREAMS = 16
EVERY = 7
"""Every 7th schema of the file is used: neighbours are of one source."""
LENGTHS = range(8, 401)
"""Tokens of an answer."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A constraint and the tokens of an answer to it."""

    constraint: Constraint
    tokens: Sequence[int]

    def masks(self, spare: int) -> Iterator[Mask]:
        """The mask of each token, with ``spare`` tokens of budget beyond the answer."""
        state = self.constraint.start()
        for taken, token in enumerate(self.tokens):
            yield state.mask(budget=max(len(self.tokens) + spare - taken, state.shortest_tokens()))
            try:
                state.accept(token)
            except RejectedToken:  # keys in another order
                return


def followed(folder: Path, answers: int) -> tuple[list[Followed], int]:
    """``answers`` schemas of MaskBench with a valid instance each, and the vocabulary's size."""
    content = datasets.tokenizer_json(folder)
    tokenizer = Tokenizer.from_buffer(content)
    parsed = json.loads(content)
    vocabulary = Vocabulary.from_json(parsed, [parsed["added_tokens"][0]["id"]])
    compiler = Compiler(vocabulary)

    def found() -> Iterator[Followed]:
        for case in datasets.maskbench()[::EVERY]:
            valid = [test["data"] for test in case["tests"] if test["valid"]]
            text = json.dumps(valid[0], ensure_ascii=False) if valid else ""
            tokens = tokenizer.encode(text, add_special_tokens=False).ids
            if len(tokens) in LENGTHS:
                try:
                    yield Followed(compiler.compile(JsonSchema(case["schema"])), tokens)
                except ConstraintError:
                    continue

    return list(islice(found(), answers)), vocabulary.size


def batches(streams: Sequence[Iterator[Mask]], together: int) -> Iterator[list[Mask]]:
    """Masks of each step; the next step replaces a stream that has ended."""
    waiting = iter(streams)
    live = list(islice(waiting, together))
    while live:
        step, going = [], []
        for stream in live:
            if (mask := next(stream, None)) is not None:
                step.append(mask)
                going.append(stream)
        if step:
            yield step
        live = going + list(islice(waiting, together - len(going)))


def counted(name: str, steps: Iterator[list[Mask]], kept: MaskTable, words: int) -> list[str]:
    """A row of the table. Raises AssertionError if the table returns a wrong mask."""
    before, rows, count = kept.masks_sent, 0, 0
    for step in steps:
        masks, at = kept.place(step)
        assert np.array_equal(masks[at].numpy().view(np.uint32), np.stack(step))
        rows += len(step)
        count += 1
    sent = kept.masks_sent - before
    kib: Callable[[int], str] = lambda masks: f"{4 * words * masks / count / 1024:.1f}"  # noqa: E731
    return [name, f"{count:,}", f"{rows:,}", f"{sent:,}", kib(sent), kib(rows)]


def mask_table(folder: Path, answers: int) -> str:
    some, vocabulary = followed(folder, answers)
    words = -(-vocabulary // 32)
    kept = MaskTable(words, torch.device("cpu"))
    rows = [
        counted(name, batches([each.masks(spare) for each in some], STREAMS), kept, words)
        for name, spare in (
            ("every schema for the first time", 4096),
            ("the same answers again", 4096),
            ("again, with 16 tokens to spare", 16),
        )
    ]
    return f"{len(some)} answers, {STREAMS} at a time\n\n{table(COLUMNS, rows)}"
