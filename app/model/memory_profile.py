"""Runs the largest possible steps at start-up, so that their memory can be measured.

Memory of a step grows with its tokens, its rows of logits, the options of their draws and, where
attention is cut into chunks of keys, with the contexts. So there are three steps: a long prompt
alone; the maximum number of sequences, each with the most rows and the longest context; and as
many that are scored, in trees if the model supports them::

    prompt   |-------------------- tokens --------------------|   1 row
    answers  | rows | rows | rows | ... | rows + what is left |   rows_each for each sequence
    scored   | rows | rows | rows | ...                           scored_each for each sequence

Only the block tables of the contexts are long: they repeat the few blocks of a small cache, whose
contents do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image

from app.core.constraint import full_mask
from app.core.images import PreparedImage
from app.core.progress import SILENCE, Progress
from app.core.request import SamplingParams
from app.core.step import MOST_TREE_TOKENS, Draw, Span
from app.model.forward import RaggedForward
from app.model.inputs import lay_out
from app.model.sampling import Sampler
from app.model.vision.self_check import LoadedVision

REHEARSAL_BLOCKS = 64
"""Blocks of the small cache."""

_PENALISED = 8192
"""Distinct tokens with penalties in a draw. No memory is measured for more: hundreds of rows with
penalties on a hundred thousand tokens each are not worth a part of every cache."""

_SCORED = 256
"""Tokens in all scored sets of a row: more take a few bytes each."""

_SIDE = 4096
"""Side of the test image in pixels: processors scale it down, or it takes some 16,000 tokens."""

_MOST_DEMANDING = SamplingParams(
    temperature=1.0,
    top_p=0.9,
    repetition_penalty=1.1,
    frequency_penalty=0.1,
    presence_penalty=0.1,
    logprobs=20,
)


@dataclass(frozen=True, slots=True)
class StepLimits:
    """Limits of a step."""

    tokens: int
    """Tokens of all sequences together."""
    sequences: int
    rows_each: int
    """Rows of logits of one sequence."""
    context: int
    """Positions of one sequence."""
    scored_each: int = 0
    """Rows of logits of one sequence in which sets of tokens are scored; 0: none ever are."""
    trees: bool = False
    """Whether the scored rows are in trees."""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """One step: its spans and its draws."""

    spans: Sequence[Span]
    draws: Sequence[Draw]


def largest_steps(
    limits: StepLimits, *, vocab_size: int, block_size: int, blocks: Sequence[int]
) -> list[Rehearsed]:
    """A step of one long prompt, one of the most sequences and rows, and one of scored rows.

    ``blocks`` are those of the small cache, by cache group.
    """
    tokens = min(limits.tokens, limits.context)
    sequences = min(limits.sequences, limits.tokens)
    rows = min(limits.rows_each, limits.tokens // sequences, limits.context)
    last = min(limits.tokens - (sequences - 1) * rows, limits.context)
    scored = min(limits.scored_each, limits.tokens // sequences, limits.context, MOST_TREE_TOKENS)
    step = partial(
        _step, context=limits.context, vocab_size=vocab_size, block_size=block_size, blocks=blocks
    )
    steps = [step([tokens], 1), step([*[rows] * (sequences - 1), last], rows)]
    if scored:
        like = step([scored] * sequences, scored)
        for span in like.spans:
            span.tree = [-1] * len(span.tokens) if limits.trees else ()
        sets = [np.arange(min(vocab_size, _SCORED), dtype=np.int32)]
        draws = [Draw(SamplingParams(), 0, scored=sets)] * len(like.draws)
        steps.append(Rehearsed(like.spans, draws))
    return steps


@torch.inference_mode()
def rehearse(
    forward: RaggedForward,
    sampler: Sampler,
    steps: Sequence[Rehearsed],
    block_size: int,
    progress: Progress = SILENCE,
) -> None:
    """Launch all steps, then wait for their draws."""
    pending: list[Any] = []
    with progress.stage("measuring memory with the largest steps", len(steps)) as stage:
        for number, step in enumerate(steps):
            stage.reach(number)
            logits = forward.run(lay_out(step.spans, block_size))
            pending.append(sampler.sample(logits, step.draws))
            del logits
        for draws in pending:
            draws.wait()


def _step(
    lengths: Sequence[int],
    rows: int,
    context: int,
    vocab_size: int,
    block_size: int,
    blocks: Sequence[int],
) -> Rehearsed:
    """Spans of ``lengths`` tokens at the end of their contexts, the last ``rows`` of each drawn."""
    used = -(-context // block_size)
    tables = [np.resize(np.arange(count), used).tolist() for count in blocks]
    spans = [Span([0] * n, context - n, tables, rows=range(n - rows, n)) for n in lengths]
    penalised: Any = np.arange(min(context, vocab_size, _PENALISED))
    draws = [
        # A new mask for each draw: no table holds it.
        Draw(
            _MOST_DEMANDING,
            key,
            mask=full_mask(vocab_size),
            answer=penalised,
            prompt_tokens=penalised,
        )
        for key in range(rows * len(lengths))
    ]
    return Rehearsed(spans, draws)


def largest_image(vision: LoadedVision, most_tokens: int) -> PreparedImage:
    """A prepared square image of about ``most_tokens`` tokens; other shapes of as many tokens take
    about the same memory. Costs seconds."""
    return vision.processor.prepare(Image.new("RGB", (_SIDE, _SIDE), "white"), "auto", most_tokens)
