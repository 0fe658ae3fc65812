"""Slots for the states of recurrent layers: which sequence keeps which, and which are checkpoints.

A recurrent layer reads the state after the previous token. It depends on all earlier tokens and
cannot be cut back, so a sequence keeps a few earlier states and rolls back to the last valid one::

    position   0          anchor    anchor      computed        launched
               |- empty ----|---------|------------|--- in flight ---|
    slot       0            5         9            4                 7

A checkpoint is the state at the end of a prefix of whole blocks, for later sequences to start from.
It is tied to the prefix, and goes when the prefix's blocks are overwritten, or when its slot is
needed and it is the least recently released one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from app.core.cache import LEAST_SLOTS, StateSlots
from app.kv.pool import BlockPool
from app.kv.prefix import Prefix, PrefixIndex

EMPTY = 0
"""The slot of the state before a sequence's first token. Never written."""

ANCHOR_TOKENS = 8
"""Minimum distance of states kept for leaps, which tokenize the last 8 tokens again."""


class StatePool:
    """Reference counts of slots, and the checkpoints in them. Every operation costs O(1)."""

    def __init__(self, slots: StateSlots, prefixes: PrefixIndex) -> None:
        if slots.count < LEAST_SLOTS:
            raise ValueError(
                f"there are {slots.count} slots for recurrent states, but one sequence needs "
                f"{LEAST_SLOTS}: the empty state, one to read and one to save to"
            )
        self.count = slots.count
        self.interval = slots.interval
        self._slots = BlockPool(slots.count)
        empty = self._slots.take()
        assert empty == EMPTY
        self._prefixes = prefixes
        self._checkpoints: dict[int, Prefix] = {}

    @property
    def num_free(self) -> int:
        """Slots that nobody holds, checkpoints included."""
        return self._slots.num_free

    @property
    def has_spare(self) -> bool:
        """Whether more slots are free than the quarter reserved for checkpoints."""
        return self._slots.num_free > self.count // 4

    @property
    def usage(self) -> float:
        """Share of the slots that sequences hold, 0 to 1."""
        return 1.0 - self._slots.num_free / (self.count - 1)

    def take(self) -> int:
        """A slot for a new owner. A checkpoint in it is lost."""
        slot = self._slots.take()
        if slot in self._checkpoints:
            self._unregister(slot)
        return slot

    def share(self, slot: int) -> None:
        """Add an owner to a slot that has one, or that is a checkpoint."""
        self._slots.share(slot)

    def release(self, slot: int) -> None:
        """Drop one owner. After the last one the slot is free; a checkpoint stays in it."""
        self._slots.release(slot, keep=slot in self._checkpoints)

    def may_overwrite(self, slot: int) -> bool:
        """Whether nobody but its single owner needs the state in the slot."""
        return slot != EMPTY and slot not in self._checkpoints and self._slots.references(slot) == 1

    def register(self, prefix: Prefix, slot: int) -> None:
        """Make a state known as the one at the end of ``prefix``, where there is none yet."""
        assert slot not in self._checkpoints, "a slot is the checkpoint of one prefix"
        if not prefix.checkpoint:
            prefix.checkpoint = slot
            self._prefixes.hold(prefix)
            self._checkpoints[slot] = prefix

    def forget(self, prefix: Prefix) -> None:
        """Nobody may start from the checkpoint of ``prefix`` any more."""
        slot = prefix.checkpoint
        self._unregister(slot)
        if self._slots.references(slot) == 0:
            self._slots.discard(slot)

    def _unregister(self, slot: int) -> None:
        prefix = self._checkpoints.pop(slot)
        prefix.checkpoint = EMPTY
        self._prefixes.release(prefix)


@dataclass(slots=True)
class KeptState:
    """The state after ``position`` tokens."""

    position: int
    slot: int
    planned: bool = False
    """Whether it becomes a checkpoint once its tokens are committed."""


@dataclass(slots=True)
class KeptStates:
    """The states that one sequence holds, and where it is to save checkpoints.

    States are added when the step that saves them is planned, so those after the computed tokens
    are in flight. The empty state at position 0 is not listed.
    """

    states: list[KeptState] = field(default_factory=list)
    """By position, ascending."""
    wanted: list[int] = field(default_factory=list)
    """Block borders, ascending, at which a checkpoint is still to be saved."""
    last: int = 0
    """Position of the last planned checkpoint, or of the one it started from."""

    @property
    def newest(self) -> KeptState | None:
        """The state that the next span reads; None is the empty state."""
        return self.states[-1] if self.states else None

    @property
    def end(self) -> int:
        """The position of the newest one."""
        return self.states[-1].position if self.states else 0

    def start(self, pool: StatePool, prefix: Prefix | None, position: int) -> None:
        """Hold the checkpoint of ``prefix``, which has ``position`` tokens; None: start empty."""
        assert not self.states
        self.last = position
        if prefix is not None:
            self.hold(pool, prefix, position)

    def hold(self, pool: StatePool, prefix: Prefix, position: int) -> None:
        """Keep the checkpoint of ``prefix``, behind all that is kept already."""
        assert prefix.checkpoint, "nobody can start where there is no checkpoint"
        pool.share(prefix.checkpoint)
        self.states.append(KeptState(position, prefix.checkpoint))

    def due(self, start: int, end: int, interval: int) -> list[int]:
        """Block borders after ``start``, up to ``end``, at which to save a checkpoint: the wanted
        ones, and one after each ``interval`` tokens without any. Each is returned once."""
        due: list[int] = []
        while True:
            position = self.last + interval
            if self.wanted and self.wanted[0] <= position:
                position = self.wanted[0]
            if position > end:
                return due
            if self.wanted and self.wanted[0] == position:
                del self.wanted[0]
            self.last = max(self.last, position)
            if position > start:
                due.append(position)

    def want(self, position: int) -> None:
        """Save a checkpoint at a block border to come."""
        if position not in self.wanted:
            self.wanted.append(position)
            self.wanted.sort()

    def is_coming(self, after: int, until: int) -> bool:
        """Whether a checkpoint is wanted or in flight behind ``after``, up to ``until``."""
        planned = [state.position for state in self.states if state.planned]
        return any(after < position <= until for position in [*self.wanted, *planned])

    def cut(self, pool: StatePool, position: int) -> None:
        """Release the states after ``position``."""
        while self.states and self.states[-1].position > position:
            pool.release(self.states.pop().slot)

    def thin(self, pool: StatePool, computed: int, floor: int) -> None:
        """Keep the last committed state, the one before, and two further back (``SLOTS_EACH``).
        No rollback goes before ``floor``. With few free slots only the last is kept.
        """
        states = self.states
        committed = len(states)
        while committed and states[committed - 1].position > computed:
            committed -= 1
        if committed < 2:
            return
        border = computed // ANCHOR_TOKENS * ANCHOR_TOKENS
        anchors = [max(border - ANCHOR_TOKENS, floor), max(border, floor)]
        keeps_more = pool.has_spare
        for index in range(committed - 1, -1, -1):
            chosen = index == committed - 1 or (keeps_more and index == committed - 2)
            while keeps_more and anchors and states[index].position <= anchors[-1]:
                anchors.pop()
                chosen = True
            if not chosen:
                pool.release(states.pop(index).slot)

    def keep_least(self, pool: StatePool, computed: int) -> None:
        """Keep only the state that the next span reads, and that of the computed tokens."""
        if len(self.states) > 1:
            done = [state for state in self.states if state.position <= computed]
            self._keep([*done[-1:], self.states[-1]], pool)

    def keep_newest(self, pool: StatePool, computed: int) -> None:
        """Of the committed states, keep only the one that the next span reads."""
        if len(self.states) > 1:
            flying = [state for state in self.states[:-1] if state.position > computed]
            self._keep([*flying, self.states[-1]], pool)

    def _keep(self, chosen: list[KeptState], pool: StatePool) -> None:
        kept = {id(state) for state in chosen}
        for state in self.states:
            if id(state) not in kept:
                pool.release(state.slot)
        self.states = [state for state in self.states if id(state) in kept]

    def free(self, pool: StatePool) -> None:
        """Let go of everything."""
        self.cut(pool, -1)
        self.wanted.clear()
