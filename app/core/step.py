"""A step of the engine, as it crosses to the runner and back.

A sequence has *known* tokens (prompt, sampled, leapt, drafted) and *computed* tokens (their keys
and values are in the cache). A span closes part of the gap::

    position   0                start              start + len(tokens)     known
               |---- computed ----|---- this span ----|---- later steps -----|

Rows to sample are named apart from the spans, since a span that ends inside the prompt needs no
logits and one with drafted tokens needs several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.core.constraint import Mask
from app.core.request import SamplingParams


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive tokens of one sequence to be computed in this step."""

    tokens: Sequence[int]
    """Token ids, one or more."""
    start: int
    """Position of ``tokens[0]``: how many tokens of the sequence are already computed."""
    block_table: Sequence[int]
    """Cache blocks of the sequence in order, covering at least ``start + len(tokens)``."""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """Draw one token from the logits at one position of one span."""

    span: int
    """Index into ``StepPlan.spans``."""
    offset: int
    """Index into that span's tokens; the draw is for the position after it."""
    params: SamplingParams
    key: int
    """64-bit counter of the random number: depends on the seed and the answer's bytes so far."""
    history: Sequence[int] = ()
    """Tokens of prompt and answer so far; given only where penalties need them."""
    answer_start: int = 0
    """Index in ``history`` of the answer's first token (presence and frequency count those)."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One ragged batch: spans of many sequences, and the rows to sample."""

    spans: Sequence[Span]
    rows: Sequence[SampleRow]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    token_id: int
    logprob: float
    """Natural logarithm of the probability among the allowed tokens."""


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The outcome of one ``SampleRow``."""

    token_id: int
    logprob: float = 0.0
    """Set only where the row asked for logprobs."""
    top: Sequence[TokenLogprob] = ()
    """Likeliest alternatives, best first, as many as were asked for."""


@dataclass(frozen=True, slots=True)
class StepResult:
    tokens: Sequence[SampledToken]
    """One for each row of the plan, in its order."""


class Runner(Protocol):
    """Runs the model on a step. One thread uses it; launch and sample strictly alternate."""

    @property
    def block_size(self) -> int:
        """Tokens in a cache block."""

    @property
    def num_blocks(self) -> int:
        """Cache blocks there are. Block ids are 0 to ``num_blocks - 1``, all usable."""

    @property
    def max_model_len(self) -> int:
        """Positions a sequence may have, prompt and answer together."""

    def launch(self, plan: StepPlan) -> None:
        """Start the forward pass. On an accelerator it returns before the pass has ended."""

    def sample(self, masks: Sequence[Mask | None]) -> StepResult:
        """Wait for the pass and draw one token for each row of the launched plan.

        ``masks`` has one entry for each row; None allows every token.
        """
