"""The texts whose pieces a request's values must be, as JSON strings spell them.

A piece is a run of bytes of a text; flags by position tell where pieces may begin and end.
Characters that no string may contain, and borders between texts, are separators.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from functools import cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from app.constraint.automaton.trie import Int32s, UInt8s
from app.constraint.language.codepoints import LAST, runs
from app.constraint.language.nodes import ByteSet
from app.constraint.quotes.positions import BREAK, locate, suffix_order
from app.core.errors import InvalidRequest
from app.core.verbatim import Found

_SPELLED = [json.dumps(chr(byte), ensure_ascii=False)[1:-1].encode() for byte in range(0x80)]
_COST = np.array([*map(len, _SPELLED), *([1] * 0x80)])
"""Bytes of JSON that spell a byte."""

_MOST_WALKS = 16


class WalkCache:
    """Results of long walks, such as those from the beginning of pieces. Any thread may use it."""

    def __init__(self) -> None:
        self._known: dict[object, tuple[Int32s, Int32s]] = {}
        self._adding = Lock()

    @property
    def nbytes(self) -> int:
        return sum(found.nbytes + quotes.nbytes for found, quotes in list(self._known.values()))

    def get(self, key: object) -> tuple[Int32s, Int32s] | None:
        """Tokens within the piece with the bytes they owe, and nodes of quotes that end it."""
        return self._known.get(key)

    def keep(self, key: object, found: Int32s, quotes: Int32s) -> None:
        """Cache the result of a walk; it replaces the oldest of ``_MOST_WALKS``."""
        with self._adding:
            if len(self._known) >= _MOST_WALKS:
                del self._known[next(iter(self._known))]
            self._known[key] = (found, quotes)


class Document:
    """The pieces of some texts; no piece crosses a border of texts. Immutable.

    Cost: for 100,000 characters 12 to 40 ms, mostly sorting without the GIL, and at most 27 bytes
    for each of their bytes. Raises ``InvalidRequest`` for half of a surrogate pair.
    """

    def __init__(self, texts: Sequence[str], *, words: bool = False, missing: ByteSet = 0) -> None:
        """``words``: pieces begin and end at borders of words or marks. ``missing``: bytes that the
        tokenizer cannot spell; no piece has a character that needs one."""
        raw = np.frombuffer(bytes([BREAK]).join(map(_encoded, texts)), np.uint8)
        spelled = [json.dumps(text, ensure_ascii=False)[1:-1].encode() for text in texts]
        self.data: UInt8s = np.frombuffer(
            bytes([BREAK]).join(spelled) + bytes([BREAK]), np.uint8
        ).copy()
        """The texts, with a separator after each."""
        stops = np.cumsum(_COST[raw], dtype=np.int32)
        self.fed = np.full(len(self.data), BREAK, np.uint8)
        """By position: the byte of the text that this byte of JSON completes, or a separator."""
        self.fed[stops - 1] = raw
        begins = np.flatnonzero((raw & 0xC0) != 0x80)
        borders = np.append(stops[begins] - _COST[raw[begins]], len(self.data) - 1)
        if missing and len(begins):
            ascii_lost = [any(missing >> byte & 1 for byte in text) for text in _SPELLED]
            lost = np.array(
                ascii_lost + [missing >> byte & 1 for byte in range(0x80, 0x100)], np.bool_
            )
            of_character = np.logical_or.reduceat(lost[raw], begins)
            self.data[:-1][np.repeat(of_character, np.diff(borders))] = BREAK
        self.chars = np.zeros(len(self.data) + 1, np.int32)
        """By position: number of characters (and separators) that begin before it."""
        self.chars[borders + 1] = 1
        np.cumsum(self.chars, out=self.chars)
        sizes = np.array([len(text) + 1 for text in texts], np.int32)
        self._firsts = np.cumsum(sizes) - sizes
        """The number of the first character of each text."""
        first = last = np.arange(len(borders))
        if words:
            found = [word_borders(text) for text in texts]
            first = np.concatenate([first[:0], *map(np.add, [w[0] for w in found], self._firsts)])
            last = np.concatenate([last[:0], *map(np.add, [w[1] for w in found], self._firsts)])
        starts, ends = borders[first], borders[last]
        starts = starts[self.data[starts] != BREAK]
        is_start = np.zeros(len(self.data), np.bool_)
        is_start[starts] = True
        order = suffix_order(self.data)
        self.starts = order[is_start[order]]
        """Positions at which pieces begin, sorted by the bytes from there on."""
        self.words = words
        self.is_end: NDArray[np.bool_] = np.zeros(len(self.data), np.bool_)
        """By position: whether a piece may end there."""
        self.is_end[ends] = True
        upto = np.zeros(len(borders) + 1, np.int32)
        upto[self.chars[ends] + 1] = 1
        self._ends = np.append(-1, ends).astype(np.int32)
        self._upto = np.cumsum(upto, dtype=np.int32)
        """By a number of characters: the number of ends with fewer before them."""
        self.stop: Int32s = np.append(ends, len(self.data)).astype(np.int32)[self._upto]
        """By a number of characters: the first end with so many before it."""
        breaks = np.flatnonzero(self.data == BREAK)
        self._room = self.chars[breaks[np.searchsorted(breaks, self.starts)]]
        """For each of ``starts``: characters up to the next separator."""
        self.walks = WalkCache()
        """Cached walks of pieces without a pattern, which do not depend on the constraint."""

    def last(self, low: int, high: int) -> Int32s:
        """By position: the last end of a non-empty piece of ``low`` to ``high`` characters that
        begins there; -1 if there is none."""
        begun = self.chars[self.starts]
        most = np.minimum(self._room, begun.astype(np.int64) + high)
        latest = self._ends[self._upto[most + 1]]
        fits = (latest > self.starts) & (self.chars[latest] - begun >= low)
        last = np.full(len(self.data), -1, np.int32)
        last[self.starts] = np.where(fits, latest, -1)
        return last

    @property
    def nbytes(self) -> int:
        """Memory in bytes. Any thread may read it."""
        arrays = (
            self.data, self.fed, self.chars, self.starts, self.is_end,
            self._ends, self._upto, self.stop, self._room,
        )  # fmt: skip
        return self.walks.nbytes + sum(each.nbytes for each in arrays)

    def find(self, value: str) -> Found | None:
        """The first occurrence of ``value``, if any; None for "" or half of a character."""
        text = json.dumps(value, ensure_ascii=False)[1:-1].encode(errors="surrogatepass")
        first, end = locate(self.data, self.starts, np.frombuffer(text, np.uint8))
        begins = self.starts[first : end if text else first]
        begins = begins[self.is_end[begins + len(text)]]
        if not len(begins):
            return None
        begin = int(self.chars[begins.min()])
        number = int(np.searchsorted(self._firsts, begin, side="right")) - 1
        begin -= int(self._firsts[number])
        return Found(number, begin, begin + len(value))


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "a text of the prompt that x-verbatim refers to contains half of a surrogate pair",
            role="prompt",
        ) from error


UNSPACED = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3005, 0x3007),
    (0x3040, 0x30FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9D),
    (0x20000, 0x3FFFF),
)
"""Code points of Thai, Lao, Myanmar, Khmer, kana and Han."""

COMBINING = ((0x300, 0x1FFFF), (0xE0100, 0xE01EF))
"""Ranges that contain the code points of category M."""

_MARK, _SPACE, _WORD, _SINGLE, _COMBINING = range(5)


@cache
def _kinds() -> NDArray[np.uint8]:
    """The kind of each code point; some 50 ms, once."""
    kinds = np.full(LAST + 1, _MARK, np.uint8)
    for kind, ranges in ((_WORD, runs(r"\w")), (_SINGLE, UNSPACED), (_SPACE, runs(r"\s"))):
        for first, last in ranges:
            kinds[first : last + 1] = kind
    for first, last in COMBINING:
        for code in range(first, last + 1):
            if unicodedata.category(chr(code))[0] == "M":
                kinds[code] = _COMBINING
    return kinds


def word_borders(text: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions between characters at which words and marks begin, and at which they end.

    A word is a run of letters, digits and underscores (``\\w`` of Unicode), or one character of a
    script without spaces between words. Other characters but white space are marks, each by itself.
    Combining marks (category M) belong to the character before them.

    Both ascend. A millisecond for 100,000 characters. ``text`` has no half of a surrogate pair.
    """
    if not text:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    kinds = _kinds()[np.frombuffer(text.encode("utf-32-le"), np.uint32)]
    places = np.where(kinds != _COMBINING, np.arange(len(kinds)), -1)
    bases = np.maximum.accumulate(places)
    of = np.where(bases < 0, _SPACE, kinds[bases])
    of[(kinds == _COMBINING) & (of == _SPACE)] = _MARK
    continues = np.zeros(len(kinds) + 1, np.bool_)
    before = of[:-1]
    joins = (kinds[1:] == _COMBINING) | ((kinds[1:] == _WORD) & (before == _WORD))
    continues[1:-1] = joins & (before != _SPACE)
    begins = np.flatnonzero((of != _SPACE) & ~continues[:-1])
    ends = np.flatnonzero((of != _SPACE) & ~continues[1:]) + 1
    return begins, ends
