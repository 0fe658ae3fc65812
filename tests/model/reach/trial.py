"""One trial: a small random model of a kind, by ``load_runner``, against eager attention.

``load_runner`` runs its self-check. Then three texts are computed in random chunks and batches, and
each row of logits is compared with that of transformers' eager attention over the whole text. All
of it in float32 on the CPU.
"""

from __future__ import annotations

import math
import random
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.core.step import Span
from app.model.composition import load_runner
from app.model.inputs import lay_out
from app.model.layers.model_call import logits_of
from app.model.runner import TorchRunner
from app.model.self_check import worst_error
from tests.model.reach.small import PLAIN_TOKENS, small_config
from tests.model.tiny import PagedSequence, eager_model, runner_config
from tests.steps import planned

_LENGTHS = (29, 17, 6)
_CHUNKS = (1, 1, 2, 5, 18)
_MOST_PARAMETERS = 60_000_000
_TOLERANCE = 1e-3
_ROUNDING = 9e-6
"""Relative error that rounding alone may cause on some processor."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of the trial of one kind."""

    kind: str
    model: str = ""
    """Class of the model that ran."""
    refusal: str | None = None
    """Reason of the refusal; None: the kind runs."""
    error: float = 0.0
    """Largest relative error of a row of logits."""

    @property
    def bound(self) -> str:
        """The power of ten above twice the error, as other processors add in another order."""
        return f"1e{math.ceil(math.log10(max(2 * self.error, _ROUNDING)))}"

    @property
    def is_encoder_decoder(self) -> bool:
        return self.refusal is not None and "encoder-decoder" in self.refusal


def attempt(kind: str) -> Outcome:
    """Try one kind. Raises the error of a model that is neither served nor refused."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # models warn about settings that checkpoints never have
        small_config(kind).save_pretrained(folder)
        try:
            runner = load_runner(runner_config(folder))
        except UnsupportedModel as error:
            reason = " ".join(str(error).replace(folder, kind).split())
            return Outcome(kind, refusal=reason)
        assert runner.description.parameters < _MOST_PARAMETERS, f"{kind} is not small"
        return Outcome(
            kind,
            model=runner.description.architecture,
            error=_worst_error(runner, eager_model(folder), random.Random(kind)),
        )


@torch.inference_mode()
def _worst_error(runner: TorchRunner, model: PreTrainedModel, dice: random.Random) -> float:
    texts = [[dice.choice(PLAIN_TOKENS) for _ in range(length)] for length in _LENGTHS]
    wanted = [logits_of(model, torch.tensor([text]), None, 0) for text in texts]
    # Rows that depend only on their own token would pass with any attention.
    other = [texts[-1][0] + 1, *texts[-1][1:]]
    changed = logits_of(model, torch.tensor([other]), None, 0)
    assert worst_error(changed[-1:], wanted[-1][-1:]) > _TOLERANCE, "logits ignore earlier tokens"
    found = _in_random_batches(runner, texts, dice)
    error = worst_error(torch.cat(found), torch.cat(wanted))
    assert error <= _TOLERANCE, f"relative error {error:.2g}"
    return error


def _in_random_batches(
    runner: TorchRunner, texts: Sequence[Sequence[int]], dice: random.Random
) -> list[Tensor]:
    groups, size = runner.cache_groups, runner.block_size
    pool = list(range(min((group.num_blocks for group in groups), default=0)))
    dice.shuffle(pool)
    sequences = [PagedSequence(text, pool, groups=len(groups)) for text in texts]
    found: list[list[Tensor]] = [[] for _ in texts]
    while any(sequence.computed < len(sequence.tokens) for sequence in sequences):
        spans: list[Span] = []
        rows: list[tuple[int, int]] = []
        owners: list[int] = []
        for index, sequence in enumerate(sequences):
            left = len(sequence.tokens) - sequence.computed
            if not left or dice.random() < 0.2:
                continue
            length = min(left, dice.choice(_CHUNKS))
            rows += [(len(spans), offset) for offset in range(length)]
            owners += [index] * length
            span = sequence.span(length, size)
            if runner.states is not None:  # a slot for each sequence, read and written in place
                slot = 1 + index
                span = replace(span, state=slot if span.start else 0, saves=[(length, slot)])
            spans.append(span)
        if spans:
            logits = runner._forward.run(lay_out(planned(spans=spans, rows=rows), size))
            for index, row in zip(owners, logits, strict=True):
                found[index].append(row)
    return [torch.stack(rows) for rows in found]
