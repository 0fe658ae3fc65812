"""The compiled steps of a piece: a byte of JSON further, what is owed to its end, and walks.

A leaf is five numbers, (place, escape, low, high, match)::

    place   state of the document's suffix automaton, -1 where there is no such piece
    escape  0 between spelled bytes, 1 after \\, 2 after \\u, 3 and 4 behind zeros, 5 and 6 where
            one hex digit is left: after \\u000 and \\u001
    low     characters that the piece still needs, those that are begun left out
    high    characters that it still may have
    match   state of the pattern beside it, -1 without one; it counts lengths then, and not the leaf

Characters are spelled as ``json.dumps(ensure_ascii=False)`` writes them, in one way each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.constraint.pieces.suffixes import DEAD_END, FAR, MARK, Int32s, UInt8s
from app.core.kernels import kernel

QUOTE, BACKSLASH, LETTER_U, ZERO = 0x22, 0x5C, 0x75, 0x30
CONTROL = 2
"""Bytes that six bytes spell, among those that are escaped (``ESCAPED``)."""
ESCAPED = 1
PLAIN = 0

Leaf = tuple[int, int, int, int, int]

NOWHERE: Leaf = (-1, 0, 0, 0, 0)


class Places(NamedTuple):
    """A document for the kernels: see ``Document``. Positions are between bytes of ``data``."""

    words: bool
    root: int
    """Where pieces begin. No other piece leads there, so the empty one ends here alone."""
    start: Int32s
    byte: UInt8s
    target: Int32s
    accept: NDArray[np.bool_]
    near: Int32s
    """By state, with words: characters to the next end at least; else not there."""
    far: Int32s
    """By state, with words: bytes of JSON to that end; else not there."""
    roomiest: Int32s
    """By state: the position where it ends that has the most characters behind it."""
    behind: Int32s
    """By position: characters from there to the last end in its text."""
    data: UInt8s
    chars: Int32s
    """By position: characters that begin before it."""
    json: Int32s
    """By position: bytes of JSON that spell what is before it."""
    stop: Int32s
    """By number of characters: the first end that has so many before it."""
    widest: int
    """Characters between two ends at most."""


class Match(NamedTuple):
    """A pattern beside a document; ``rows`` has no rows where there is none."""

    rows: NDArray[np.int16]
    far: NDArray[np.uint16]


def _spelled_by() -> UInt8s:
    kinds = np.zeros(256, np.uint8)
    kinds[:0x20] = CONTROL
    kinds[list(b'"\\\n\r\t\b\f')] = ESCAPED
    return kinds


def _after_backslash() -> Int32s:
    raw = np.full(256, -1, np.int32)
    for letter, byte in zip(b'"\\nrtbf', b'"\\\n\r\t\b\f', strict=True):
        raw[letter] = byte
    return raw


SPELLED = _spelled_by()
"""By byte: ``PLAIN``, ``ESCAPED`` with two bytes, or ``CONTROL``."""
RAW = _after_backslash()
"""By letter after a backslash: the byte it stands for, or -1."""
COST = np.where(SPELLED == CONTROL, 6, np.where(SPELLED == ESCAPED, 2, 1)).astype(np.int32)
COST[0xFE:] = 0
"""Bytes of JSON that spell a byte; marks and separators are not spelled."""


@kernel()
def edge(places: Places, place: int, byte: int) -> int:
    """The state after one raw byte, -1 if there is none; without looking behind marks."""
    low, high = places.start[place], places.start[place + 1]
    end = high
    while low < high:
        middle = (low + high) >> 1
        if places.byte[middle] < byte:
            low = middle + 1
        else:
            high = middle
    if low < end and places.byte[low] == byte:
        return int(places.target[low])
    return -1


@kernel()
def after(places: Places, place: int, byte: int) -> int:
    """The state after one raw byte; a mark before it is passed over."""
    there = edge(places, place, byte)
    if there < 0 and places.words:
        marked = edge(places, place, MARK)
        if marked >= 0:
            there = edge(places, marked, byte)
    return there


@kernel()
def fits(places: Places, match: Match, place: int, low: int, high: int, state: int) -> bool:
    """Whether some way on from here ends within bounds and pattern. Exact.

    Beyond the nearest end: ends are ``widest`` apart at most, so one is in a window as wide.
    Narrower windows between words have a pattern that counts instead.
    """
    if state >= 0:
        return bool(match.far[place, state] < DEAD_END)
    if low <= 0 and place == places.root:
        return True
    near = places.near[place] if places.words else 0
    if low <= near:
        return bool(near <= high)
    return bool(places.behind[places.roomiest[place]] >= low and low <= high)


@kernel()
def owed(places: Places, match: Match, place: int, low: int, state: int) -> int:
    """Bytes of JSON to the end that is gone to from here, where ``fits``: about the next one."""
    if state >= 0:
        return int(match.far[place, state])
    if low <= 0 and place == places.root:
        return 0
    at = places.roomiest[place]
    if low <= (places.near[place] if places.words else 0):
        if places.words:
            return int(places.far[place])
        size = 0
        while at + size < len(places.data) and (places.data[at + size] & 0xC0) == 0x80:
            size += 1
        return size
    stop = places.stop[places.chars[at] + low]
    return int(places.json[stop] - places.json[at])


@kernel()
def matched(match: Match, state: int, byte: int) -> int:
    """The pattern's state after a raw byte: -1 where there is no pattern, -2 where it is dead."""
    if state < 0:
        return -1
    there = int(match.rows[state, byte])
    return there if there >= 0 else -2


@kernel()
def arrived(
    places: Places, match: Match, place: int, low: int, high: int, state: int, byte: int
) -> tuple[int, int, int, int, int]:
    """The leaf after the raw ``byte``, whose character is counted already."""
    there = after(places, place, byte)
    if there < 0:
        return -1, 0, 0, 0, 0
    state = matched(match, state, byte)
    if state == -2 or not fits(places, match, there, low, high, state):
        return -1, 0, 0, 0, 0
    return there, 0, low, high, state


@kernel()
def belongs(spelled: UInt8s, byte: int, escape: int) -> bool:
    """Whether an escape that is so far along may come to be ``byte``."""
    if byte >= 0xFE:
        return False
    if escape == 1:
        return bool(spelled[byte] != 0)
    if spelled[byte] != 2:
        return False
    return escape < 5 or byte >> 4 == escape - 5


@kernel()
def least_owed(
    places: Places, match: Match, spelled: UInt8s, leaf: tuple[int, int, int, int, int]
) -> int:
    """Bytes of JSON to an end, inside an escape as well; ``FAR`` where an escape has no way on."""
    place, escape, low, high, state = leaf
    if escape == 0:
        return owed(places, match, place, low, state)
    best = FAR
    for first in range(places.start[place], places.start[place + 1]):
        byte, there = places.byte[first], places.target[first]
        begin, end = first, first + 1
        if byte == MARK:
            begin, end = places.start[there], places.start[there + 1]
        for second in range(begin, end):
            byte, there = places.byte[second], places.target[second]
            if not belongs(spelled, byte, escape):
                continue
            next_state = matched(match, state, byte)
            if next_state == -2 or not fits(places, match, there, low, high, next_state):
                continue
            left = 1 if escape >= 5 else 6 - escape
            if escape == 1 and spelled[byte] == 1:
                left = 1
            best = min(best, left + owed(places, match, there, low, next_state))
    return best


@kernel()
def escaping(
    places: Places,
    match: Match,
    spelled: UInt8s,
    place: int,
    escape: int,
    low: int,
    high: int,
    state: int,
) -> tuple[int, int, int, int, int]:
    """The leaf inside an escape, if anything comes of it."""
    leaf = (place, escape, low, high, state)
    if least_owed(places, match, spelled, leaf) == FAR:
        return -1, 0, 0, 0, 0
    return leaf


@kernel()
def step(
    places: Places,
    match: Match,
    spelled: UInt8s,
    raw: Int32s,
    leaf: tuple[int, int, int, int, int],
    byte: int,
) -> tuple[int, int, int, int, int]:
    """The leaf after one byte of JSON."""
    place, escape, low, high, state = leaf
    if escape == 0:
        if byte < 0x20 or byte == 0x22 or byte >= 0xFE:
            return -1, 0, 0, 0, 0
        if (byte & 0xC0) != 0x80 and state < 0:
            low, high = max(low - 1, 0), high - 1
            if high < 0:
                return -1, 0, 0, 0, 0
        if byte == 0x5C:
            return escaping(places, match, spelled, place, 1, low, high, state)
        return arrived(places, match, place, low, high, state, byte)
    if escape == 1:
        if byte == 0x75:
            return escaping(places, match, spelled, place, 2, low, high, state)
        if raw[byte] < 0:
            return -1, 0, 0, 0, 0
        return arrived(places, match, place, low, high, state, raw[byte])
    if escape < 4:
        return (place, escape + 1, low, high, state) if byte == 0x30 else (-1, 0, 0, 0, 0)
    if escape == 4:
        if byte != 0x30 and byte != 0x31:
            return -1, 0, 0, 0, 0
        return escaping(places, match, spelled, place, 5 + byte - 0x30, low, high, state)
    digit = byte - 0x30 if 0x30 <= byte <= 0x39 else byte - 0x57
    if not 0 <= digit < 16 or (byte > 0x39 and digit < 10):
        return -1, 0, 0, 0, 0
    control = (escape - 5) * 16 + digit
    if spelled[control] != 2:
        return -1, 0, 0, 0, 0
    return arrived(places, match, place, low, high, state, control)


@kernel()
def is_end(places: Places, match: Match, leaf: tuple[int, int, int, int, int]) -> bool:
    """Whether the piece may end here, with nothing left to be said of it."""
    place, escape, low, _, state = leaf
    if escape != 0 or place < 0:
        return False
    if state >= 0:
        return bool(match.far[place, state] == 0)
    return bool((places.accept[place] or place == places.root) and low <= 0)


@kernel()
def follow(
    places: Places,
    match: Match,
    spelled: UInt8s,
    raw: Int32s,
    leaf: tuple[int, int, int, int, int],
    text: UInt8s,
    at: int,
) -> tuple[tuple[int, int, int, int, int], int]:
    """As far along ``text`` as the piece goes: the last leaf, and where in the text it is."""
    while at < len(text):
        there = step(places, match, spelled, raw, leaf, text[at])
        if there[0] < 0:
            break
        leaf = there
        at += 1
    return leaf, at


@kernel()
def row(
    places: Places,
    match: Match,
    spelled: UInt8s,
    raw: Int32s,
    leaf: tuple[int, int, int, int, int],
    leaves: Int32s,
) -> None:
    """The leaf after each byte, in ``leaves`` [256, 5]."""
    for byte in range(256):
        there = step(places, match, spelled, raw, leaf, byte)
        leaves[byte, 0], leaves[byte, 1], leaves[byte, 2] = there[0], there[1], there[2]
        leaves[byte, 3], leaves[byte, 4] = there[3], there[4]


@kernel()
def walk(
    places: Places,
    match: Match,
    spelled: UInt8s,
    raw: Int32s,
    leaf: tuple[int, int, int, int, int],
    trie_byte: UInt8s,
    depth: Int32s,
    skip: Int32s,
    token: Int32s,
    node: int,
    end: int,
    stack: Int32s,
    found: Int32s,
    quotes: Int32s,
    enough: int,
) -> tuple[int, int, int]:
    """Along the nodes of a trie from ``node`` to ``end``, siblings that follow ``leaf``.

    ``found`` [N, 2] gets the tokens that stay within the piece, and the bytes of JSON that are
    then owed to its end; ``quotes`` the nodes of quotes that end the piece. ``stack`` [L, 5] is
    room for leaves. Stops where ``enough`` are found. Returns (found, quotes, nodes looked at).
    """
    base = depth[node] if node < end else 0
    stack[0, 0], stack[0, 1], stack[0, 2] = leaf[0], leaf[1], leaf[2]
    stack[0, 3], stack[0, 4] = leaf[3], leaf[4]
    count, ends, visited = 0, 0, 0
    while node < end and count + ends < enough:
        visited += 1
        level = depth[node] - base
        byte = trie_byte[node]
        here = (
            int(stack[level, 0]),
            int(stack[level, 1]),
            int(stack[level, 2]),
            int(stack[level, 3]),
            int(stack[level, 4]),
        )
        if byte == 0x22 and here[1] == 0:
            if is_end(places, match, here):
                quotes[ends] = node
                ends += 1
            node = skip[node]
            continue
        there = step(places, match, spelled, raw, here, byte)
        if there[0] < 0:
            node = skip[node]
            continue
        level += 1
        stack[level, 0], stack[level, 1], stack[level, 2] = there[0], there[1], there[2]
        stack[level, 3], stack[level, 4] = there[3], there[4]
        if token[node] >= 0:
            found[count, 0] = token[node]
            found[count, 1] = least_owed(places, match, spelled, there)
            count += 1
        node += 1
    return count, ends, visited
