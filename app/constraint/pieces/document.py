"""The texts that a request's values have to stand in, and the automaton of their pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from app.constraint.language.nodes import ByteSet
from app.constraint.pieces.steps import CHARS, COST, FAR_BYTES, Places
from app.constraint.pieces.suffixes import (
    MARK,
    ROOT,
    SEPARATOR,
    Int32s,
    UInt8s,
    accepting,
    build,
    by_length,
    occurrences,
    pack,
    packed_nodes,
    to_the_end,
    without_dead_ends,
)
from app.constraint.pieces.ways import locate
from app.constraint.pieces.words import word_borders
from app.core.errors import ConstraintTooComplex, InvalidRequest
from app.core.verbatim import Found

_MOST_WALKS = 16


class KeptWalks:
    """What the walks found that take longest: those from where pieces begin. Any thread."""

    def __init__(self) -> None:
        self._known: dict[object, tuple[Int32s, Int32s]] = {}
        self._adding = Lock()

    @property
    def nbytes(self) -> int:
        return sum(found.nbytes + quotes.nbytes for found, quotes in list(self._known.values()))

    def get(self, key: object) -> tuple[Int32s, Int32s] | None:
        """Tokens within the piece with what they owe, and nodes of quotes that end it."""
        return self._known.get(key)

    def keep(self, key: object, found: Int32s, quotes: Int32s) -> None:
        """Note what a walk found, instead of the oldest one."""
        with self._adding:
            if len(self._known) >= _MOST_WALKS:
                del self._known[next(iter(self._known))]
            self._known[key] = (found, quotes)


class Document:
    """The pieces of some texts, none of which goes across two of them. Immutable.

    Cost: at 100,000 characters some 20 ms, of which the interpreter is held for two, and 45 bytes
    a character; ``words`` twice as long. Raises ``InvalidRequest`` for half of a surrogate pair.
    """

    def __init__(self, texts: Sequence[str], *, words: bool = False, missing: ByteSet = 0) -> None:
        """``words``: pieces begin and end where a word or a mark does. ``missing``: bytes that the
        tokenizer cannot spell; no piece has a character that needs one."""
        self.words = words
        whole, ends = _marked(texts) if words else _joined(texts)
        data = _cut(whole, missing) if missing else whole
        length, link, first, byte, target, following, prefix, states = build(data)
        start, byte, target = pack(first, byte, target, following, states, words)
        order = by_length(length, states)
        accept = accepting(link, prefix, ends, states)
        chars, behind, stop = _counted(whole, data, ends)
        self.order = order
        """States from the longest to the shortest."""
        self.earliest, roomiest = occurrences(order, link, prefix, behind)
        near = far = np.zeros(0, np.int32)
        if words:
            near, far = to_the_end(order, start, byte, target, accept, COST)
            byte, target = without_dead_ends(start, byte, target, near)
        text = np.zeros((len(data) + 1, 2), np.int32)
        text[:, 0] = chars
        np.cumsum(COST[data], out=text[1:, 1])
        root = ROOT
        if words:  # behind the root's mark, if there is any word
            ways = range(int(start[ROOT]), int(start[ROOT + 1]))
            root = next((int(target[way]) for way in ways if byte[way] == MARK), ROOT)
        gaps = np.diff(chars[np.flatnonzero(ends)], prepend=0)
        self.widest = int(gaps.max(initial=1)) if words else 1
        """Characters between two ends at most."""
        self.data = data
        self._borders = np.append(np.flatnonzero(whole == SEPARATOR), len(whole))
        """Where texts end."""
        if states >= 1 << 24:
            raise ConstraintTooComplex(f"x-verbatim over a text of {len(data)} bytes")
        shifted = byte.astype(np.uint32) << np.uint32(24)
        edges: NDArray[np.uint32] = np.bitwise_or(shifted, target.astype(np.uint32))
        self.places = Places(
            packed_nodes(start, near, far, roomiest, behind, data), edges, text, stop,
            np.zeros((0, 256), np.int16), np.zeros((0, 0), np.uint16), root,
        )  # fmt: skip
        self.walks = KeptWalks()
        """Of pieces that nothing else holds of: the document's and the vocabulary's alone."""

    @property
    def states(self) -> int:
        return len(self.places.nodes) - 1

    @property
    def nbytes(self) -> int:
        """Memory in bytes. Any thread may ask."""
        arrays = [each for each in self.places if isinstance(each, np.ndarray)]
        own = self.order.nbytes + self.earliest.nbytes + self.data.nbytes
        return own + self.walks.nbytes + sum(each.nbytes for each in arrays)

    def find(self, value: str) -> Found | None:
        """Where ``value`` stands first; an empty one, or half of a character, stands nowhere."""
        raw = np.frombuffer(value.encode(errors="replace"), np.uint8)
        places = self.places
        place = locate(places.nodes, places.edges, places.root, raw) if len(raw) else -1
        if place < 0 or places.nodes[place, FAR_BYTES]:
            return None
        end = int(self.earliest[place])
        text = int(np.searchsorted(self._borders, end))
        begin = int(self._borders[text - 1]) + 1 if text else 0
        stop = int(places.text[end, CHARS] - places.text[begin, CHARS])
        return Found(text, stop - len(value), stop)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "a text of the prompt that values have to stand in holds half of a surrogate pair",
            role="prompt",
        ) from error


def _joined(texts: Sequence[str]) -> tuple[UInt8s, NDArray[np.bool_]]:
    """The bytes of all texts, and the positions between their characters."""
    data = np.frombuffer(bytes([SEPARATOR]).join(map(_encoded, texts)), np.uint8).copy()
    ends = np.ones(len(data) + 1, np.bool_)
    ends[:-1] = (data & 0xC0) != 0x80
    return data, ends


def _marked(texts: Sequence[str]) -> tuple[UInt8s, NDArray[np.bool_]]:
    """The bytes of all texts with a mark before each word, and the positions where words end."""
    parts: list[UInt8s] = []
    good: list[NDArray[np.bool_]] = []
    for number, text in enumerate(texts):
        raw = np.frombuffer(_encoded(text), np.uint8)
        first, last = word_borders(text)
        borders = np.append(np.flatnonzero((raw & 0xC0) != 0x80), len(raw))
        begins, ends = borders[first], borders[last]
        marked = np.insert(raw, begins, MARK)
        is_end = np.zeros(len(marked) + 1, np.bool_)
        is_end[ends + np.searchsorted(begins, ends, side="left")] = True
        if number:
            parts.append(np.array([SEPARATOR], np.uint8))
        parts.append(marked)
        good.append(is_end)
    data = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
    return data, np.concatenate(good) if good else np.zeros(1, np.bool_)


def _cut(data: UInt8s, missing: ByteSet) -> UInt8s:
    """``data`` with separators in the place of characters that strings of JSON cannot hold."""
    spelled = [json.dumps(chr(b), ensure_ascii=False)[1:-1].encode() for b in range(0x80)]
    spelled += [bytes([byte]) for byte in range(0x80, SEPARATOR)] + [b"", b""]
    lost = np.array([any(missing >> byte & 1 for byte in text) for text in spelled])
    starts = np.flatnonzero((data & 0xC0) != 0x80)
    if not len(starts):
        return data
    sizes = np.diff(starts, append=len(data))
    return np.where(
        np.repeat(np.logical_or.reduceat(lost[data], starts), sizes), np.uint8(SEPARATOR), data
    )


def _counted(whole: UInt8s, data: UInt8s, ends: NDArray[np.bool_]) -> tuple[Int32s, Int32s, Int32s]:
    """``chars``, ``behind`` and ``stop`` of ``Places``; ``data`` are the ``whole`` texts, cut."""
    begins = ((whole & 0xC0) != 0x80) & (whole < SEPARATOR)
    chars = np.zeros(len(data) + 1, np.int32)
    np.cumsum(begins, out=chars[1:])
    positions = np.flatnonzero(ends).astype(np.int32)
    borders = np.append(np.flatnonzero(data == SEPARATOR), len(data))
    text_of = np.searchsorted(borders, np.arange(len(data) + 1))
    last = np.searchsorted(positions, borders, side="right") - 1
    most = np.where(last >= 0, chars[positions[last]] if len(positions) else 0, 0)
    behind = np.maximum(most[text_of] - chars, 0).astype(np.int32)
    wanted = np.searchsorted(chars[positions], np.arange(chars[-1] + 1))
    stop = np.append(positions, len(data))[wanted].astype(np.int32)
    return chars, behind, stop
