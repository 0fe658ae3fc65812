"""Recurrent states for the scheduler: assigns slots, plans the saves of spans, and rolls back.

A step needs one slot for each span, for the state at its end; the slot that it reads will do if no
token can be taken back. All others are optional: states before drafted tokens, states to roll back
to after a leap, checkpoints. They are given up before any sequence is preempted.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from app.engine.batch import Portion
from app.engine.sequence import Sequence
from app.kv.manager import BlockManager
from app.kv.prefix import Prefix
from app.kv.states import EMPTY, KeptState, StatePool

_ADMITTED = 2
"""Free slots that another sequence needs: one to save to, and a checkpoint to start from."""


class StateKeeper:
    """The slots of one scheduler. ``running`` is in order of scheduling."""

    def __init__(self, blocks: BlockManager, pool: StatePool) -> None:
        self._blocks = blocks
        self._pool = pool
        self._promised: set[Sequence] = set()
        """Sequences whose spans in the step being planned will take a free slot each."""
        self._all_given_up = False
        """Whether the running sequences have given up their optional slots in this step."""

    def begin_step(self) -> None:
        """Clear the promises of the last step."""
        self._promised.clear()
        self._all_given_up = False

    def start(self, sequence: Sequence, prefix: Seq[Prefix]) -> None:
        """Start a sequence from the checkpoint of ``prefix``."""
        size, blocks, kept = self._blocks.block_size, self._blocks, sequence.states
        start = len(prefix) * size
        kept.start(self._pool, prefix[-1] if prefix else None, start)
        self._promised.add(sequence)
        if blocks.share_prefixes:
            found = blocks.cached(sequence.identities, sequence.request.scope)
            for border in (found, (sequence.answer_start - 1) // size * size):
                if border > start:
                    kept.want(border)

    def has_room(self, sequence: Sequence, running: Seq[Sequence]) -> bool:
        """Whether another sequence can run beside ``running``, if these give up optional slots."""
        least = sum([_least(each) for each in running]) + _least(sequence)
        return least < self._pool.count and self._has_free(_ADMITTED, running)

    def promise(self, sequence: Sequence, granted: int, running: Seq[Sequence]) -> bool:
        """Reserve a slot for a span, if it needs one; False if none is free."""
        if self._overwrites(sequence, sequence.launched + granted):
            return True
        if not self._has_free(1, running):
            return False
        self._promised.add(sequence)
        return True

    def read(self, portion: Portion) -> None:
        """Set the state that a span reads, without saving any."""
        newest = portion.sequence.states.newest
        assert portion.sequence.states.end == portion.start
        portion.state = EMPTY if newest is None else newest.slot

    def save(self, portion: Portion) -> None:
        """Set the state that the span reads, and those that it saves.

        The slot for the state at the end was promised; states before drafted tokens and at
        checkpoint borders are saved if a slot is free.
        """
        sequence, pool = portion.sequence, self._pool
        kept, start, end = sequence.states, portion.start, portion.end
        self.read(portion)
        if self._overwrites(sequence, end):
            last = kept.states.pop()
            last.position, last.planned = end, False
        else:
            self._promised.discard(sequence)
            last = KeptState(end, pool.take())
        saved = [last]
        if portion.draft.tokens:
            known = end - len(portion.draft.tokens)
            self._save(saved, known)
            for before in portion.draws[1:-1]:
                if pool.has_spare:
                    self._save(saved, known + before)
        if self._blocks.share_prefixes:
            for border in kept.due(start, end, pool.interval):
                self._save(saved, border, planned=True)
        saved.sort(key=lambda state: state.position)
        kept.states += saved
        portion.saves = [(state.position - start, state.slot) for state in saved]

    def _save(self, saved: list[KeptState], position: int, *, planned: bool = False) -> None:
        for state in saved:
            if state.position == position:
                state.planned = state.planned or planned
                return
        if self._pool.num_free > len(self._promised):
            saved.append(KeptState(position, self._pool.take(), planned))

    def go_back(self, sequence: Sequence, valid: int) -> int:
        """Roll back to the last state not after ``valid``, with the blocks; returns its position.

        It is a kept state or a checkpoint of the sequence's prefix, else the start.
        """
        kept, table, blocks = sequence.states, sequence.blocks, self._blocks
        size = blocks.block_size
        while True:
            kept.cut(self._pool, valid)
            for index in range(min(valid // size, len(table.chain)), kept.end // size, -1):
                prefix = table.chain[index - 1]
                if prefix.checkpoint:
                    kept.hold(self._pool, prefix, index * size)
                    break
            position = kept.end
            if position >= len(table.chain) * size:
                return position
            valid = blocks.truncate(table, position)
            if valid == position:
                return position

    def settle(self, sequence: Sequence) -> None:
        """Register planned checkpoints after a commit, and release states that are not needed."""
        kept, computed = sequence.states, sequence.computed
        for state in kept.states:
            if state.planned and state.position <= computed:
                state.planned = False
                prefix = sequence.blocks.chain[state.position // self._blocks.block_size - 1]
                self._pool.register(prefix, state.slot)
        if sequence.state is None:
            kept.keep_newest(self._pool, computed)
        else:
            kept.thin(self._pool, computed, min(sequence.answer_start, len(sequence.tokens) - 1))

    def cut(self, sequence: Sequence) -> None:
        """Release the states after the computed tokens: they belong to other tokens."""
        sequence.states.cut(self._pool, sequence.computed)

    def free(self, sequence: Sequence) -> None:
        """Release all states of a sequence that stops running."""
        self._promised.discard(sequence)
        sequence.states.free(self._pool)

    def is_coming(self, sequence: Sequence, found: int, running: Seq[Sequence]) -> bool:
        """Whether a running sequence is about to save a checkpoint of a longer prefix.

        ``found`` tokens were matched so far. A sequence that still has to compute a common prefix
        is asked to save a checkpoint where the two diverge.
        """
        size, tokens = self._blocks.block_size, sequence.identities
        end = found + size
        if not self._blocks.share_prefixes or end >= len(tokens):
            return False
        coming = False
        for other in running:
            most = min(other.answer_start, len(tokens) - 1)
            if other.request.scope != sequence.request.scope or other.computed >= most:
                continue
            others = other.identities
            if others[:end] != tokens[:end]:
                continue
            border = end
            while border + size <= most:
                block = slice(border, border + size)
                if others[block] != tokens[block]:
                    break
                border += size
            if border > other.launched:
                other.states.want(border)
            coming = coming or other.states.is_coming(max(found, other.computed), border)
        return coming

    def _overwrites(self, sequence: Sequence, end: int) -> bool:
        """Whether a span up to ``end`` may overwrite the slot it reads: no rollback can need it."""
        newest = sequence.states.newest
        return (
            newest is not None
            and not newest.planned
            and (sequence.state is None or end < sequence.answer_start)
            and self._pool.may_overwrite(newest.slot)
        )

    def _has_free(self, count: int, running: Seq[Sequence]) -> bool:
        """Whether ``count`` unreserved slots are free, after sequences gave up optional ones."""
        if self._pool.num_free - len(self._promised) >= count:
            return True
        if self._all_given_up:
            return False
        for sequence in reversed(running):
            kept = sequence.states
            kept.keep_least(self._pool, kept.end if sequence.state is None else sequence.computed)
            if self._pool.num_free - len(self._promised) >= count:
                return True
        self._all_given_up = True
        return False


def _least(sequence: Sequence) -> int:
    """Minimum slots of a sequence in a step: two if tokens may be taken back."""
    return 1 if sequence.state is None else 2
