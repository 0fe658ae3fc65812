"""Sequences whose images are looked at before they run: no step waits for a model's tower.

    waiting, set aside                     waiting        running
    | its turn comes | the tower is at it | others first | images computed | goes on
                     |---- asked for -----|------ features are held -------|

What is set aside keeps its place in the queue of those that wait to run, and lets others pass.
Whose images are looked at next is decided between tenants, too. A sequence asks for all that it
needs at once and keeps it until it has used it: so nobody who holds something waits for more, and
what was computed for one is not lost to another.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.core.images import EncodeJob, VisionEncoder
from app.engine.fair_queue import FairQueue
from app.engine.sequence import Sequence
from app.kv.manager import BlockManager

_AT_ONCE = 2
"""Sequences that the tower is at: it shall not wait for the engine between two. Who comes behind
these is decided when one of them is done."""


@dataclass(frozen=True, slots=True)
class _Asked:
    look: EncodeJob
    images: int
    """The last ones of the prompt, so many."""


class VisionQueue:
    """Who waits for features, and who holds some."""

    def __init__(
        self, vision_encoder: VisionEncoder, waiting: FairQueue[Sequence], blocks: BlockManager
    ) -> None:
        """``waiting`` are those that wait to run."""
        self._encoder = vision_encoder
        self._waiting = waiting
        self._blocks = blocks
        self._queue: FairQueue[Sequence] = FairQueue(
            lambda sequence: sequence.request.tenant, lambda sequence: sequence.tier
        )
        """Set aside, and nothing is asked for them yet."""
        self._asked: dict[Sequence, _Asked] = {}
        self._undone: list[Sequence] = []
        """Set aside, and the tower is at them."""

    @property
    def num_aside(self) -> int:
        return len(self._queue) + len(self._undone)

    @property
    def has_news(self) -> bool:
        """Whether ``settle`` would change anything."""
        return any(self._asked[each].look.is_done for each in self._undone)

    def add(self, sequence: Sequence) -> None:
        """Set a waiting sequence aside until its images have been looked at."""
        self._waiting.set_aside(sequence)
        if sequence.scheduled:
            self._queue.put_back(sequence)
        else:
            self._queue.push(sequence)
        self._ask()

    def can_run(self, sequence: Sequence, computed: int) -> bool:
        """Whether a waiting sequence holds all features behind so many tokens, which it finds
        computed. One that does not, as it had found more when it asked, is set aside."""
        if sequence.vision_input is None:
            return True
        needed = len(sequence.vision_input.ending_behind(computed))
        asked = self._asked.get(sequence)
        if needed <= (0 if asked is None else asked.images):
            return True
        self._drop(sequence)
        self.add(sequence)
        return False

    def settle(self) -> list[tuple[Sequence, Exception]]:
        """Let those wait to run whose features are there. Those that will have none, and why: they
        stay set aside until they are dropped."""
        failed = []
        for sequence in list(self._undone):
            look = self._asked[sequence].look
            if not look.is_done:
                continue
            if look.error is not None:
                failed.append((sequence, look.error))
                continue
            self._undone.remove(sequence)
            self._waiting.call_back(sequence)
        self._ask()
        return failed

    def advance(self, sequence: Sequence, computed: int) -> None:
        """So many tokens of a running sequence are computed."""
        if sequence in self._asked:
            assert sequence.vision_input is not None
            if not sequence.vision_input.ending_behind(computed):
                self.drop(sequence)

    def drop(self, sequence: Sequence) -> None:
        """A sequence needs no features any more: it has used them, or ends."""
        self._drop(sequence)
        if sequence in self._queue:
            self._queue.remove(sequence)
        self._ask()

    def _drop(self, sequence: Sequence) -> None:
        asked = self._asked.pop(sequence, None)
        if asked is not None:
            asked.look.drop()
        if sequence in self._undone:
            self._undone.remove(sequence)

    def _ask(self) -> None:
        """Have the tower be at as much as there is room for. One that finds none now is not passed
        over, or it might wait for ever."""
        while len(self._undone) < _AT_ONCE and (sequence := self._queue.next()) is not None:
            assert sequence.vision_input is not None
            prefix = self._blocks.match(sequence.basis, sequence.request.scope)
            seen = sequence.vision_input.ending_behind(len(prefix) * self._blocks.block_size)
            images = [each.image for each in seen]
            if not self._encoder.has_room(images):
                return
            self._queue.take(sequence)
            if not images:
                self._waiting.call_back(sequence)
                continue
            tokens = sum([image.num_tokens for image in images])
            self._queue.charge(sequence.request.tenant, tokens, sequence.tier)
            look = self._encoder.look(images)
            self._asked[sequence] = _Asked(look, len(images))
            if look.is_done and look.error is None:
                self._waiting.call_back(sequence)
            else:
                self._undone.append(sequence)

    def check_integrity(self) -> None:
        """Assert every invariant. For tests."""
        self._queue.check_integrity()
        assert len(self._undone) <= _AT_ONCE
        assert self._asked.keys() >= set(self._undone)
        assert not self._asked.keys() & set(self._queue), "who holds something waits for more"
        assert {*self._queue, *self._undone} <= set(self._waiting)
