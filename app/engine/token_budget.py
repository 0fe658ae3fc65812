"""How many tokens of each running sequence a step computes."""

from __future__ import annotations

from app.engine.batch import Batch
from app.engine.config import EngineConfig
from app.engine.sequence import Sequence


def grant(batch: Batch, config: EngineConfig) -> int:
    """Tokens for each running sequence: small gaps first, the rest to long prompts.

    Every small gap gets one token at least, so that a step full of leaps delays nobody. Prompts
    may take all of it where no answer waits for the step. An image that has to be computed in one
    step has its room before all others, and may be more than prompts have otherwise. Returns how
    many tokens of prompts the step may compute beside these.
    """
    gaps = batch.gaps
    if not gaps or (
        max(gaps.values()) <= config.small_gap_tokens
        and sum(gaps.values()) <= config.max_batch_tokens
    ):
        batch.grants = gaps
        waited = gaps or batch.busy
        return config.max_prefill_tokens if waited else config.max_batch_tokens
    most = config.small_gap_tokens
    batch.grants = grants = dict.fromkeys(gaps, 0)
    small = [sequence for sequence, gap in gaps.items() if gap <= most and not sequence.whole]
    long = [sequence for sequence, gap in gaps.items() if gap > most or sequence.whole]
    kept = long[0].whole if long else 0
    left = config.max_batch_tokens - kept
    for behind, sequence in zip(reversed(range(len(small))), small, strict=True):
        grants[sequence] = sequence.uncut(min(gaps[sequence], left - behind))
        left -= grants[sequence]
    waited = bool(small or batch.busy)
    prefill = config.max_prefill_tokens if waited else config.max_batch_tokens
    left += kept
    for sequence in long:
        granted = prompt_tokens(sequence, gaps[sequence], prefill, left)
        left -= granted
        prefill -= granted
        if granted:
            grants[sequence] = granted
        else:
            del grants[sequence]
    return max(0, prefill)


def prompt_tokens(sequence: Sequence, gap: int, prefill: int, left: int) -> int:
    """How many of ``gap`` a step computes that has room for ``left``, ``prefill`` of them prompts'.

    No image that has to be computed in one step is cut: one that comes next is computed whole if
    there is room for it, though it be more than prompts have.
    """
    if prefill <= 0:
        return 0
    granted = sequence.uncut(min(gap, prefill, left))
    if granted or sequence.whole > left:
        return granted
    return sequence.whole
