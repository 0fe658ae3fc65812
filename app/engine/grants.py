"""How many tokens of each running sequence a step computes."""

from __future__ import annotations

from app.engine.batch import Batch
from app.engine.config import EngineConfig


def grant(batch: Batch, config: EngineConfig) -> int:
    """Tokens for each running sequence: small gaps first, the rest to long prompts.

    Every small gap gets one token at least, so that a step full of leaps delays nobody. Prompts
    may take all of it where no answer waits for the step. Returns how many tokens of prompts
    the step may compute beside these.
    """
    gaps = batch.gaps
    if not gaps or (
        max(gaps.values()) <= config.small_gap_tokens
        and sum(gaps.values()) <= config.max_batch_tokens
    ):
        batch.grants = gaps
        waited = gaps or batch.busy
        return config.max_prefill_tokens if waited else config.max_batch_tokens
    left, most = config.max_batch_tokens, config.small_gap_tokens
    batch.grants = grants = dict.fromkeys(gaps, 0)
    behind = small = sum([gap <= most for gap in gaps.values()])
    for sequence, gap in gaps.items():
        if gap <= most:
            behind -= 1
            grants[sequence] = min(gap, left - behind)
            left -= grants[sequence]
    waited = small or batch.busy
    prefill = config.max_prefill_tokens if waited else config.max_batch_tokens
    if small == len(gaps):
        return prefill
    for sequence, gap in gaps.items():
        if gap > most:
            granted = min(gap, prefill, left)
            left -= granted
            prefill -= granted
            if granted:
                grants[sequence] = granted
            else:
                del grants[sequence]
    return prefill
