"""Choices at a state with few continuations: whole values, keys, ends, beginnings of the rest.

Texts are followed through the automaton byte by byte, as far as needed to distinguish the ways.
Too many strings or numbers are a single way, identified by its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.trie import DEAD, Int32s
from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.language.expressions import Expression
from app.constraint.language.nodes import bytes_of
from app.core.choices import MOST_BYTES, MOST_WAYS, UNLISTED, Choice, Way, WayKind
from app.core.json_scan import BLANKS, NUMBER_BYTES, Place

_MOST_STEPS = 2 * MOST_BYTES
"""Maximum bytes followed for one choice."""
_MOST_NEXT = 48
"""Maximum next bytes within a listed string; free text has some 200."""
_MOST_IN_ALL = 8 * MOST_BYTES
"""The same, including attempts that were given up."""

_MOST_KEPT = 16 << 20
"""Approximate bytes of the cache of one constraint."""

_QUOTE, _BACKSLASH, _COMMA = ord('"'), ord("\\"), ord(",")
_BRACKETS: dict[int, WayKind] = {ord("{"): "object", ord("["): "array"}
_CLOSING = b"}]"
_DIGITS = b"-0123456789"
"""First bytes of numbers."""
_ENDS = (b",", b"}", b"]", b"\n")
"""Texts that show that a number has ended, even if the constraint does not allow them."""
_BORDERS = (*(bytes([byte]) for byte in b' \t\r\n.,:;!?)]}"*'), "。".encode(), "，".encode())
"""Texts that show that a text has ended, as no word continues with them."""
_WORDS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}


_Ways = dict[tuple[WayKind, bytes], list[bytes]]
_Snapshot = tuple[int, int, int, _Ways, set[bytes]]


class _TooMany(Exception):
    """More texts, or bytes of texts, than one choice may have."""


class Choices:
    """Choices of one automaton over one vocabulary, memoised. One thread at a time."""

    def __init__(self, automaton: Automaton, index: VocabularyIndex) -> None:
        self._automaton = automaton
        self._index = index
        self._known: dict[tuple[State, Place], Choice | None] = {}
        self._beginnings: dict[bytes, Int32s] = {}
        self._size = 0

    @property
    def nbytes(self) -> int:
        """Memory in bytes, estimated. Any thread may read it."""
        return self._size

    def of(self, state: State, place: Place) -> Choice | None:
        """See ``ChoosingState.choice``."""
        key = (state, place)
        if key not in self._known:
            choice = _Search(self._automaton).choice(state, place)
            self._make_room()
            self._known[key] = choice
            self._size += 200 if choice is None else 400 * len(choice.ways)
        return self._known[key]

    def only(self, state: State, way: Way, before: bytes) -> State:
        """See ``ChoosingState.only``; ``DEAD`` where no answer is left."""
        automaton = self._automaton
        pool = automaton.pool
        kept = [pool.literal(before + way.text)] if way.ends_answer else []
        for text in way.texts:
            after = automaton.step(state, before + text)
            if after != DEAD:
                rest = automaton.expression(after)
                kept.append(pool.concatenate(pool.literal(before + text), rest))
        return automaton.state(pool.union(kept))

    def beginning(self, text: bytes) -> Int32s:
        """See ``ChoosingState.beginning``."""
        found = self._beginnings.get(text)
        if found is None:
            found = self._index.beginning(text)
            self._make_room()
            self._beginnings[text] = found
            self._size += 150 + found.nbytes
        return found

    def _make_room(self) -> None:
        if self._size > _MOST_KEPT:
            self._known.clear()
            self._beginnings.clear()
            self._size = 0


class _Search:
    """Follows the texts of one choice."""

    def __init__(self, automaton: Automaton) -> None:
        self._derivatives = automaton.derivatives
        self._pool = automaton.pool
        self._automaton = automaton
        self._ways: _Ways = {}
        self._ending: set[bytes] = set()
        """Numbers that may end the answer."""
        self._unfinished: dict[bytes, set[bytes]] = {}
        """Numbers that may have more digits, and the blanks before them."""
        self._texts = 0
        self._bytes = 0
        self._steps = 0
        self._given_up = 0
        self._open = False

    def choice(self, state: State, place: Place) -> Choice | None:
        start = self._automaton.expression(state)
        try:
            if place is Place.TEXT:
                self._whole_texts(start)
            else:
                self._follow(start, b"", place)
        except _TooMany:
            return UNLISTED
        if not self._ways:
            return None
        if place is Place.TEXT:
            return Choice(_text_ways([text for _, text in self._ways]))
        ways = [self._way(kind, text, tuple(texts)) for (kind, text), texts in self._ways.items()]
        values = {way.text for way in ways if way.kind == "value"}
        is_exact = any(marked <= values for marked in self._pool.exact_choices) or any(
            values and values <= marked for marked in self._pool.exact_lists
        )
        return Choice(tuple(ways), is_exact, self._open)

    def _way(self, kind: WayKind, text: bytes, texts: tuple[bytes, ...]) -> Way:
        unfinished = self._unfinished.get(text) if kind == "value" else None
        if unfinished is None:
            return Way(kind, text, texts, texts)
        beginnings = tuple([before + text + end for before in sorted(unfinished) for end in _ENDS])
        return Way(kind, text, texts, beginnings, text in self._ending)

    def _follow(self, start: Expression, before: bytes, place: Place) -> None:
        """Add all ways from ``start``, which follows the blanks and commas ``before``."""
        for byte, target in self._next(start):
            text = before + bytes([byte])
            if byte in BLANKS:
                self._follow(target, text, place)
            elif byte in _CLOSING and place is Place.VALUE:
                self._open = True  # an array that could also have been empty
            elif byte in _CLOSING:
                self._add("end", b"", text)
            elif place is Place.FIRST_ITEM or (place is Place.NEXT_ITEM and byte == _COMMA):
                self._add("item", b"", text)
            elif place is Place.NEXT_KEY and byte == _COMMA:
                self._follow(target, text, Place.KEY)
            elif place in (Place.FIRST_KEY, Place.KEY):
                self._strings(target, text, "key", "any key")
            elif place is not Place.VALUE:
                self._open = True
            elif byte == _QUOTE:
                self._strings(target, text, "value", "string")
            elif byte in _BRACKETS:
                self._add(_BRACKETS[byte], b"", text)
            elif byte in _WORDS:
                self._add("value", _WORDS[byte], before + _WORDS[byte])
            elif byte in _DIGITS:
                self._numbers(target, text)
            else:
                self._open = True  # not a JSON value: the mark of a tool call

    def _whole_texts(self, start: Expression) -> None:
        """Each text up to the answer's end as a way."""
        waiting = [(start, b"")]
        while waiting:
            here, text = waiting.pop()
            if self._pool.nullable[here]:
                self._add("text", text, text)
            nexts = [*self._next(here)]
            waiting += [(target, text + bytes([byte])) for byte, target in reversed(nexts)]
            self._check(len(waiting))

    def _strings(self, start: Expression, opened: bytes, whole: WayKind, one_of: WayKind) -> None:
        """Each string as a way, or one way for all of them; ``opened`` ends with the quote."""
        before, first = len(opened) - 1, self._snapshot()
        waiting = [(start, opened, False)]
        try:
            while waiting:
                here, text, escaped = waiting.pop()
                nexts = [*self._next(here)]
                if len(nexts) > _MOST_NEXT:
                    raise _TooMany
                for byte, target in reversed(nexts):
                    after = text + bytes([byte])
                    if byte == _QUOTE and not escaped:
                        self._add(whole, after[before:], after)
                    else:
                        waiting.append((target, after, byte == _BACKSLASH and not escaped))
                self._check(len(waiting))
        except _TooMany:
            self._restore(first)
            self._add(one_of, b"", opened)

    def _numbers(self, start: Expression, prefix: bytes) -> None:
        """Each number that begins like ``prefix`` as a way, or one way for all numbers."""
        before, first = len(prefix) - 1, self._snapshot()
        waiting = [(start, prefix)]
        if ("number", b"") in self._ways:
            self._add("number", b"", prefix)
            return
        try:
            while waiting:
                here, text = waiting.pop()
                ways = [*self._next(here)]
                number = text[before:]
                ends = [byte for byte, _ in ways if byte not in NUMBER_BYTES]
                if len(ends) == len(ways):
                    if ways or self._pool.nullable[here]:
                        self._add("value", number, text)
                    continue
                if ends or self._pool.nullable[here]:
                    self._unfinished.setdefault(number, set()).add(text[:before])
                for byte in ends:
                    self._add("value", number, text + bytes([byte]))
                if self._pool.nullable[here]:
                    self._ways.setdefault(("value", number), [])
                    self._ending.add(number)
                waiting += [(t, text + bytes([b])) for b, t in reversed(ways) if b in NUMBER_BYTES]
                self._check(len(waiting))
        except _TooMany:
            self._restore(first)
            self._merge_numbers(prefix)

    def _merge_numbers(self, prefix: bytes) -> None:
        """Replace all numbers by one way for each of their beginnings."""
        firsts = {prefix}
        for kind, value in [*self._ways]:
            if kind == "number" or (kind == "value" and value and value[0] in NUMBER_BYTES):
                for text in self._ways.pop((kind, value)):
                    firsts.add(text[: len(text) - len(text.lstrip(BLANKS)) + 1])
                self._ending.discard(value)
        for text in sorted(firsts):
            self._add("number", b"", text)

    def _next(self, here: Expression) -> Iterator[tuple[int, Expression]]:
        """Each next byte and the derivative by it, in the order of bytes."""
        row = self._derivatives.live_row(here)
        self._steps += sum([members.bit_count() for members, _ in row])
        if self._steps > _MOST_STEPS:
            raise _TooMany
        found = [(byte, target) for members, target in row for byte in bytes_of(members)]
        return iter(sorted(found))

    def _check(self, waiting: int) -> None:
        """Raise if there are too many texts: each unfinished one is at least one."""
        if self._texts + waiting > MOST_WAYS:
            raise _TooMany

    def _add(self, kind: WayKind, text: bytes, spelled: bytes) -> None:
        self._texts += 1
        self._bytes += len(spelled)
        if self._texts > MOST_WAYS or self._bytes > MOST_BYTES:
            raise _TooMany
        self._ways.setdefault((kind, text), []).append(spelled)

    def _snapshot(self) -> _Snapshot:
        ways = {key: [*texts] for key, texts in self._ways.items()}
        return self._texts, self._bytes, self._steps, ways, {*self._ending}

    def _restore(self, snapshot: _Snapshot) -> None:
        """Return to ``snapshot``; the steps since then count for ``_MOST_IN_ALL``."""
        self._given_up += self._steps
        if self._given_up > _MOST_IN_ALL:
            raise _TooMany
        self._texts, self._bytes, self._steps, self._ways, self._ending = snapshot


def _text_ways(texts: Sequence[bytes]) -> tuple[Way, ...]:
    prefixes = {text[:size] for text in texts for size in range(1, len(text) + 1)}

    def borders(text: bytes) -> tuple[bytes, ...]:
        return tuple([each for each in _BORDERS if text and text + each not in prefixes])

    return tuple([Way("text", text, (), (), True, borders(text)) for text in texts])
