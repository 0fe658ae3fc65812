"""Decides which tokens to compute next: of the known tokens, those that are not computed yet."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence as Seq

from app.core.request import ServiceTier
from app.engine.batch import Batch, Portion
from app.engine.config import EngineConfig
from app.engine.fair_queue import FairQueue
from app.engine.sequence import Sequence
from app.engine.state_keeping import StateKeeper
from app.kv.manager import BlockManager
from app.kv.prefix import Prefix

_MOST_PASSED = 8
"""Maximum sequences skipped in one step because they wait for a prefix: each costs a lookup."""

_LOWER_SHARE = 4
"""Divisor of ``max_prefill_tokens`` for prompts of lower classes: by default the result is twice
``spare_tokens``."""

_MOST_PAUSED = 16
"""Maximum consecutive steps without flex and batch answers, while higher classes have prompts."""


class Scheduler:
    """Owns the waiting queue, the running sequences, their cache blocks and recurrent states.

    ``running`` is ordered by class, the highest first, and in a class by time of scheduling. If
    blocks run out, or a higher class waits, the last sequence is preempted: it gives its blocks and
    states back and is the first of its class to be scheduled again. Otherwise tenants take turns,
    and each tenant's requests are scheduled in order of arrival.

    Flex and batch answers are left out of steps with prompts of higher classes, which so wait for
    one step at most. Beside answers of higher classes they share the spare tokens; see decision 74.
    """

    def __init__(
        self, config: EngineConfig, blocks: BlockManager, *, interruptible: bool = False
    ) -> None:
        """``interruptible``: steps of flex and batch answers alone can be interrupted."""
        self.running: list[Sequence] = []
        self.waiting: FairQueue[Sequence] = FairQueue(
            lambda sequence: sequence.request.tenant, lambda sequence: sequence.tier
        )
        self.blocks = blocks
        self._states = None if blocks.states is None else StateKeeper(blocks, blocks.states)
        self._config = config
        self._interruptible = interruptible
        self._paused = 0
        """Consecutive steps in which lower classes paused."""
        self._turn = 0
        """Index of the lower-class answer that comes first in the next step."""
        self._needed: dict[Sequence, Seq[int]] = {}
        """Free blocks, by group, that waiting sequences lacked since one was last scheduled. Their
        prefixes are not matched again until as many are free."""

    def add(self, sequence: Sequence) -> None:
        self.waiting.push(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a finished or aborted sequence and free its blocks and states."""
        self._needed.pop(sequence, None)
        if sequence in self.running:
            self._stop(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def survey(self, flight: Batch | None) -> Batch | None:
        """The next step, with the running sequences that can take part in it.

        While ``flight`` computes, these are the answers that are not in it, prompts of which it
        computes a part, and answers whose single draw in it is expected to add exactly one token:
        they continue from that draw. None if it is better to wait for the flight, as too many
        other answers would wait for two steps instead of one.

        With ``overlap``, answers that are expected to add more are split into halves that take
        turns, if that leaves enough for each step. See decision 23.
        """
        batch, config = Batch(), self._config
        taking_part = self.running
        batch.urgent = self._has_urgent_prompts()
        if batch.urgent and self._paused < _MOST_PAUSED:
            taking_part = [each for each in self.running if each.tier >= ServiceTier.DEFAULT]
            batch.pauses = True
        elif not batch.urgent:
            taking_part = self._in_turns()
        if not config.overlap:
            batch.gaps = {sequence: sequence.gap for sequence in taking_part}
            return batch
        gaps, multi_token = batch.gaps, list[Sequence]()
        flying = {} if flight is None else flight.portions
        for sequence in taking_part:
            portion = flying.get(sequence)
            if portion is not None and portion.scoring is not None and not portion.void:
                batch.busy += 1
            elif portion is None or portion.void or not portion.draws:
                gaps[sequence] = sequence.gap
                if sequence.draft.tokens or not sequence.adds_one_token:
                    multi_token.append(sequence)
            elif portion.num_usable == 1 == len(portion.draws) and sequence.adds_one_token:
                gaps[sequence] = 1
            else:
                batch.busy += 1
        half = (len(multi_token) + batch.busy + 1) // 2
        enough = len(gaps) - len(multi_token) + half >= config.pipelined_answers
        if flight is not None and (not gaps or (batch.busy and not enough)):
            return None
        if enough:  # at most half take part; the others are in the next step
            for sequence in multi_token[half:]:
                del gaps[sequence]
        return batch

    def _has_urgent_prompts(self) -> bool:
        """Whether one of the default class or a higher one waits, or has a prompt to compute."""
        first = self.waiting.next()
        return (first is not None and first.tier >= ServiceTier.DEFAULT) or any(
            each.launched < each.answer_start
            for each in self.running
            if each.tier >= ServiceTier.DEFAULT
        )

    def _lower_prefill(self, batch: Batch) -> int:
        """Limit of prompt tokens in a step with lower classes; 0: that of any other step.

        Beside answers of higher classes only spare tokens are used. Otherwise prompts may fill a
        step that can be interrupted, since no answer waits for it.
        """
        if batch.urgent:
            return 0
        running, first = self.running, self.waiting.next()
        ends = [each for each in (first, *running[-1:]) if each is not None]
        if not any(each.tier < ServiceTier.DEFAULT for each in ends):
            return 0
        most = max(1, self._config.max_prefill_tokens // _LOWER_SHARE)
        if running and running[0].tier >= ServiceTier.DEFAULT:
            small = [gap for gap in batch.gaps.values() if gap <= self._config.small_gap_tokens]
            return max(1, min(most, self._config.spare_tokens - sum(small)))
        return self._config.max_batch_tokens if self._interruptible else most

    def _in_turns(self) -> list[Sequence]:
        """All running sequences; beside higher classes only as many lower ones, with their drafts,
        as the step has spare tokens for."""
        running = self.running
        if not running or not running[-1].tier < ServiceTier.DEFAULT <= running[0].tier:
            return running
        higher = [each for each in running if each.tier >= ServiceTier.DEFAULT]
        lower = running[len(higher) :]
        room = self._config.spare_tokens - len(higher)
        first = self._turn % len(lower)
        chosen: list[Sequence] = []
        for sequence in lower[first:] + lower[:first]:
            if (
                sequence.gap <= self._config.small_gap_tokens
            ):  # else a prompt: see ``_lower_prefill``
                room -= sequence.gap
            if room < 0 and chosen:
                break
            chosen.append(sequence)
        self._turn = first + len(chosen)
        return higher + chosen

    def schedule(self, batch: Batch) -> None:
        """Grant tokens and blocks to the surveyed sequences; use the rest for waiting ones."""
        self._paused = self._paused + 1 if batch.pauses else 0
        prefill = _grant(batch, self._config, self._lower_prefill(batch))
        for each in [one for one in batch.grants if one.scoring is not None]:
            if not each.fits(batch.grants[each]):
                del batch.grants[each]
        self._find_blocks(batch)
        if self._states is not None:
            self._find_slots(batch, self._states)
        room = self._config.max_batch_tokens - sum(batch.grants.values())
        left = min(room, prefill)
        passed: list[Sequence] = []
        if batch.stats.preemptions:
            return
        while left > 0:
            sequence = self.waiting.next(passed)
            if sequence is not None and not self._may_have_slot(sequence, batch):
                # An overdue class waits for a free slot; meanwhile higher ones may preempt lower.
                sequence = self.waiting.next(passed, above=sequence.tier)
            if sequence is None or not self._may_have_slot(sequence, batch):
                return
            lower = sequence.tier < ServiceTier.DEFAULT
            if batch.pauses and lower and not self.waiting.is_overdue(sequence):
                return
            if sequence in self._needed and not self._make_room(
                sequence, self._needed[sequence], batch
            ):
                return
            prefix: Seq[Prefix] = ()
            if not sequence.recomputes:
                prefix = self.blocks.match(sequence.basis, sequence.request.scope)
            if self._prefix_is_coming(sequence, len(prefix)):
                if self.waiting.has_returned(sequence) or len(passed) == _MOST_PASSED:
                    return
                passed.append(sequence)
                continue
            # A sequence that waits for blocks is not skipped, or it would starve.
            needed = self.blocks.needed(sequence.num_known, prefix)
            if not self._make_room(sequence, needed, batch):
                self._needed[sequence] = needed
                return
            while self._states is not None and not self._states.has_room(sequence, self.running):
                if not self._displace(sequence, batch):
                    return
            self._run(sequence, prefix, batch)
            granted = _prompt_tokens(sequence, sequence.gap, left, room)
            covered = sequence.blocks.covered * self.blocks.block_size
            if granted and sequence.fits(granted) and sequence.launched + granted <= covered:
                batch.grants[sequence] = granted
                left -= granted
                room -= granted

    def plan(self, batch: Batch, flight: Batch | None) -> Seq[Portion]:
        """Turn the grants into portions and mark them as launched."""
        rows = 0
        portions = batch.portions
        flying = {} if flight is None else flight.portions
        for sequence, granted in batch.grants.items():
            before = flying.get(sequence)
            drawn_by = (
                before.row if before is not None and before.draws and not before.void else None
            )
            portions[sequence] = portion = Portion.of(sequence, granted, drawn_by)
            if self._states is not None and portion.scoring is None:
                self._states.save(portion)
            elif self._states is not None:
                self._states.read(portion)
            portion.row = rows
            portion.adapter = sequence.request.adapter
            if sequence.vision_input is not None:
                portion.vision_input = sequence.vision_input.of(
                    portion.start, portion.start + len(portion.tokens)
                )
            rows += len(portion.rows)
            sequence.launched = portion.end
        return [*portions.values()]

    def take_back(self, batch: Batch) -> None:
        """Undo the launch of a step that was interrupted: none of it is computed."""
        for sequence in batch.portions:
            sequence.launched = sequence.computed
        batch.portions.clear()

    def _find_blocks(self, batch: Batch) -> None:
        """Grow tables to cover the grants, oldest first, preempting the newest if need be.

        The oldest sequence can take every block, and ``Engine.add`` made sure that those suffice:
        so some sequence always advances.
        """
        grants, blocks = batch.grants, self.blocks
        for sequence in list(grants):
            if sequence not in grants:
                continue
            needed = sequence.launched + grants[sequence]
            if needed <= sequence.blocks.covered * blocks.block_size:
                continue
            if not blocks.can_grow(sequence.blocks, needed):  # leave drafted tokens out
                if sequence.scoring is None:
                    least = len(sequence.tokens) - sequence.launched
                    grants[sequence] = min(grants[sequence], least)
                needed = sequence.launched + grants[sequence]
                flies = sequence.launched > sequence.computed
                # After the commit of the step in flight, windows give blocks back.
                if not grants[sequence] or (flies and not blocks.can_grow(sequence.blocks, needed)):
                    del grants[sequence]
                    continue
            while sequence in grants and not blocks.can_grow(sequence.blocks, needed):
                self._preempt(batch)
            if sequence in grants:
                blocks.grow(sequence.blocks, needed)

    def _find_slots(self, batch: Batch, states: StateKeeper) -> None:
        """Reserve a slot for the state at the end of each grant, in the same way as blocks."""
        states.begin_step()
        grants = batch.grants
        for sequence in list(grants):
            if sequence not in grants:
                continue
            scoring = sequence.scoring
            if scoring is not None and scoring.is_whole(sequence.launched, grants[sequence]):
                continue
            while sequence in grants and not states.promise(
                sequence, grants[sequence], self.running
            ):
                if sequence.launched > sequence.computed:
                    del grants[sequence]
                    break
                self._preempt(batch)

    def _preempt(self, batch: Batch) -> Sequence:
        """Take all blocks from the sequence scheduled last; it keeps its known tokens."""
        sequence = self.running[-1]
        self._put_back(sequence)
        batch.grants.pop(sequence, None)
        batch.stats.preemptions += 1
        return sequence

    def _may_have_slot(self, sequence: Sequence, batch: Batch) -> bool:
        """Whether ``max_running`` is not reached, or a sequence of a lower class can be preempted.

        A sequence that gave way in this step is not scheduled again in it: the step in flight may
        compute for it.
        """
        if batch.displaced is not None and sequence.tier <= batch.displaced:
            return False
        free = len(self.running) < self._config.max_running
        return free or self.running[-1].tier < sequence.tier

    def _make_room(self, sequence: Sequence, needed: Seq[int], batch: Batch) -> bool:
        """Preempt lower classes for a slot and blocks of ``sequence``; False: not possible."""
        # One block for each running sequence stays free.
        while len(self.running) >= self._config.max_running or not self.blocks.has_free(
            needed, len(self.running)
        ):
            if not self._displace(sequence, batch):
                return False
        return True

    def _displace(self, sequence: Sequence, batch: Batch) -> bool:
        """Preempt the last one of a lower class than ``sequence``'s; False: there is none."""
        if not self.running or self.running[-1].tier >= sequence.tier:
            return False
        last = self._preempt(batch)
        if batch.displaced is None or batch.displaced < last.tier:
            batch.displaced = last.tier
        return True

    def _put_back(self, sequence: Sequence) -> None:
        """Have a running sequence wait again, for its turn to come first."""
        self._stop(sequence)
        sequence.computed = sequence.launched = 0
        self.waiting.put_back(sequence)

    def _stop(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.blocks.free(sequence.blocks)
        if self._states is not None:
            self._states.free(sequence)

    def _run(self, sequence: Sequence, prefix: Seq[Prefix], batch: Batch) -> None:
        """Give a waiting sequence its blocks, those of its prefix first.

        Its tenant is charged for the rest of the prompt now, once, and for the answer's tokens as
        they are computed.
        """
        self._needed.clear()
        if self.waiting.take(sequence):  # overdue: raised so that it is not preempted at once
            higher = min(sequence.tier + 1, ServiceTier.PRIORITY)
            sequence.tier = ServiceTier(max(higher, ServiceTier.DEFAULT))
        insort(self.running, sequence, key=lambda each: -each.tier)
        known, blocks = sequence.num_known, self.blocks
        sequence.blocks = blocks.allocate(known, prefix, sequence.request.scope)
        sequence.computed = sequence.launched = len(prefix) * blocks.block_size
        if self._states is not None:
            self._states.start(sequence, prefix)
        if blocks.share_prefixes:
            batch.stats.prefix_queries += (known - 1) // blocks.block_size
            batch.stats.prefix_hits += len(prefix)
        if sequence.scheduled:
            batch.resumed = True
            return
        sequence.scheduled = True
        batch.scheduled.append(sequence)
        sequence.cached_tokens = min(sequence.computed, sequence.answer_start)
        batch.stats.cached_tokens += sequence.cached_tokens
        own = sequence.answer_start - sequence.cached_tokens
        self.waiting.charge(sequence.request.tenant, own, sequence.tier)

    def _prefix_is_coming(self, sequence: Sequence, blocks: int) -> bool:
        """Whether a running sequence is about to compute the next full block of this prefix.

        Sequences of lower classes do not count, since they may pause.
        """
        if sequence.recomputes:
            return False
        running = [each for each in self.running if each.tier >= sequence.tier]
        if self._states is not None:
            return self._states.is_coming(sequence, blocks * self.blocks.block_size, running)
        end = (blocks + 1) * self.blocks.block_size
        if not self.blocks.share_prefixes or end >= len(sequence.tokens):
            return False
        return any(
            other.computed < end <= other.answer_start
            and other.request.scope == sequence.request.scope
            and other.identities[:end] == sequence.identities[:end]
            for other in running
        )

    def commit(self, portion: Portion, valid: int) -> None:
        """Account for a span: the cache is right for positions below ``valid``.

        Tokens replaced by a leap lower the computed count; their blocks are cut back, and never
        written while shared. If the count falls to positions whose window blocks were given back,
        the sequence waits again and restarts from the prefix cache.
        """
        sequence = portion.sequence
        own = len(portion.tokens) - portion.num_prompt
        self.waiting.charge(sequence.request.tenant, own, sequence.tier)
        if not sequence.blocks.in_use:
            return  # it was preempted meanwhile
        states, computed = self._states, min(valid, len(sequence.tokens) - 1)
        full, size = len(sequence.blocks.chain), self.blocks.block_size
        if states is not None and computed < portion.end and sequence.finish_reason is None:
            computed = states.go_back(sequence, computed)
        elif computed < full * size:
            computed = self.blocks.truncate(sequence.blocks, computed)
        if computed < sequence.blocks.least:
            self._put_back(sequence)
            return
        sequence.computed = sequence.launched = computed
        if computed >= (full + 1) * size:
            self.blocks.advance(sequence.blocks, sequence.identities, computed)
        if states is not None:
            states.settle(sequence)

    def follow(self, portion: Portion, drawn: int) -> None:
        """Account for a span in flight, now that the step before it is committed.

        If it was launched ahead and the answer did not just continue with the token ``drawn``, its
        draw is void; its computed position stays valid if the token is there.
        """
        sequence, start = portion.sequence, portion.start
        if portion.drawn_by is None:
            portion.void = sequence.finish_reason is not None
        else:
            tokens = sequence.tokens
            kept = sequence.computed == start < len(tokens) and tokens[start] == drawn
            portion.void = not kept or len(tokens) > start + 1 or sequence.finish_reason is not None
            if kept and portion.void:
                sequence.computed = sequence.launched = start + 1
        if not portion.void:
            sequence.launched = portion.end
        elif self._states is not None:
            self._states.cut(sequence)


def _grant(batch: Batch, config: EngineConfig, lower_prefill: int) -> int:
    """Tokens for each running sequence: small gaps first, the rest to long prompts.

    Every small gap gets one token at least, so that a step full of leaps delays no answer. Prompts
    may fill the step if no answer waits for it; a ``lower_prefill`` above 0 limits them. An image
    that has to be computed in one step is allocated first, and may exceed the limit of prompts.
    Returns how many prompt tokens the step may still compute.
    """
    gaps = batch.gaps
    beside = lower_prefill or config.max_prefill_tokens
    if not gaps or (
        max(gaps.values()) <= config.small_gap_tokens
        and sum(gaps.values()) <= config.max_batch_tokens
    ):
        batch.grants = gaps
        waited = lower_prefill or gaps or batch.busy
        return beside if waited else config.max_batch_tokens
    most = config.small_gap_tokens
    batch.grants = grants = dict.fromkeys(gaps, 0)
    small = [sequence for sequence, gap in gaps.items() if gap <= most and not sequence.whole]
    long = [sequence for sequence, gap in gaps.items() if gap > most or sequence.whole]
    kept = long[0].whole if long else 0
    left = config.max_batch_tokens - kept
    for behind, sequence in zip(reversed(range(len(small))), small, strict=True):
        grants[sequence] = sequence.uncut(min(gaps[sequence], left - behind))
        left -= grants[sequence]
    waited = bool(lower_prefill or small or batch.busy)
    prefill = beside if waited else config.max_batch_tokens
    left += kept
    for sequence in long:
        granted = _prompt_tokens(sequence, gaps[sequence], prefill, left)
        left -= granted
        prefill -= granted
        if granted:
            grants[sequence] = granted
        else:
            del grants[sequence]
    return max(0, prefill)


def _prompt_tokens(sequence: Sequence, gap: int, prefill: int, left: int) -> int:
    """Tokens of ``gap`` that fit in a step with room for ``left`` tokens, ``prefill`` of prompts.

    An image that has to be computed in one step is not split: if it is next, it is computed whole
    when ``left`` is enough, even beyond ``prefill``.
    """
    if prefill <= 0:
        return 0
    granted = sequence.uncut(min(gap, prefill, left))
    return granted if granted or sequence.whole > left else sequence.whole
