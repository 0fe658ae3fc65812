"""Decoding of one answer: masks of its draws, effects of drawn tokens, and its end."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from itertools import pairwise

from app.core.constraint import ConstraintState, Mask, Vocabulary
from app.core.errors import ConstraintTooComplex, DrawAgain, RejectedToken, WorkPending
from app.core.events import AnswerToken, StepStats
from app.core.step import SampledToken
from app.core.text import Tokenizer
from app.engine.batch import Portion
from app.engine.config import EngineConfig
from app.engine.draft import NO_DRAFT, Source
from app.engine.drafting import Drafter
from app.engine.leap import Leaper
from app.engine.prediction import Prediction
from app.engine.scorer import Scorer
from app.engine.sequence import Sequence
from app.engine.stop_tokens import EditedMasks
from app.engine.token_sources import DRAFTED, HELD, SAMPLED

_MOST_PLAIN = 1 << 14
"""Maximum tokens cached in ``Decoder._plain``."""

_MOST_AGAIN = 64
"""Maximum rejected draws of one token; states narrow to a shortest completion long before."""


class Decoder:
    """Decoding rules for one sequence at a time. Errors of its constraint are raised only here."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        tokenizer: Tokenizer,
        config: EngineConfig,
        *,
        room: int,
        branching: bool,
    ) -> None:
        """``room`` and ``branching``: see ``Scorer``."""
        self._eos_ids = vocabulary.eos_ids
        self._edited = EditedMasks(vocabulary.size)
        self._leaper = Leaper(vocabulary, tokenizer)
        self._drafter = Drafter(self._leaper, config)
        self._scorer = Scorer(self._leaper, vocabulary, config, room=room, branching=branching)
        self._config = config
        self.counts = StepStats()
        """Leapt tokens and budgets met, since the engine last took these counts."""
        self.spelling = self._leaper.spelling
        self._plain: dict[int, AnswerToken] = {}
        """By id, drawn tokens without log-probabilities: the same ones recur."""

    def begin(self, sequence: Sequence) -> None:
        """Leap over a forced opening, before anything of the sequence is computed."""
        sequence.statistics = self._drafter.statistics(sequence.request)
        if sequence.request.options.prediction and self._drafter.wanted(sequence.request):
            sequence.prediction = Prediction(sequence.request.options.prediction)
        sequence.cursor = self._scorer.cursor(sequence.request, sequence.state)
        self._settle(sequence)
        self._scorer.find_next(sequence)
        self.draft(sequence, 1)

    def draft(self, sequence: Sequence, running: int) -> None:
        """Draft the continuation of the answer, for the next step to verify.

        ``running``: number of sequences in that step.
        """
        if sequence.finish_reason is not None:
            return
        if sequence.state is None and sequence.prediction is None:
            return
        sequence.draft = self._drafter.extend(sequence, running)
        self._expect_draft(sequence, len(sequence.draft.tokens), running)

    def learn(self, sequence: Sequence, running: int) -> None:
        """Record whether the answer would have had a draft; its next step is already launched.

        In steps with many answers this is done once in 16 calls.
        """
        statistics = sequence.statistics
        if statistics is None:
            if sequence.prediction is not None:
                self._drafter.extend(sequence, running)
            return
        if running >= self._config.pipelined_answers and statistics.skips():
            return
        self._expect_draft(sequence, len(self._drafter.extend(sequence, running).tokens), running)

    def _expect_draft(self, sequence: Sequence, drafted: int, running: int) -> None:
        # In two halves, an answer is in every second step only: a draft has to make up for that.
        enough = 2 if running >= self._config.pipelined_answers else 1
        if sequence.statistics is not None and drafted >= enough:
            sequence.statistics.expect(sequence.place, plain=False)

    def record(self, portion: Portion, position: int) -> bool:
        """Record the outcome of the draft for ``position``; returns whether it was correct."""
        index, draft = position - portion.first_drawn - 1, portion.draft
        if not 0 <= index < len(draft.tokens):
            return False
        sequence, tokens = portion.sequence, portion.sequence.tokens
        correct = position < len(tokens) and tokens[position] == draft.tokens[index]
        if correct:
            sequence.sources.confirm(position - sequence.answer_start, DRAFTED)
        source = draft.sources[index]
        if source is Source.COPIED and sequence.statistics is not None:
            sequence.statistics.copies.record(correct)
        elif source is Source.PREDICTED and sequence.prediction is not None:
            sequence.prediction.record(correct)
        return correct

    def masks(self, portion: Portion, work: int) -> list[Mask | None]:
        """Masks for the draws of ``portion``: after the answer, and after some drafted tokens.

        ``work`` limits the cost of the first mask (see ``ConstraintState.mask``), and separately
        that of all others together, which may be of no use. Ends early if a mask excludes the next
        drafted token, or takes more work. Raises ``WorkPending`` if the first one does.
        """
        sequence, draft = portion.sequence, portion.draft.tokens
        state = sequence.state
        if state is None:
            if sequence.stop_tokens is None:
                return [None] * len(portion.draws)
            return [self._edit(sequence, None, None, ahead) for ahead in portion.draws]
        masks = [self._mask(sequence, state, (), work)]
        if not draft:
            return masks
        state = state.copy()
        work //= len(portion.draws)
        for before, after in pairwise(portion.draws):
            mask, drafted = masks[-1], draft[before]
            if mask is not None and not (int(mask[drafted >> 5]) >> (drafted & 31)) & 1:
                break
            try:
                for position, token in enumerate(draft[before:after], before):
                    state.accept(token, budget=self._budget(sequence, draft[: position + 1]))
                masks.append(self._mask(sequence, state, draft[:after], work))
            except (WorkPending, RejectedToken):
                break
        return masks

    def _mask(
        self, sequence: Sequence, state: ConstraintState, draft: Seq[int], work: int
    ) -> Mask | None:
        """The mask of the draw after ``draft``; ``state`` is the state there."""
        budget = self._budget(sequence, draft)
        # The shared plain mask first, so that pending work on it is not lost to the narrowed one.
        wanted = budget is None or sequence.budget.closed is None
        plain = state.mask(work=work) if wanted else None
        mask = plain
        if mask is None or (budget is not None and not state.gave_up):
            mask = state.mask(budget, work=work)
        if budget is not None and plain is not None:
            first = sequence.budget.note(state, mask, plain, sequence.length, len(draft))
            self.counts.budget_closed += first
        return self._edit(sequence, mask, state, len(draft))

    def _edit(
        self, sequence: Sequence, mask: Mask | None, state: ConstraintState | None, ahead: int
    ) -> Mask | None:
        """``mask`` edited for the request's own stop tokens."""
        if sequence.stop_tokens is None:
            return mask
        complete = state is None or state.is_complete
        edit = sequence.stop_tokens.edit(sequence.length + ahead, complete=complete)
        return mask if edit is None else self._edited.get(mask, edit)

    def take(self, sequence: Sequence, sampled: SampledToken) -> int:
        """Add a drawn token to the answer, then leap if text is forced.

        Returns the lowest position of ``sequence.tokens`` that is new or changed. If the token
        is rejected, only ``sequence.drawn_again`` changes, and the draw has to be repeated.
        Raises errors of the constraint; the sequence cannot be used any more then.
        """
        token = sampled.token_id
        changed = settled = len(sequence.tokens)
        budget = sequence.budget
        if budget.closed is None and budget.closing == sequence.length:
            answer = sequence.tokens[sequence.answer_start :]
            budget.closed = b"".join([self.spelling[each] for each in answer])
        sequence.draft = NO_DRAFT
        state, statistics = sequence.state, sequence.statistics
        if state is not None and statistics is not None:
            sequence.place = state.state_id
        may_end = token in self._eos_ids or sequence.stop_tokens is not None
        if may_end and self._ends(sequence, token):
            sequence.end(sampled)
        else:
            source = SAMPLED
            if state is not None:
                if (forced := state.forced()) and self._leaps(sequence):
                    source = HELD if forced.startswith(self.spelling[token]) else SAMPLED
                try:
                    state.accept(token, budget=self._budget(sequence, (token,)))
                except DrawAgain:
                    sequence.drawn_again += 1
                    self.counts.drawn_again += 1
                    if sequence.drawn_again > _MOST_AGAIN:
                        raise ConstraintTooComplex("too many drawn tokens were rejected") from None
                    return changed
                if statistics is not None and self._drafter.wanted(sequence.request):
                    statistics.record(sequence.place, sequence.tokens[-1], token)
            sequence.append(self._drawn(sampled), source)
            settled = self._settle(sequence)
        if statistics is not None:
            plain = settled == len(sequence.tokens) == changed + 1
            statistics.expect(sequence.place, plain=plain and sequence.finish_reason is None)
        changed = min(changed, settled)
        if sequence.cursor is not None:
            self._scorer.find_next(sequence)
            if sequence.scoring is not None:
                changed = min(changed, sequence.scoring.base - 1)
        return changed

    def _budget(self, sequence: Sequence, draft: Seq[int]) -> int | None:
        return sequence.budget.left(sequence.length, draft, self.spelling)

    def finish_choice(self, sequence: Sequence) -> int:
        """Finish a scored choice, leap if its way was drawn, and find the next choice.

        Returns the lowest position of ``sequence.tokens`` that is new, changed or read again.
        """
        changed, scoring = len(sequence.tokens), sequence.scoring
        assert scoring is not None
        self._scorer.finish(sequence)
        if scoring.exact:
            sequence.draft = NO_DRAFT
            changed = self._settle(sequence)
        self._scorer.find_next(sequence)
        if sequence.scoring is not None:
            return min(changed, sequence.scoring.base - 1)
        if sequence.pending_finish is not None:
            sequence.finish(sequence.pending_finish)
        return changed

    def _drawn(self, sampled: SampledToken) -> AnswerToken:
        """A drawn token as the answer has it."""
        token, logprob, top = sampled.token_id, sampled.logprob, sampled.top
        if top or logprob:
            return AnswerToken(token, self.spelling[token], "sampled", logprob, top)
        plain = self._plain.get(token)
        if plain is None:
            if len(self._plain) >= _MOST_PLAIN:
                self._plain.clear()
            plain = self._plain[token] = AnswerToken(token, self.spelling[token], "sampled")
        return plain

    def _ends(self, sequence: Sequence, token: int) -> bool:
        """Whether a drawn token ends the answer."""
        state, stop = sequence.state, sequence.stop_tokens
        if token not in self._eos_ids and (stop is None or not stop.ends(token, sequence.length)):
            return False
        # Only a stop token that spells something may cut an answer, as a stop string may.
        whole = state is None or state.is_complete
        assert whole or self.spelling[token], "ended inside an answer"
        return True

    def _settle(self, sequence: Sequence) -> int:
        """Leap, and finish if nothing is undecided; returns the lowest changed position."""
        changed = len(sequence.tokens)
        self._finish_if_decided(sequence)
        if sequence.finish_reason is not None or sequence.state is None:
            return changed
        if not self._leaps(sequence):
            return changed
        statistics = sequence.statistics
        leap = self._leaper.propose(
            sequence.tokens,
            sequence.answer_start,
            sequence.state,
            sequence.budget.limit,
            finish=sequence.budget.finishes,
            known=None if statistics is None else statistics.changes,
        )
        if leap is None:
            return changed
        change, state = leap
        self.counts.leapt_tokens += sequence.leap(change, state)
        self.counts.skipped_tokens += max(0, len(sequence.tokens) - changed)
        self._finish_if_decided(sequence)
        return changed - change.dropped

    def _leaps(self, sequence: Sequence) -> bool:
        return self._config.leap and sequence.request.options.leap

    def _finish_if_decided(self, sequence: Sequence) -> None:
        if sequence.finish_reason is not None:
            return
        state = sequence.state
        if state is not None and state.is_final:
            sequence.finish("stop")
            return
        length, budget = sequence.length, sequence.budget
        if budget.thinking is not None and length >= budget.limit:
            # Either all is spent, or the answer is complete: it needs no end mark any more, and
            # no tokens in reserve.
            budget.thinking = None
        if length >= budget.most:
            complete = state is not None and state.is_complete
            cut = not complete or sequence.request.open_ended
            sequence.finish("length" if cut else "stop")
