"""Places: a state of the automaton with the texts seen in the containers that are open."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from app.constraint.automaton.automaton import START, Automaton, State
from app.constraint.automaton.trie import DEAD
from app.constraint.distinct.levels import Levels
from app.constraint.distinct.seen_texts import NO_NAMES, NOTHING, Frame, Names, NameScan
from app.constraint.language.counting import Counting
from app.constraint.language.derivatives import preferred_byte
from app.constraint.language.expressions import INFINITE, ByteSet, Expression, Notation
from app.constraint.language.nodes import byte_set, bytes_of
from app.core.choices import Choice, Way
from app.core.errors import RejectedToken
from app.core.json_scan import BLANKS

BYTES = [bytes([byte]) for byte in range(256)]

_REPEAT_WORK = 16
"""Steps of work for each place expanded by ``past_repeats``."""
_STEP_WORK = 4
"""Steps of work for a byte."""

_MOST_RUNS = 16_384
_MOST_LEFT = 1024

_MOST_ALONG = 512
"""Maximum texts seen for which ``repeats`` looks for repetitions."""
_FEW = 1024
"""With fewer endings, the texts seen may leave none."""


class Repeated(Exception):
    """A text repeats an item or a name, or all its completions do.

    ``length``: bytes of the text after which that is certain.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which is slower to create; never changed
class Place:
    """An answer's state and the texts seen. ``frames`` has an entry for each level."""

    state: State
    frames: tuple[Frame, ...] = ()
    begun: tuple[bool, ...] = ()
    """By level: whether its item is being written."""
    names: Names = NO_NAMES

    @property
    def repeatable(self) -> list[int]:
        """The levels whose unfinished item may still repeat one that was seen."""
        if not self.frames:
            return []
        sides = zip(self.frames, self.begun, strict=True)
        return [level for level, (frame, begun) in enumerate(sides) if begun and frame.num_matching]

    @property
    def may_repeat(self) -> bool:
        """Whether an unfinished item, or a name, may still repeat one that was seen."""
        if self.frames and self.repeatable:
            return True
        names = self.names
        return (names.name is not None or names.is_next) and names.repeatable is not None


@dataclass(frozen=True, slots=True)
class NextItem:
    """The next item: its level, the blanks before it, and its alternatives."""

    level: int
    blanks: bytes
    alternatives: list[Expression]


@dataclass(frozen=True, slots=True)
class Ending:
    """The endings of a name: ``opening`` with its quote if it has not begun, then ``rest``, whose
    endings are counted by ``counting``."""

    counting: Counting
    opening: bytes
    rest: Expression
    quote: bytes
    """Opening quote of a name; b"": none."""
    behind: bytes
    """Byte after a name without quotes, which ends it; b"": none."""


class Places:
    """Steps from place to place of one automaton. One thread at a time."""

    def __init__(self, automaton: Automaton, notation: Notation | None) -> None:
        """``notation``: notation of the complete text, if names must differ in all of it."""
        self.automaton = automaton
        self.levels = Levels(automaton)
        pool, derivatives = automaton.pool, automaton.derivatives
        self._spend = derivatives.spend
        self._runs: dict[tuple[State, bytes], State | None] = {}
        self._openings: dict[State, tuple[bytes, State]] = {}
        self._next: dict[State, tuple[bytes, dict[int, list[Expression]]]] = {}
        self._names_left: dict[tuple[State, bytes, tuple[bytes, ...]], bool] = {}
        self._whole = None if notation is None else NameScan(notation)
        notations = pool.notations if pool.has_free_names else []
        self._scans = {-1 - at: NameScan(each) for at, each in enumerate(notations)}
        """Name scans, by mark, of texts that are parts of an answer."""
        self.items = Counting(derivatives)
        self._names = {
            end: Counting(derivatives, end, escaped=True)
            for end in {scan.end for scan in (self._whole, *self._scans.values()) if scan}
        }
        """Counts of names, by the byte that ends a name."""
        self.has_items = bool(self.levels.items)

    @property
    def is_needed(self) -> bool:
        """Whether any items or names must differ."""
        return self.has_items or self._whole is not None or bool(self._scans)

    @property
    def nbytes(self) -> int:
        counted = len(self.items) + sum(map(len, self._names.values()))
        runs = len(self._runs) + len(self._next) + len(self._openings) + len(self._names_left)
        return self.levels.nbytes + 200 * runs + 100 * counted

    def start(self) -> Place:
        """The place before the first byte of an answer."""
        begun = self.levels.front(START).begun if self.has_items else ()
        return Place(START, (NOTHING,) * len(begun), begun)

    def advance(self, place: Place, data: bytes) -> Place | None:
        """The place after ``data``; None if it leaves the language.

        Raises ``Repeated`` if an item or name repeats, or does in every completion.
        """
        if self.has_items:
            after = self._by_bytes(place, data)
        else:
            state = self.automaton.step(place.state, data)
            after = None if state == DEAD else Place(state, names=self._named(place, data, state))
        if after is not None and after.may_repeat and not self.is_alive(after):
            raise Repeated(len(data))
        return after

    def advanced(self, place: Place, data: bytes) -> Place | None:
        """``advance``, with None also for repetitions."""
        try:
            return self.advance(place, data)
        except Repeated:
            return None

    def _by_bytes(self, place: Place, data: bytes) -> Place | None:
        if not place.repeatable:
            state = self._run(place, data)
            if state is not None:
                frames = tuple(
                    frame.after(data) if begun else frame
                    for frame, begun in zip(place.frames, place.begun, strict=True)
                )
                return Place(state, frames, place.begun, self._named(place, data, state))
        here = place
        for index, byte in enumerate(data):
            try:
                after = self.step(here, byte)
            except Repeated:
                raise Repeated(index + 1) from None
            if after is None:  # perhaps because a repeated item may not end there
                if self.automaton.step(place.state, data[: index + 1]) != DEAD:
                    raise Repeated(index + 1)
                return None
            here = after
        return here

    def after_item(self, place: Place, level: int, text: bytes) -> Place | None:
        """The place after ``text``, a new complete item of ``level`` without items or names that
        must differ inside; None if it leaves the language."""
        self._spend(2 * _STEP_WORK)
        state = self.automaton.step(place.state, text)
        begun = self.levels.front(state).begun
        if state == DEAD or len(begun) != len(place.begun) or not begun[level]:
            return None
        frames = [
            frame.after(text) if inside else frame
            for frame, inside in zip(place.frames, begun, strict=True)
        ]
        return Place(state, tuple(frames), begun, self._named(place, text, state))

    def step(self, place: Place, byte: int) -> Place | None:
        """The place after ``byte``, as ``advance`` without the check that it can be finished."""
        self._spend(_STEP_WORK)
        state = self.automaton.step(place.state, BYTES[byte])
        if state == DEAD:
            return None
        names = self._named(place, BYTES[byte], state)
        if not self.has_items:
            return Place(state, names=names)
        levels = self.levels
        begun, frames = levels.front(state).begun, []
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
                    raise Repeated(1)
        left = levels.front(state).begun
        return Place(state, tuple(frames[: len(left)]), left, names)

    def along(self, place: Place, text: bytes, position: int) -> tuple[int, Place]:
        """The next position in ``text`` after ``position``, and the place there. The text from
        ``position`` on completes ``place``.

        If only names may repeat, the next position at which one may: states in between are not
        visited, and at the end of ``text`` the state is not updated.
        """
        if self.has_items or self._whole is None:
            after = self.step(place, text[position])
            assert after is not None, "a completion that does not complete"
            return position + 1, after
        names, end = place.names, position
        while end < len(text) and (end == position or names.repeatable is None):
            self._spend(1)
            names = self._scanned(self._whole, names, BYTES[text[end]])
            end += 1
        state = place.state
        if end < len(text):
            state = self.automaton.step(state, text[position:end])
        return end, Place(state, names=names)

    def _named(self, place: Place, data: bytes, state: State) -> Names:
        """The scan of names after ``data``, which leads to ``state``.

        Raises ``Repeated``.
        """
        if self._whole is not None:
            return self._scanned(self._whole, place.names, data)
        if not self._scans:
            return NO_NAMES
        names, before = place.names, self.levels.front(place.state).text
        after = self.levels.front(state).text
        if before and len(names.open) > data.count(b"}") + data.count(b"]"):
            return self._scanned(self._scans[before], names, data)  # within it all along
        if not before and not after and not (b"{" in data or b"[" in data):
            return NO_NAMES
        here = place.state
        for index, byte in enumerate(data):
            text = self.levels.front(here).text
            if text:
                try:
                    names = self._scanned(self._scans[text], names, BYTES[byte])
                except Repeated:
                    raise Repeated(index + 1) from None
            else:
                names = NO_NAMES
            here = self.automaton.step(here, BYTES[byte])
        return names

    def _scanned(self, scan: NameScan, names: Names, data: bytes) -> Names:
        found = scan.after(names, data)
        if isinstance(found, int):
            raise Repeated(found + 1)
        return found

    def _run(self, place: Place, data: bytes) -> State | None:
        """The state after ``data`` if no item begins or ends within it, else None."""
        key = (place.state, data)
        if key not in self._runs:
            if len(self._runs) >= _MOST_RUNS:
                self._runs.clear()
            state, front = place.state, self.levels.front
            for byte in data:
                self._spend(_STEP_WORK)
                state = self.automaton.step(state, BYTES[byte])
                if state == DEAD or front(state).begun != place.begun:
                    self._runs[key] = None
                    break
            else:
                self._runs[key] = state
        return self._runs[key]

    def is_alive(self, place: Place) -> bool:
        """Whether an answer can be finished from ``place``.

        It can if the item or name that may still repeat has more endings than were seen. If none
        may repeat, there are enough values: see ``schema.lowering.distinct_items``.
        """
        levels, name = place.repeatable, place.names.repeatable
        if len(levels) + (name is not None) > 1:
            return self.past_repeats(place) is not None
        if name is None:
            rest, seen = (
                self.levels.rest(place.state, levels[0]),
                place.frames[levels[0]].num_matching,
            )
            return self.items.count(rest, seen + 1) > seen or self.past_repeats(place) is not None
        if self._has_any_name(place, name):
            return True
        ending = self.ending_of_name(place)
        if (
            ending is None
            or ending.counting.count(ending.rest, name.num_matching + 1) > name.num_matching
        ):
            return True
        key = (place.state, name.text, name.seen.texts)
        known = self._names_left.get(key)
        if known is None:  # the same declared names recur at the same states
            if len(self._names_left) >= _MOST_LEFT:
                self._names_left.clear()
            known = self._names_left[key] = self.past_repeats(place) is not None
        return known

    def _has_any_name(self, place: Place, name: Frame) -> bool:
        """Whether the forced name is new, or an arbitrary name is allowed here.

        A cheap test that succeeds at nearly all places.
        """
        scan, names = self._scan_of(place), place.names
        forced = self.automaton.forced(place.state).text
        if len(forced) > 1:
            after = scan.after(names, forced)
            if not isinstance(after, int) and after.open[: len(names.open)] != names.open:
                return True
        if not place.names.is_next:
            end = scan.any_end
            allowed = self.automaton.step(place.state, end) != DEAD
        else:
            end = scan.any_name
            step, state = self.automaton.step, place.state
            allowed = step(state, end) != DEAD or step(state, b" " + end) != DEAD
        return allowed and name.text + end not in name.seen

    def _scan_of(self, place: Place) -> NameScan:
        return self._whole or self._scans[self.levels.front(place.state).text]

    def next_item(self, place: Place, ahead: bytes = b"") -> NextItem | None:
        """The item that begins here, perhaps after blanks, if it may repeat one that was seen.

        ``ahead``: a possible next byte, if known; it mostly saves computing forced text.
        """
        if not place.frames:
            return None
        blanks, items = self._next_items(place.state, ahead)
        for level, alternatives in items.items():
            if level < len(place.frames) and place.frames[level].seen.texts:
                return NextItem(level, blanks, alternatives)
        return None

    def _next_items(self, state: State, ahead: bytes) -> tuple[bytes, dict[int, list[Expression]]]:
        """The blanks before the items that may begin next, and by level their alternatives."""
        known = self._next.get(state)
        if known is None:
            automaton, blanks, here = self.automaton, b"", state
            while not (items := self.levels.front(here).items):
                text = automaton.leading_literal(automaton.expression(here))
                text = text or ahead.lstrip(BLANKS) or automaton.forced(here).text
                more = text[: len(text) - len(text.lstrip(BLANKS))]
                if not more:
                    break
                blanks, here, ahead = blanks + more, automaton.step(here, more), b""
            known = self._next[state] = blanks, items
        return known

    def ending_of_name(self, place: Place) -> Ending | None:
        """The endings of the name that ``place`` is in or before; None if there are other choices
        before the name."""
        scan = self._scan_of(place)
        opening, state = b"", place.state
        if place.names.is_next and not scan.notation.bare_names:
            opening, state = self._behind_quote(state, scan.notation.quote)
            if state == DEAD:
                return None
        bare = scan.notation.bare_names
        quote, behind = (b"", b":") if bare else (scan.notation.quote, b"")
        rest = self.automaton.expression(state)
        return Ending(self._names[scan.end], opening, rest, quote, behind)

    def _behind_quote(self, state: State, quote: bytes) -> tuple[bytes, State]:
        """The text through the opening quote of the next name, and the state after it, or ``DEAD``.

        Without optional blanks before the quote.
        """
        known = self._openings.get(state)
        if known is None:
            blanks, here = b"", state
            after = self.automaton.step(here, quote)
            while after == DEAD:
                blank = self.automaton.forced(here).text[:1]
                if not blank or blank not in BLANKS:
                    break
                blanks, here = blanks + blank, self.automaton.step(here, blank)
                after = self.automaton.step(here, quote)
            known = self._openings[state] = blanks + quote, after
        return known

    def only(self, place: Place, texts: Sequence[bytes], whole: bytes | None = None) -> Place:
        """``place`` with only the answers whose rest begins with one of ``texts`` or is ``whole``.

        Marks are kept. Raises ``RejectedToken`` if no answer is left.
        """
        pool, here = self.automaton.pool, self.automaton.expression(place.state)
        left = pool.drawn(here, [text for text in texts if self.advanced(place, text) is not None])
        if whole is not None:
            left = pool.union((pool.literal(whole), left))
        if left == pool.empty:
            raise RejectedToken(f"none of {texts!r} can follow here")
        state = self.automaton.state(left)
        begun = self.levels.front(state).begun if self.has_items else ()
        return replace(place, state=state, frames=place.frames[: len(begun)], begun=begun)

    def left(self, place: Place, choice: Choice) -> Choice | None:
        """``choice`` with the ways that are possible from ``place``; None if none is.

        Cost: a walk along each of their texts, if any text was seen.
        """
        seen = [*(frame.seen for frame in place.frames), *place.names.open]
        if not any(each and each.texts for each in seen) and not any(place.begun):
            return choice
        numbers: list[int] = []
        ways: list[Way] = []
        for number, way in enumerate(choice.ways):
            texts = tuple([text for text in way.texts if self.advanced(place, text) is not None])
            ends = way.ends_answer and self.advanced(place, way.text) is not None
            if texts or ends:
                numbers.append(number)
                ways.append(replace(way, texts=texts, ends_answer=ends))
        if ways == [*choice.ways]:
            return choice
        return replace(choice, ways=tuple(ways), of=tuple(numbers)) if ways else None

    def repeats(self, place: Place, begins: Callable[[bytes], bool]) -> Iterator[bytes]:
        """Some of the texts from ``place`` that are certain to repeat an item or a name.

        Found along the texts seen, if these are few. ``begins``: whether a token begins so.
        """
        seen: dict[bytes, None] = {}
        few = False
        if (item := self.next_item(place)) is not None:
            texts = place.frames[item.level].seen.texts
            seen |= dict.fromkeys([item.blanks + text for text in texts])
            few = self.items.count(self.automaton.pool.union(item.alternatives), _FEW) < _FEW
        for level in place.repeatable:
            seen |= dict.fromkeys(place.frames[level].rests)
            few = few or self.items.count(self.levels.rest(place.state, level), _FEW) < _FEW
        name, ending = place.names.repeatable, None
        if name is not None and (ending := self.ending_of_name(place)) is not None:
            blanks, end = ending.opening[: -len(ending.quote) or None], ending.behind
            seen |= dict.fromkeys([blanks + rest + end for rest in name.rests])
            few = few or ending.counting.count(ending.rest, _FEW) < _FEW
        if len(seen) > _MOST_ALONG:
            return
        if few:  # a prefix of a text seen may have no other ending
            seen |= {rest[:size]: None for rest in [*seen] for size in range(1, len(rest))}
        live = self.automaton.derivatives.live_row
        for text in filter(begins, filter(None, seen)):
            try:
                after = self.advance(place, text)
            except Repeated as repeated:
                yield text[: repeated.length]
                continue
            if after is not None:  # the item may continue, but not end here
                plain = self.automaton.step(place.state, text)
                rows = [live(self.automaton.expression(each)) for each in (plain, after.state)]
                allowed, left = (sum(bits for bits, _ in row) for row in rows)
                yield from (text + BYTES[byte] for byte in bytes_of(allowed & ~left))

    def past_new_name(self, place: Place, text: bytes, position: int) -> tuple[bytes, Place] | None:
        """The bytes of the completion ``text`` from ``position`` on after which its name is surely
        new, and the place there; None if it repeats a name, or is not before one."""
        if not place.names.is_next or not place.may_repeat or place.repeatable:
            return None
        scan, names, end = self._scan_of(place), place.names, position
        while names.repeatable is not None:
            found = scan.after(names, BYTES[text[end]])
            if isinstance(found, int):
                return None
            names, end = found, end + 1
        after = self.advanced(place, text[position:end])
        return None if after is None else (text[position:end], after)

    def repeating_bytes(self, place: Place) -> ByteSet:
        """The next bytes after which an item or a name may repeat one that was seen; an item may
        begin with them.

        All other bytes of a class of the row lead to the same place.
        """
        found = {byte for frame in place.frames for byte in frame.next_bytes()}
        name = place.names.repeatable
        if name is not None:
            found |= {*name.next_bytes(), *b'"\\:', *BLANKS}
        return byte_set(found)

    def past_repeats(self, start: Place) -> tuple[bytes, Place] | None:
        """The first bytes, at least one, of the shortest completion up to a place where no item or
        name may repeat, and that place; None if there is none."""
        automaton = self.automaton
        length, row = automaton.length, automaton.derivatives.live_row
        waiting: list[tuple[int, int, int, bytes, Place]] = [(0, 0, 0, b"", start)]
        order = 0
        while waiting:
            _, _, _, way, place = heapq.heappop(waiting)
            if way and not place.may_repeat:
                return way, place
            repeating = self.repeating_bytes(place)
            self._spend(_REPEAT_WORK)
            for members, _ in row(automaton.expression(place.state)):
                rest = members & ~repeating
                for byte in [
                    *bytes_of(members & repeating),
                    *([preferred_byte(rest)] if rest else ()),
                ]:
                    try:
                        after = self.step(place, byte)
                    except Repeated:
                        continue
                    if after is None:
                        continue
                    size = len(way) + 1
                    bound = size + length(after.state)
                    if bound < INFINITE:
                        order -= 1
                        heapq.heappush(waiting, (bound, -size, order, way + BYTES[byte], after))
        return None
