"""What one step computes, and for which sequences."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from app.core.step import Span, StepPlan
from app.engine.drafts.draft import NO_DRAFT, Draft
from app.engine.sequence import Sequence


@dataclass(slots=True)
class Part:
    """One sequence's share of a step: a span, and the draws at its last positions."""

    sequence: Sequence
    span: Span
    draft: Draft
    """What of the span is drafted."""
    draws: tuple[int, ...]
    """Before each draw so many drafted tokens come; none inside a prompt."""
    end: int
    """Position after the span."""
    num_prompt: int
    """Tokens of the prompt in this span."""
    num_usable: int = 0
    """Draws whose mask stands for a text that can come about."""
    num_taken: int = 0
    """Draws that became part of the answer."""
    num_accepted: int = 0
    """Drafted tokens that were drawn."""

    @property
    def first_drawn(self) -> int:
        """Position of the first draw: that of the last confirmed token."""
        return self.end - len(self.draft.tokens) - 1

    def draw_at(self, position: int) -> int | None:
        """Which draw is for what follows ``position``, if there is one that can be used."""
        try:
            index = self.draws.index(position - self.first_drawn)
        except ValueError:
            return None
        return index if index < self.num_usable else None

    def agreeing(self, tokens: Seq[int], changed: int, valid: int) -> int:
        """Up to where the cache still holds what ``tokens`` need, after a change at ``changed``.

        Positions below ``valid`` held it before. A token can only agree again where it was
        drafted; one computed in an earlier step was the old one.
        """
        if changed < self.span.start:
            return min(changed, valid)
        for position in range(changed, min(valid, len(tokens))):
            if tokens[position] != self.span.tokens[position - self.span.start]:
                return position
        return valid


@dataclass(frozen=True, slots=True)
class Batch:
    """A step as the engine sees it: the plan for the runner, and whose it is."""

    plan: StepPlan
    parts: list[Part]
    ended: list[Sequence]
    """Sequences that ended when their turn came, with nothing to compute."""
    cached_tokens: int
    """Prompt tokens that sequences admitted now found in the prefix cache."""
    preemptions: int
    prefix_queries: int
    prefix_hits: int


def part_of(sequence: Sequence, granted: int) -> Part:
    """The next ``granted`` tokens of a sequence, drafted ones included."""
    start, known = sequence.computed, len(sequence.tokens)
    end = start + granted
    blocks = tuple(sequence.blocks.blocks)
    num_prompt = max(0, min(end, sequence.answer_start) - start)
    if end <= known:
        draws = (0,) if end == known else ()
        span = Span(sequence.tokens[start:end], start, blocks)
        return Part(sequence, span, NO_DRAFT, draws, end, num_prompt)
    draft = sequence.draft.cut(end - known)
    end = known + len(draft.tokens)
    span = Span([*sequence.tokens[start:], *draft.tokens], start, blocks)
    return Part(sequence, span, draft, tuple(draft.draws()), end, num_prompt)
