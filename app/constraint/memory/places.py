"""Places: a state of the automaton with what was said at its levels."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.trie import DEAD
from app.constraint.language.derivatives import preferred_byte
from app.constraint.language.expressions import INFINITE, ByteSet
from app.constraint.memory.levels import Levels
from app.constraint.memory.said import NOTHING, Frame
from app.core.errors import RejectedToken

BYTES = [bytes([byte]) for byte in range(256)]

_STEP_WORK = 4
"""Steps of work that a byte costs here."""

_MOST_RUNS = 16_384

_STRUCTURE = frozenset(b"\"[]{}(),'<>:=")
"""Without one of them no container begins or ends, and no item begins behind another."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an answer stands. ``frames`` has one for each level."""

    state: State
    frames: tuple[Frame, ...]
    begun: tuple[bool, ...]
    """By level: whether its item is being written."""

    @property
    def near(self) -> bool:
        """Whether an item that is being written may yet be one that was said."""
        for frame, begun in zip(self.frames, self.begun, strict=True):
            if begun and frame.low < frame.high:
                return True
        return False

    @property
    def repeats(self) -> bool:
        """Whether an item that is being written may not end here, as it was said."""
        return any(f.repeats for f, begun in zip(self.frames, self.begun, strict=True) if begun)

    @property
    def key(self) -> Hashable:
        """Equal for places that go on in the same ways."""
        return (self.state, *((frame.said.key, frame.text) for frame in self.frames))


class Places:
    """Steps from place to place of one automaton. One thread at a time."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.levels = Levels(automaton)
        self._spend = automaton.derivatives.spend
        self._runs: dict[tuple[State, bytes], State | None] = {}

    @property
    def nbytes(self) -> int:
        return self.levels.nbytes + 200 * len(self._runs)

    def start(self, state: State) -> Place:
        """``state`` where nothing was said."""
        begun = self.levels.begun(state)
        return Place(state, (NOTHING,) * len(begun), begun)

    def step(self, place: Place, byte: int) -> Place | None:
        """The place after ``byte``; None where it leaves the language or repeats an item."""
        self._spend(_STEP_WORK)
        state = self.automaton.step(place.state, BYTES[byte])
        if state == DEAD:
            return None
        levels = self.levels
        begun, frames = levels.begun(state), []
        for level, inside in enumerate(begun):
            frame = place.frames[level] if level < len(place.frames) else NOTHING
            if inside:
                frame = frame.after(BYTES[byte])
            elif frame.text:
                frame = frame.ended()
            frames.append(frame)
        for level, frame in enumerate(frames):
            if frame.text and frame.repeats:
                state = levels.without_end(state, level)
                if state == DEAD:
                    return None
        left = levels.begun(state)
        if len(left) < len(begun):
            frames = frames[: len(left)]
        return Place(state, tuple(frames), left)

    def advance(self, place: Place, data: bytes) -> Place | None:
        """The place after ``data``, from which an answer can be finished; None where there is none.

        Far from all that was said, and within one item, it costs a look-up.
        """
        if not place.near:
            state = self._run(place, data)
            if state is not None:
                frames = tuple(
                    frame.after(data) if begun else frame
                    for frame, begun in zip(place.frames, place.begun, strict=True)
                )
                return Place(state, frames, place.begun)
        after: Place | None = place
        for byte in data:
            after = self.step(after, byte) if after is not None else None
        return after if after is not None and self.is_alive(after) else None

    def only(self, place: Place, texts: Sequence[bytes], whole: bytes | None = None) -> Place:
        """``place`` without the answers that neither go on with one of ``texts`` nor are ``whole``.

        What may follow keeps its marks. Raises ``RejectedToken`` where no answer is left.
        """
        pool, here = self.automaton.pool, self.automaton.expression(place.state)
        kept = [text for text in texts if self.advance(place, text) is not None]
        left = pool.drawn(here, kept)
        if whole is not None:
            left = pool.union((pool.literal(whole), left))
        if left == pool.empty:
            raise RejectedToken(f"none of {texts!r} can follow here")
        state = self.automaton.state(left)
        begun = self.levels.begun(state)
        return replace(place, state=state, frames=place.frames[: len(begun)], begun=begun)

    def _run(self, place: Place, data: bytes) -> State | None:
        """The state after ``data`` where items neither begin nor end on the way, else None."""
        key = (place.state, data)
        if key not in self._runs:
            if len(self._runs) >= _MOST_RUNS:
                self._runs.clear()
            state = place.state
            if _STRUCTURE.isdisjoint(data) and not self.levels.is_ahead(state):
                self._spend(_STEP_WORK)  # no item begins, and one that ends does not begin again
                state = self.automaton.step(state, data)
                whole = state != DEAD and self.levels.begun(state) == place.begun
                self._runs[key] = state if whole else None
                return self._runs[key]
            for byte in data:
                self._spend(_STEP_WORK)
                state = self.automaton.step(state, BYTES[byte])
                if state == DEAD or self.levels.begun(state) != place.begun:
                    self._runs[key] = None
                    break
            else:
                self._runs[key] = state
        return self._runs[key]

    def waits(self, place: Place) -> bool:
        """Whether an item is next, perhaps behind blanks, that may be one that was said."""
        return (
            bool(place.begun)
            and not place.begun[-1]
            and bool(place.frames[-1].said.texts)
            and self.levels.is_ahead(place.state)
        )

    def begins(self, before: Place, after: Place) -> bool:
        """Whether an item begins with the byte between two places."""
        return any(
            begun and not (level < len(before.begun) and before.begun[level])
            for level, begun in enumerate(after.begun)
        )

    def is_alive(self, place: Place) -> bool:
        """Whether an answer can be finished from ``place``.

        Where every item that may repeat one has more endings than can be used up, it can. Where
        none may repeat one there are values enough (``schema.lowering.plenty``).
        """
        return not place.near or self.has_endless(place) or self.away(place) is not None

    def has_endless(self, place: Place) -> bool:
        """Whether every item that may yet repeat one has more endings than can be used up."""
        return all(
            self.levels.is_endless(place.state, level)
            for level, frame in enumerate(place.frames)
            if place.begun[level] and frame.near
        )

    def narrow(self, place: Place) -> ByteSet:
        """The next bytes after which an item may yet be one that was said, or is still waited for.

        All other bytes of a class of the row lead to the same.
        """
        found: set[int] = set()
        for frame, begun in zip(place.frames, place.begun, strict=True):
            if begun and frame.near:
                found |= frame.next_bytes()
        bits = 0
        if self.waits(place):
            found |= place.frames[-1].next_bytes()
            expression = self.automaton.expression(place.state)
            for members, _ in self.automaton.derivatives.live_row(expression):
                bits |= 0 if members & (members - 1) else members
        for byte in found:
            bits |= 1 << byte
        return bits

    def away(self, start: Place) -> tuple[bytes, Place] | None:
        """The way from ``start`` to where no item may be one that was said, on which the shortest
        completion begins, one byte at least; None where there is none."""
        automaton = self.automaton
        length, row = automaton.length, automaton.derivatives.live_row
        waiting: list[tuple[int, int, int, bytes, Place]] = [(0, 0, 0, b"", start)]
        order = 0
        while waiting:
            _, _, _, way, place = heapq.heappop(waiting)
            if way and not place.near and not self.waits(place):
                return way, place
            narrow = self.narrow(place)
            for members, _ in row(automaton.expression(place.state)):
                rest = members & ~narrow
                for byte in [
                    *_bytes_of(members & narrow),
                    *([preferred_byte(rest)] if rest else ()),
                ]:
                    after = self.step(place, byte)
                    if after is None:
                        continue
                    size = len(way) + 1
                    bound = size + length(after.state)
                    if bound < INFINITE:
                        order -= 1
                        entry = (bound, -size, order, way + BYTES[byte], after)
                        heapq.heappush(waiting, entry)
        return None


def _bytes_of(bits: ByteSet) -> list[int]:
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found
