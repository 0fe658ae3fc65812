"""The check at start-up that a path in a tree gives the logits of the same tokens in sequence.

Models that depend on the order of tokens in a step may pass the check of plain spans, since it is
that of the positions there. They are served, but without trees.
"""

from __future__ import annotations

import logging

import torch

from app.core.step import Span
from app.model.forward import RaggedForward
from app.model.inputs import lay_out
from app.model.self_check import CheckCase, worst_error

_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.5, torch.bfloat16: 0.5}
"""Largest relative error of a row of logits. In half precision a mixture of experts may choose
others after a rounding; unrelated rows are 1.4 apart."""
_EXTENSION = 1
"""The case's sequence whose extension is put into a tree."""
_BESIDE = 4
"""Maximum tokens beside the path."""

_log = logging.getLogger(__name__)


def follows_trees(
    forward: RaggedForward, case: CheckCase, block_size: int, expected: torch.Tensor
) -> bool:
    """Whether an extension computed as a path of a tree gives the expected logits.

    ``case`` has just been run, and ``expected`` are its rows; a model without attention has no
    trees.
    """
    span = case.steps[-1][_EXTENSION]
    if not span.block_tables:
        return False
    room = len(span.block_tables[0]) * block_size - span.start - len(span.tokens)
    beside = min(room, _BESIDE)
    tokens, parents = [*span.tokens[:1]] * beside, [-1] * beside
    way: list[int] = []
    for token in span.tokens:
        parents.append(way[-1] if way else -1)
        way.append(len(tokens))
        tokens.append(token)
    tree = Span(tokens, span.start, span.block_tables, rows=way, tree=parents)
    logits = forward.run(lay_out([tree], block_size))
    rows = [row for row, (owner, _) in enumerate(case.compared) if owner == _EXTENSION]
    error = worst_error(logits, expected[rows])
    if error <= _TOLERANCE[logits.dtype]:  # so written that NaN fails
        return True
    _log.warning(
        "this model does not support tree drafts (relative error %.2g): alternatives are "
        "computed one after another",
        error,
    )
    return False
