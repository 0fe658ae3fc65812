"""Masks of places: those of their states, without the tokens that lead to a repetition.

Most places are far from all that was said, and have the very mask of their state. Near it the
tokens are looked for along the texts that were said; those that finish one item and hold another
are listed once for each state, and tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.bits import clear_bits, finish
from app.constraint.automaton.masks import InString, Masks
from app.constraint.automaton.trie import DEAD, Int32s
from app.constraint.automaton.vocabulary_index import TextTree
from app.constraint.memory.places import BYTES, Place, Places
from app.constraint.memory.plans import Plans
from app.constraint.memory.said import Frame, Said
from app.core.constraint import Mask

_MOST_KNOWN = 512
_MOST_ADDED = 4096
_MOST_NEW = 64
"""Texts that are added to what was known before all are followed again."""

_FEW = 8
"""Tokens that are not worth a closer look at where they may lead."""

_STEP_WORK = 4
"""Steps of work that a node of the vocabulary's trie costs here."""


@dataclass(frozen=True, slots=True)
class _Near:
    """What lies along the texts that were said, from one place."""

    lost: Int32s
    """Tokens that its state allows and that lead to a repetition."""
    tokens: Int32s
    """Tokens after which an item may yet be one that was said."""
    states: dict[State, None]
    """The states after those of them that have endings without end."""
    farthest: int
    """Bytes of the longest of the shortest completions after the others."""
    grows: bool
    """Whether another text that is said adds to this, and takes nothing away."""

    @property
    def nbytes(self) -> int:
        return self.lost.nbytes + self.tokens.nbytes


_NONE: Int32s = np.empty(0, np.int32)
_NOTHING_NEAR = _Near(_NONE, _NONE, {}, 0, True)


@dataclass(frozen=True, slots=True)
class _Conflicts:
    """What is special about the tokens from one place."""

    lost: Int32s
    near: _Near
    risky: tuple[tuple[int, Place], ...]
    """Tokens that go on from one item into another, and are right."""


_NO_CONFLICTS = _Conflicts(_NONE, _NOTHING_NEAR, ())


@dataclass(frozen=True, slots=True)
class _Crossing:
    """The tokens on whose way from a state an item begins."""

    begins: Int32s
    risky: Int32s
    """Those of them after which an item may be whole, or have few ways left to differ."""
    ends: tuple[State, ...]
    """The states after the others."""


_NO_CROSSING = _Crossing(_NONE, _NONE, ())


def _allowed(mask: Mask, tokens: Int32s) -> Int32s:
    """Those of ``tokens`` that ``mask`` allows."""
    allowed: Int32s = tokens[mask[tokens >> 5] >> (tokens & 31).astype(np.uint32) & 1 != 0]
    return allowed


class PlaceMasks:
    """Masks of the places of one automaton over one vocabulary. One thread at a time."""

    def __init__(self, places: Places, plans: Plans, masks: Masks) -> None:
        self._places = places
        self._plans = plans
        self._masks = masks
        self._index = masks.index
        self._automaton: Automaton = places.automaton
        self._crossing: dict[State, _Crossing] = {}
        self._double: dict[State, Int32s] = {}
        self._behind: dict[tuple[State, int], _Crossing] = {}
        self._known: dict[tuple[State, int, bytes, int], _Near] = {}
        self._kept = 0
        """Bytes of the arrays in it."""
        self._added: dict[int, tuple[int, bytes]] = {}
        """By key of what was said: the key before the last text, and that text."""

    @property
    def nbytes(self) -> int:
        """Memory, in bytes, estimated. Any thread may read it."""
        kept = 400 * (len(self._known) + len(self._crossing) + len(self._behind))
        kept += 200 * (len(self._added) + len(self._double))
        return kept + self._kept

    def mask(self, place: Place) -> Mask:
        """Tokens allowed at ``place``."""
        mask = self._masks.mask(place.state)
        return self._without(mask, self._conflicts(place), place)

    def budget_mask(self, place: Place, budget: int) -> Mask:
        """Tokens of ``mask`` after which ``budget - 1`` more can surely finish the answer.

        Far from the budget all of them; near it perhaps not all that could.
        """
        mask = self._masks.mask(place.state)
        conflicts = self._conflicts(place)
        if budget > self._far(place, conflicts):
            return self._without(mask, conflicts, place)
        first = self._plans.note(place)
        return self._near_mask(place, budget, conflicts, first)

    def _without(self, mask: Mask, conflicts: _Conflicts, place: Place) -> Mask:
        if not len(conflicts.lost):
            return mask
        mask = mask.copy()
        clear_bits(mask, conflicts.lost)
        accepting = self._automaton.is_accepting(place.state)
        finish(mask, self._index.trie.duplicates, self._index.eos, accepting)
        return mask

    def _conflicts(self, place: Place) -> _Conflicts:
        near = self._near(place) if place.near or self._places.waits(place) else _NOTHING_NEAR
        if self._says_nothing(place):
            tokens = self._doubling(place.state)
        else:
            tokens = self._crossing_of(place.state).risky
        if near is _NOTHING_NEAR and (tokens is _NONE or not len(tokens)):
            return _NO_CONFLICTS
        risky, lost = [], []
        for token in tokens.tolist():
            after = self._places.advance(place, self._index.token_bytes[token] or b"")
            if after is None:
                lost.append(token)
            else:
                risky.append((token, after))
        return _Conflicts(np.concatenate([near.lost, np.array(lost, np.int32)]), near, tuple(risky))

    def _says_nothing(self, place: Place) -> bool:
        """Whether no item was said, is begun or is next in the containers that are open."""
        for frame, begun in zip(place.frames, place.begun, strict=True):
            if begun or frame.said.texts:
                return False
        return not self._places.levels.is_ahead(place.state)

    def _doubling(self, state: State) -> Int32s:
        """Tokens that may say two items where nothing was said. Memoised."""
        known = self._double.get(state)
        if known is None:
            known = self._reaching(state, self._index.tokens_into_two_items)
            if len(known):
                known = self._crossing_of(state).risky
            self._double[state] = known
        return known

    def _near(self, place: Place) -> _Near:
        """What lies along the texts that were said. It is kept for a while: where one more was
        said, only that one is followed."""
        sides = zip(place.frames, place.begun, strict=True)
        last = len(place.begun) - 1
        close = [
            level
            for level, (frame, begun) in enumerate(sides)
            if (frame.near if begun else level == last and frame.said.texts)
        ]
        if len(close) != 1:
            return self._along(place)
        level = close[0]
        frame = place.frames[level]
        key = (place.state, level, frame.text, frame.said.key)
        known = self._known.get(key)
        if known is None:
            known = self._grown(place, level) or self._along(place)
            if len(self._known) >= _MOST_KNOWN:
                for old in [*self._known][: _MOST_KNOWN // 2]:
                    self._kept -= self._known.pop(old).nbytes
            self._known[key] = known
            self._kept += known.nbytes
        return known

    def _grown(self, place: Place, level: int) -> _Near | None:
        """What was known when less was said, and what came since; None if nothing was known."""
        frame = place.frames[level]
        if len(self._added) >= _MOST_ADDED:
            self._added.clear()
        self._added[frame.said.key] = (frame.said.before, frame.said.added)
        key, new = frame.said.key, list[bytes]()
        while len(new) < _MOST_NEW and key in self._added:
            key, text = self._added[key]
            new.append(text)
            known = self._known.get((place.state, level, frame.text, key))
            if known is not None and known.grows:
                close = [text for text in new if text.startswith(frame.text)]
                if not close:
                    return known
                frames = list(place.frames)
                frames[level] = Frame(Said.of(close), frame.text, 0, len(close))
                more = self._along(Place(place.state, tuple(frames), place.begun))
                return _Near(
                    np.union1d(known.lost, more.lost),
                    np.union1d(known.tokens, more.tokens),
                    {**known.states, **more.states},
                    max(known.farthest, more.farthest),
                    more.grows,
                )
        return None

    def _along(self, start: Place) -> _Near:
        """Follow the trie as far as it goes along what was said."""
        places, trie = self._places, self._index.trie
        spend = self._automaton.derivatives.spend
        lost: list[Int32s] = [_NONE]
        near: list[int] = []
        states: dict[State, None] = {}
        farthest, grows = 0, True
        waiting = [(b"", start)]
        while waiting:
            path, place = waiting.pop()
            bits = places.narrow(place)
            while bits:
                lowest = bits & -bits
                bits ^= lowest
                text = path + bytes([lowest.bit_length() - 1])
                spend(_STEP_WORK)
                node = trie.find(text)
                if node < 0:
                    continue
                after = places.step(place, text[-1])
                endless = after is not None and places.has_endless(after)
                way = None if after is None or endless else places.away(after)
                if after is None or (not endless and after.near and way is None):
                    tokens = trie.token[node : trie.skip[node]]
                    lost.append(tokens[tokens >= 0])
                elif after.near or places.waits(after):
                    if after.repeats:
                        lost.extend(self._endings_below(node, after))
                    if endless:
                        states[after.state] = None
                    elif way is not None:
                        grows = grows and not after.near
                        length = self._automaton.length(way[1].state)
                        farthest = max(farthest, len(way[0]) + length)
                    if trie.token[node] >= 0:
                        near.append(int(trie.token[node]))
                    waiting.append((text, after))
        ends = np.array(near, np.int32)
        return _Near(np.concatenate(lost), ends, states, farthest, grows)

    def _endings_below(self, node: int, place: Place) -> Iterator[Int32s]:
        """The tokens that end an item behind ``node``, where ``place`` is and it may not end."""
        trie, live = self._index.trie, 0
        expression = self._automaton.expression(place.state)
        for members, _ in self._automaton.derivatives.live_row(expression):
            live |= members
        child, end = node + 1, int(trie.skip[node])
        while child < end:
            if not live >> int(trie.byte[child]) & 1:
                tokens = trie.token[child : trie.skip[child]]
                yield tokens[tokens >= 0]
            child = int(trie.skip[child])

    def _crossing_of(self, state: State) -> _Crossing:
        """The tokens on whose way an item begins. Memoised."""
        known = self._crossing.get(state)
        if known is None:
            inside = self._masks.in_string(state)
            known = self._out_of_string(inside) if inside else self._out_of_structure(state)
            self._crossing[state] = known
        return known

    def _out_of_structure(self, state: State) -> _Crossing:
        """The same where ``state`` is not between two characters of a string."""
        tokens = self._reaching(state, self._index.tokens_into_items)
        if len(tokens) > _FEW and self._masks.is_in_text(state):
            tokens = np.intersect1d(tokens, self._index.tokens_out_into_items, True)
        if not len(tokens):
            return _NO_CROSSING
        return self._into_items(state, TextTree.of(self._index.token_bytes, tokens.tolist()))

    def _reaching(self, state: State, tokens: Int32s) -> Int32s:
        """Those of ``tokens`` that are allowed and long enough to begin an item."""
        tokens = _allowed(self._masks.mask(state), tokens)
        if not len(tokens):
            return tokens
        before = self._places.levels.bytes_before(state)
        return tokens[self._index.lengths[tokens] > before]

    def _out_of_string(self, inside: InString) -> _Crossing:
        """The same within a string: by what comes behind it."""
        key = (inside.tail, inside.spelling)
        behind = self._behind.get(key)
        if behind is None:
            tree = self._index.endings_into_items[inside.spelling]
            behind = self._behind[key] = self._into_items(inside.tail, tree)
        if not len(behind.begins):
            return behind
        strings = self._index.strings[inside.spelling]
        fits = (strings.characters >= inside.low) & (strings.characters <= inside.high)
        return _Crossing(
            strings.token[fits & np.isin(strings.ending, behind.begins)],
            strings.token[fits & np.isin(strings.ending, behind.risky)],
            behind.ends,
        )

    def _into_items(self, start: State, tree: TextTree) -> _Crossing:
        """Those texts of ``tree`` on whose way from ``start`` an item begins, by their numbers."""
        levels, step = self._places.levels, self._automaton.step
        spend = self._automaton.derivatives.spend
        begins: list[int] = []
        risky: list[int] = []
        ends = dict[State, None]()
        waiting = [(tree, start, levels.begun(start), False, False)]
        while waiting:
            node, state, before, began, ended = waiting.pop()
            if not began and node.height <= levels.bytes_before(state):
                continue
            if began and node.numbers:
                begins += node.numbers
                if ended or any(
                    begun and (self._may_end(state, level) or not levels.is_endless(state, level))
                    for level, begun in enumerate(before)
                ):
                    risky += node.numbers
                else:
                    ends[state] = None
            for byte, below in node.ways.items():
                spend(_STEP_WORK)
                target = step(state, BYTES[byte])
                if target == DEAD:
                    continue
                after = levels.begun(target)
                if after == before:
                    waiting.append((below, target, before, began, ended))
                    continue
                was = [*before, *[False] * len(after)]
                over = began and (
                    len(after) < len(before)
                    or any(b and not a for a, b in zip(after, before, strict=False))
                )
                starts = any(a and not b for a, b in zip(after, was, strict=False))
                waiting.append((below, target, after, began or starts, ended or over))
        if not begins:
            return _NO_CROSSING
        return _Crossing(np.array(begins, np.int32), np.array(risky, np.int32), tuple(ends))

    def _may_end(self, state: State, level: int) -> bool:
        """Whether the item of ``level`` is whole here, or would be but for what was said."""
        return self._places.levels.without_end(state, level) != state

    def _far(self, place: Place, conflicts: _Conflicts) -> int:
        """Bytes, and so tokens, that suffice after any token that ``place`` allows."""
        levels, automaton = self._places.levels, self._automaton
        said = max((len(frame.said.texts) for frame in place.frames), default=0)
        far = self._masks.far_bytes(place.state)
        items = len(place.frames) + 1  # those that are begun, or that a comma asks for
        if len(self._crossing_of(place.state).begins):
            items += self._index.longest
        if automaton.pool.items_are_needed:
            items += far // 2
        more = levels.extra_of_items(said + items)
        near = conflicts.near
        states = {**dict.fromkeys(self._crossing_of(place.state).ends), **near.states}
        far = max(far, near.farthest)
        for _, after in conflicts.risky:
            if self._places.has_endless(after):
                states[after.state] = None
            else:
                way = self._places.away(after)
                assert way is not None or not after.near, "a token that leads to no answer"
                rest = automaton.length(after.state)
                far = max(far, len(way[0]) + automaton.length(way[1].state) if way else rest)
        for state in states:
            extra = sum(
                levels.extra(state, level, said + items)
                for level, begun in enumerate(levels.begun(state))
                if begun and levels.is_endless(state, level)
            )
            far = max(far, automaton.length(state) + extra)
        return far + items * more

    def _near_mask(self, place: Place, budget: int, conflicts: _Conflicts, first: bytes) -> Mask:
        """The tokens that are known to leave enough."""
        plans, length = self._plans, self._automaton.length
        found = self._masks.followed(place.state)
        levels = self._places.levels
        said = max((len(frame.said.texts) for frame in place.frames), default=0)
        fits = np.zeros(len(self._automaton), np.bool_)
        for state in np.unique(found[:, 1]).tolist():
            if plans.is_quiet(state):
                fits[state] = plans.tokens_of(state) < budget
            else:
                size = length(state)
                items = size // 2 + len(place.frames) + 1
                fits[state] = size + items * levels.extra_of_items(said + items) < budget
        keep = fits[found[:, 1]]
        texts, special = self._index.token_bytes, dict(conflicts.risky)
        close = np.concatenate([conflicts.near.tokens, self._crossing_of(place.state).begins])
        for row in np.flatnonzero(np.isin(found[:, 0], close)).tolist():
            token = int(found[row, 0])
            after = special.get(token) or self._places.advance(place, texts[token] or b"")
            keep[row] = after is not None and plans.of(after, budget - 1) < budget
        keep &= ~np.isin(found[:, 0], conflicts.lost)
        if first:
            keep |= found[:, 0] == self._index.trie.token[self._index.trie.find(first)]
        return self._masks.packed(place.state, found[keep])
