"""The engine's own settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Limits of a step, and which short cuts are taken. Raises ValueError if they conflict."""

    max_batch_tokens: int = 512
    """Tokens computed in one step, all sequences together."""
    max_running: int = 64
    """Sequences that hold cache blocks at a time."""
    max_prefill_tokens: int = 128
    """Tokens of prompts computed in one step, all together, where other answers wait for it."""
    small_gap_tokens: int = 32
    """A running sequence with at most this many tokens to compute goes before long prompts."""
    max_draft_tokens: int = 16
    """Drafted tokens computed for one sequence in one step."""
    spare_tokens: int = 16
    """Tokens that can be computed in the time that each step takes to read the weights."""
    overlap: bool = False
    """Launch a step while the one before runs, for an accelerator: see ``Engine``."""
    pipelined_answers: int = 64
    """With ``overlap``: number of answers from which two halves that take turns are faster than all
    in one step, with the device idle in between."""
    leap: bool = True
    """Append forced text instead of decoding it, where the request allows it."""
    draft_branches: bool = True
    """Draft from earlier answers of the constraint, and from the prompt."""
    share_prefixes: bool = True
    """Reuse the cache blocks of prompts that begin alike."""

    @property
    def most_whole(self) -> int:
        """Maximum tokens of an image that is computed in one step, beside one token of every other
        sequence."""
        return self.max_batch_tokens - self.max_running

    def __post_init__(self) -> None:
        if self.max_running < 1 or self.max_prefill_tokens < 1 or self.small_gap_tokens < 1:
            raise ValueError("max_running, max_prefill_tokens and small_gap_tokens are at least 1")
        if self.spare_tokens < 1 or self.pipelined_answers < 1:
            raise ValueError("spare_tokens and pipelined_answers are at least 1")
        if self.max_batch_tokens < self.max_running:
            raise ValueError("max_batch_tokens must be at least max_running")
        if self.max_draft_tokens < 0:
            raise ValueError("max_draft_tokens is at least 0")
