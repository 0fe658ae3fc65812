"""The tokens and sequences of one step, and their results."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import pairwise

from app.core.constraint import Mask
from app.core.events import StepStats
from app.core.step import Draw, PendingDraws, Span
from app.engine.choices.scoring import Scoring
from app.engine.draft import NO_DRAFT, Draft
from app.engine.sequence import Sequence

_TO_COME = (0,)
_ONE_DRAW: tuple[int, ...] = (0,)


class Stopwatch:
    """Gives the seconds since its last call."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.now = clock()
        """Time of the last call."""

    def __call__(self) -> float:
        before, self.now = self.now, self._clock()
        return self.now - before


@dataclass(slots=True, eq=False, kw_only=True)
class Portion(Span):
    """One sequence's span of a step, with the draws at its last positions and their outcome."""

    sequence: Sequence
    end: int
    """Position after the span; for a scoring pass its start, as nothing of it stays computed."""
    num_prompt: int = 0
    """Tokens of the prompt in the span."""
    draft: Draft = NO_DRAFT
    """The drafted tokens of the span."""
    draws: tuple[int, ...] = ()
    """For each draw, the number of drafted tokens before it; empty inside a prompt."""
    row: int = 0
    """Index of its first draw among the rows of the step."""
    prompt_rows: range = range(0)
    """Prompt positions whose next token is scored; their rows come after those of the draws."""
    void: bool = False
    """Whether its results are of no use: the answer has ended or continued differently."""
    num_usable: int = 0
    """Draws with a mask; fewer than ``draws`` if a mask excludes the draft or takes too long."""
    num_taken: int = 0
    """Draws that became tokens of the answer."""
    num_accepted: int = 0
    """Drafted tokens that were drawn."""
    scoring: Scoring | None = None
    """The choice that the span scores: then nothing is drawn, and nothing stays computed."""

    @staticmethod
    def of(sequence: Sequence, granted: int, drawn_by: int | None = None) -> Portion:
        """The next ``granted`` tokens of a sequence, drafted ones included.

        ``drawn_by`` is the row of the step in flight that draws the next one, where it is not
        known yet.
        """
        start, known = sequence.launched, len(sequence.tokens)
        end = start + granted
        tables = sequence.blocks.views()
        scoring = sequence.scoring
        if scoring is not None and scoring.is_whole(start, granted):
            tokens, rows, tree = scoring.span(sequence.tokens, start)
            return Portion(
                tokens,
                start,
                tables,
                rows=rows,
                tree=tree,
                sequence=sequence,
                end=start,
                scoring=scoring,
            )
        if drawn_by is not None:
            return Portion(
                _TO_COME,
                start,
                tables,
                drawn_by,
                rows=_ONE_DRAW,
                sequence=sequence,
                end=end,
                draws=_ONE_DRAW,
            )
        prompt = max(0, min(end, sequence.answer_start) - start)
        scores = sequence.prompt_scores
        scored = range(0) if scores is None else scores.wanted(start, end)
        draft, draws = NO_DRAFT, _ONE_DRAW if end == known else ()
        tokens = sequence.tokens[start:end]
        if end > known:
            draft = sequence.draft.cut(end - known)
            draws, end = tuple(draft.draws()), known + len(draft.tokens)
            tokens += draft.tokens
        return Portion(
            tokens,
            start,
            tables,
            rows=[*[known - 1 - start + i for i in draws], *[each - start for each in scored]],
            sequence=sequence,
            end=end,
            num_prompt=prompt,
            draft=draft,
            draws=draws,
            prompt_rows=scored,
        )

    @property
    def first_drawn(self) -> int:
        """Position of the first draw: that of the last confirmed token."""
        return self.end - len(self.draft.tokens) - 1

    def draws_from(self, masks: Seq[Mask | None], spelling: Seq[bytes]) -> list[Draw]:
        """The first draws, one for each of ``masks``; ``spelling``: the bytes of every token id."""
        sequence, draft = self.sequence, self.draft.tokens
        params = sequence.request.options.sampling
        if not masks or not (draft or sequence.has_penalties):
            return [Draw(params, sequence.draw_key, mask) for mask in masks]
        spelled = [spelling[token] for token in draft]
        draws = self.draws[: len(masks)]
        keys = sequence.keys([b"".join(spelled[i:j]) for i, j in pairwise(draws)])
        penalised = sequence.has_penalties
        answer = [*sequence.tokens[sequence.answer_start :], *draft] if penalised else []
        return [
            Draw(params, key, mask, answer[: sequence.length + i], sequence.prompt_tokens)
            for i, key, mask in zip(draws, keys, masks, strict=True)
        ]

    def draw_at(self, position: int) -> int | None:
        """Index of the draw for the token after ``position``; None if there is no usable one."""
        after = position - self.first_drawn
        usable = self.draws[: self.num_usable]
        return usable.index(after) if after in usable else None

    def agreeing(self, tokens: Seq[int], changed: int, valid: int) -> int:
        """Number of leading positions with valid cached values, after a change at ``changed``.

        The first ``valid`` were so before. Only drafted tokens can match the new ``tokens``; values
        of earlier steps are those of the old ones.
        """
        if changed < self.start:
            return min(changed, valid)
        for position in range(changed, min(valid, len(tokens))):
            if tokens[position] != self.tokens[position - self.start]:
                return position
        return valid


@dataclass(slots=True)
class Batch:
    """A step as the engine sees it: the tokens that each sequence computes, and the outcome.

    It is *in flight* from its launch until it is committed.
    """

    gaps: dict[Sequence, int] = field(default_factory=dict)
    """Tokens that could be computed, by running sequence."""
    busy: int = 0
    """Running sequences that cannot continue before the step in flight is committed."""
    grants: dict[Sequence, int] = field(default_factory=dict)
    """Tokens to compute, by sequence."""
    portions: dict[Sequence, Portion] = field(default_factory=dict)
    """The planned spans, by sequence."""
    pending: PendingDraws | None = None
    """The draws, once they have begun."""
    failed: list[Sequence] = field(default_factory=list)
    """Sequences that ended because the masks of their draws failed."""
    scheduled: list[Sequence] = field(default_factory=list)
    """Sequences that run for the first time, or ended when their turn came."""
    resumed: bool = False
    """Whether a preempted sequence runs again, perhaps without computing anything in this step."""
    displaced: int | None = None
    """Highest class of the sequences that were preempted to run others."""
    urgent: bool = False
    """Whether prompts of the default class or above are waiting or running."""
    pauses: bool = False
    """Whether lower classes are left out, since higher ones have prompts to compute."""
    stats: StepStats = field(default_factory=StepStats)

    def finish_stats(self, counts: StepStats, running: int, waiting: int) -> StepStats:
        """Complete the statistics of a committed step with the ``counts`` of the decoder and the
        numbers of ``running`` and ``waiting`` sequences."""
        stats, portions = self.stats, self.portions.values()
        stats.prompt_tokens = sum([each.num_prompt for each in portions])
        stats.sampled_tokens = sum([each.num_taken for each in portions])
        stats.drafted_tokens = sum([each.num_accepted for each in portions])
        stats.proposed_tokens = sum([n - 1 for each in portions if (n := each.num_usable) > 1])
        stats.passes_saved = sum([n - 1 for each in portions if (n := each.num_taken) > 1])
        stats.batch_tokens = sum([len(each.tokens) for each in portions])
        stats.void_tokens = sum([len(each.tokens) for each in portions if each.void])
        stats.scored_tokens = sum([len(p.tokens) for p in portions if p.scoring])
        stats.running, stats.waiting = running, waiting
        stats.leapt_tokens, stats.skipped_tokens = counts.leapt_tokens, counts.skipped_tokens
        stats.budget_closed, stats.drawn_again = counts.budget_closed, counts.drawn_again
        return stats
