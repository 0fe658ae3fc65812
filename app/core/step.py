"""A step of the engine: its input to the runner, and its result.

A sequence has *known* tokens (prompt, sampled, leapt, drafted) and *computed* tokens (their keys
and values are in the cache). A span closes part of the gap::

    position   0                start              start + len(tokens)     known
               |---- computed ----|---- this span ----|---- later steps -----|

A step is a ragged batch: spans of many sequences. A span that ends inside the prompt needs no row
of logits and one with drafted tokens needs several, so it names them. The draws are given after
the launch, so that masks are filled during the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.core.cache import CacheGroup, StateSlots
from app.core.constraint import Mask
from app.core.images import PromptImage
from app.core.request import SamplingParams


@dataclass(frozen=True, slots=True)
class SpanImages:
    """Effects of images on a span."""

    images: Sequence[PromptImage] = ()
    """Images in the span, whose features replace the embeddings of their tokens."""
    shift: int = 0
    """Offset of the model's positions from those in the sequence. Negative after images with
    positions by axis, which take fewer positions than tokens."""
    axes: NDArray[np.int64] | None = None
    """Shape [axes, N]: positions of the first N tokens by axis, regardless of ``shift``."""


@dataclass(slots=True)  # not frozen: a step makes hundreds
class Span:
    """Consecutive tokens of one sequence to be computed in this step."""

    tokens: Sequence[int]
    """Token ids, one or more."""
    start: int
    """Position of ``tokens[0]``: how many tokens of the sequence are already computed."""
    block_tables: Sequence[Sequence[int] | NDArray[np.int32]]
    """For each of the runner's ``cache_groups`` the cache blocks of the sequence in order, covering
    at least ``start + len(tokens)``. Those out of the window of all tokens are any blocks.
    ``launch`` alone may read them: they go on changing."""
    drawn_by: int | None = None
    """Row of the previous step whose draw is this span's only token; ``tokens`` has a 0 for it. The
    token stays on the device, since that step may still run."""
    state: int = 0
    """Slot that holds the recurrent layers' states before ``tokens[0]``; 0 is the empty state of a
    sequence's start, and never written."""
    saves: Sequence[tuple[int, int]] = ()
    """Pairs (tokens of this span, slot for the states after them), ascending. It may save to the
    slot that it reads. No other span of the step reads or writes what it writes."""
    rows: Sequence[int] = ()
    """Indices into ``tokens`` whose next-token logits are needed. The rows of a step are those of
    its spans, in order."""
    adapter: int = 0
    """Slot of the adapter that the sequence runs with; 0 is the base model."""
    vision_input: SpanImages | None = None
    """Effects of images on the span; None: there are none."""
    tree: Sequence[int] = ()
    """If the span is a tree: each token's parent, as an index in the span, or -1 if it follows the
    computed tokens. Parents come before children; at most 64 tokens. A token only attends to the
    computed tokens and its ancestors; its position is ``start`` plus its depth, its keys are at
    ``start`` plus its index. No state is read or saved."""


MOST_TREE_TOKENS = 64
"""Number of bits in an integer of ``ancestors``."""


def ancestors(parents: Sequence[int]) -> list[int]:
    """For each token of a tree, the bits of the tokens that it attends to in the span::

        index     0    1    2    3    4        parents  -1  0  1  0  -1
        depth     0    1    2    1    0
        sees      0    01   012  03   4        and all that is computed before the span

    Itself is among them.
    """
    assert len(parents) <= MOST_TREE_TOKENS, "a tree has too many tokens"
    seen: list[int] = []
    for index, parent in enumerate(parents):
        assert -1 <= parent < index, "a parent comes after its child"
        seen.append((1 << index) | (seen[parent] if parent >= 0 else 0))
    return seen


@dataclass(slots=True)  # not frozen: a step makes hundreds
class Draw:
    """Draw one token from one row of logits."""

    params: SamplingParams
    key: int
    """64-bit counter of the random number: depends on the seed and the answer's bytes so far."""
    mask: Mask | None = None
    """None allows every token."""
    answer: Sequence[int] = ()
    """Tokens of the answer so far; given only where penalties need them."""
    prompt_tokens: NDArray[np.int64] | None = None
    """Distinct tokens of the prompt, ascending; given only for a repetition penalty."""
    scored: Sequence[NDArray[np.int32]] = ()
    """Sets of token ids to score: their log-probabilities in the model's own distribution, without
    mask, penalties and temperature. With sets but no mask, no token is drawn."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    token_id: int
    logprob: float
    """Natural logarithm of the probability among the allowed tokens."""


@dataclass(slots=True)  # not frozen: a step makes hundreds
class SampledToken:
    """The outcome of one ``Draw``."""

    token_id: int
    logprob: float = 0.0
    """Set only where the row asked for logprobs."""
    top: Sequence[TokenLogprob] = ()
    """Likeliest alternatives, best first, as many as were asked for."""
    scores: Sequence[float] = ()
    """Natural logarithm of the probability of each set of ``Draw.scored``; -inf for empty ones."""


NOT_DRAWN = SampledToken(-1)
"""Result of a row without a draw."""


@dataclass(frozen=True, slots=True)
class StepResult:
    tokens: Sequence[SampledToken]
    """One for each row of the step, in its order."""

    def wait(self) -> StepResult:
        """This result: a runner that draws synchronously returns it as its ``PendingDraws``."""
        return self


class StepInterrupted(Exception):
    """A step was interrupted in its pass. Its results are void, and the next may be launched."""


class PendingDraws(Protocol):
    """Draws begun by ``Runner.sample``."""

    def wait(self) -> StepResult:
        """Wait for the device. Called once, before the ``wait`` of any later step."""


class Runner(Protocol):
    """Runs the model on steps. One thread uses it; ``launch`` and ``sample`` strictly alternate."""

    @property
    def block_size(self) -> int:
        """Tokens in a cache block."""

    @property
    def cache_groups(self) -> Sequence[CacheGroup]:
        """The groups of layers that a sequence has block tables for."""

    @property
    def states(self) -> StateSlots | None:
        """Room for recurrent layers' states; None: the model has no such layer."""

    @property
    def max_model_len(self) -> int:
        """Positions a sequence may have, prompt and answer together."""

    @property
    def trees(self) -> bool:
        """Whether spans may be trees: not with recurrent layers, nor with reordered attention."""

    def launch(self, spans: Sequence[Span]) -> None:
        """Start the forward pass of a step. On an accelerator it returns before the pass has ended.

        Steps are computed in the order in which they are launched, each after the draws of the one
        before: so a block may be given away while a step that writes it is still to run. Raises
        ``StepInterrupted`` where the engine asked for that: see ``Engine``.
        """

    def sample(self, draws: Sequence[Draw | None]) -> PendingDraws:
        """Begin to draw one token for each row of the launched step; None: the row is not used.

        The next step may be launched before this one's draws have arrived.
        """
