"""Work on constraints that does not fit in one step: the sequences take turns, one per step."""

from __future__ import annotations

from collections.abc import Callable

from app.engine.sequence import Sequence

WORK_AT_ONCE = 1_000
"""Steps of work (see ``ConstraintState.mask``) that one answer may cost a step of the engine."""

WORK_IN_TURN = 2_000
"""Limit of the sequence whose turn it is, of those that need more; ``WORK_AT_ONCE`` if the engine
has more answers than ``_FEW``."""

_FEW = 12
"""Number of answers, queued ones included, up to which a turn has ``WORK_IN_TURN``."""

_WORK_ALONE = 80_000
"""Limit of an answer that is the only one."""


class MaskWork(dict[Sequence, None]):
    """Sequences with unfinished work, in the order of their turns. One continues in each step, so
    hard constraints delay the others little, however many there are."""

    _next: Sequence | None = None

    def begin_step(self, takes_part: Callable[[Sequence], bool]) -> None:
        """Give the turn to the first one that takes part in the step."""
        self._next = next(filter(takes_part, self), None)

    def work_for(self, one: Sequence, answers: int) -> int:
        """Steps of work that ``one`` may cost in this step, with ``answers`` in the engine."""
        if answers == 1:
            return _WORK_ALONE
        if one not in self:
            return WORK_AT_ONCE
        if one != self._next:
            return 0
        return WORK_IN_TURN if answers <= _FEW else WORK_AT_ONCE

    def postpone(self, one: Sequence) -> None:
        """Queue ``one``, whose work is unfinished; at the end if it had its turn."""
        if one == self._next:
            self.pop(one, None)
        self[one] = None

    def done(self, one: Sequence) -> None:
        """Stop waiting: the work of ``one`` is done."""
        self.pop(one, None)
