"""The compiled steps of a piece: a byte of JSON further, and what is owed to its end.

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

CONTROL = 2
"""Bytes that six bytes spell, among those that are escaped (``ESCAPED``)."""
ESCAPED = 1
PLAIN = 0

NONE = -1
"""Match of a leaf without a pattern."""
DEAD = -2

Leaf = tuple[int, int, int, int, int]

START, NEAR, FAR_BYTES, ROOM, ROOMIEST = range(5)
CHARS, JSON = range(2)


class Places(NamedTuple):
    """A document for the kernels. Positions are between bytes of ``data``."""

    nodes: Int32s
    """[states + 1, 5]: the state's first edge; characters to the next end; bytes of JSON to that;
    characters behind it at the most, and the position where it ends that has so many."""
    edges: NDArray[np.uint32]
    """Those of a state side by side, ascending: the byte above 24 bits of the next state."""
    text: Int32s
    """[positions, 2]: characters that begin before it, and bytes of JSON that spell these."""
    stop: Int32s
    """By number of characters: the first end that has so many before it."""
    rows: NDArray[np.int16]
    """[P, 256]: next states of the pattern beside the document; no rows where there is none."""
    far: NDArray[np.uint16]
    """[states, P]: bytes of JSON to the next common end of piece and pattern, or ``DEAD_END``."""
    root: int
    """Where pieces begin; above 0 where they are made of words. No other piece leads there, so the
    empty one ends here alone."""


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

_NOWHERE: Leaf = (-1, 0, 0, 0, 0)

# Kernels take the fields of ``Places`` one by one: a tuple of arrays takes microseconds to hand on.


@kernel(forceinline=True)
def edge(nodes: Int32s, edges: NDArray[np.uint32], place: int, byte: int) -> int:
    """The state after one raw byte, -1 if there is none; without looking behind marks."""
    low, high = nodes[place, 0], nodes[place + 1, 0]
    end = high
    while low < high:
        middle = (low + high) >> 1
        if edges[middle] >> 24 < byte:
            low = middle + 1
        else:
            high = middle
    if low < end and edges[low] >> 24 == byte:
        return int(edges[low] & 0xFFFFFF)
    return -1


@kernel(forceinline=True)
def after(nodes: Int32s, edges: NDArray[np.uint32], root: int, place: int, byte: int) -> int:
    """The state after one raw byte; a mark before it is passed over."""
    there = edge(nodes, edges, place, byte)
    if there < 0 and root > 0:
        marked = edge(nodes, edges, place, MARK)
        if marked >= 0:
            there = edge(nodes, edges, marked, byte)
    return there


@kernel(forceinline=True)
def fits(
    nodes: Int32s,
    far: NDArray[np.uint16],
    root: int,
    place: int,
    low: int,
    high: int,
    match: int,
) -> bool:
    """Whether some way on from here ends within bounds and pattern. Exact.

    Beyond the nearest end: ends lie so near each other that one is in each window as wide as the
    bounds leave. Narrower windows between words have a pattern that counts instead.
    """
    if match >= 0:
        return bool(far[place, match] < DEAD_END)
    if low <= 0 and place == root:
        return True
    near = nodes[place, 1]
    if low <= near:
        return bool(near <= high)
    return bool(nodes[place, 3] >= low and low <= high)


@kernel(forceinline=True)
def owed(
    nodes: Int32s,
    text: Int32s,
    stop: Int32s,
    far: NDArray[np.uint16],
    root: int,
    place: int,
    low: int,
    match: int,
) -> int:
    """Bytes of JSON to the end that is gone to from here, where ``fits``: about the next one."""
    if match >= 0:
        return int(far[place, match])
    if low <= 0 and place == root:
        return 0
    if low <= nodes[place, 1]:
        return int(nodes[place, 2])
    at = nodes[place, 4]
    return int(text[stop[text[at, 0] + low], 1] - text[at, 1])


@kernel(forceinline=True)
def matched(rows: NDArray[np.int16], match: int, byte: int) -> int:
    """The pattern's state after a raw byte; ``NONE`` without a pattern, ``DEAD`` without a way."""
    if match < 0:
        return -1
    there = int(rows[match, byte])
    return there if there >= 0 else -2


@kernel(forceinline=True)
def arrived(
    nodes: Int32s,
    edges: NDArray[np.uint32],
    rows: NDArray[np.int16],
    far: NDArray[np.uint16],
    root: int,
    leaf: Leaf,
    byte: int,
) -> Leaf:
    """The leaf after the raw ``byte``, whose character is counted already."""
    there = after(nodes, edges, root, leaf[0], byte)
    if there < 0:
        return -1, 0, 0, 0, 0
    match = matched(rows, leaf[4], byte)
    if match == -2 or not fits(nodes, far, root, there, leaf[2], leaf[3], match):
        return -1, 0, 0, 0, 0
    return there, 0, leaf[2], leaf[3], match


@kernel()
def belongs(byte: int, escape: int) -> bool:
    """Whether an escape that is so far along may come to be ``byte``."""
    if byte >= 0xFE:
        return False
    if escape == 1:
        return bool(SPELLED[byte] != 0)
    if SPELLED[byte] != 2:
        return False
    return escape < 5 or byte >> 4 == escape - 5


@kernel()
def owed_in_escape(
    nodes: Int32s,
    edges: NDArray[np.uint32],
    text: Int32s,
    stop: Int32s,
    rows: NDArray[np.int16],
    far: NDArray[np.uint16],
    root: int,
    leaf: Leaf,
) -> int:
    """Bytes of JSON to an end from inside an escape; ``FAR`` where it has no way on."""
    place, escape, low, high, state = leaf
    best = FAR
    for first in range(nodes[place, 0], nodes[place + 1, 0]):
        begin, end = first, first + 1
        if edges[first] >> 24 == MARK:
            there = edges[first] & 0xFFFFFF
            begin, end = nodes[there, 0], nodes[there + 1, 0]
        for second in range(begin, end):
            byte, there = int(edges[second] >> 24), int(edges[second] & 0xFFFFFF)
            if not belongs(byte, escape):
                continue
            match = matched(rows, state, byte)
            if match == -2 or not fits(nodes, far, root, there, low, high, match):
                continue
            left = 1 if escape >= 5 else 6 - escape
            if escape == 1 and SPELLED[byte] == 1:
                left = 1
            best = min(best, left + owed(nodes, text, stop, far, root, there, low, match))
    return best


@kernel(forceinline=True)
def least_owed(
    nodes: Int32s,
    edges: NDArray[np.uint32],
    text: Int32s,
    stop: Int32s,
    rows: NDArray[np.int16],
    far: NDArray[np.uint16],
    root: int,
    leaf: Leaf,
) -> int:
    """Bytes of JSON to an end, the rest of an escape included."""
    if leaf[1] == 0:
        return owed(nodes, text, stop, far, root, leaf[0], leaf[2], leaf[4])
    return owed_in_escape(nodes, edges, text, stop, rows, far, root, leaf)


@kernel()
def escaping(
    nodes: Int32s,
    edges: NDArray[np.uint32],
    text: Int32s,
    stop: Int32s,
    rows: NDArray[np.int16],
    far: NDArray[np.uint16],
    root: int,
    leaf: Leaf,
    byte: int,
) -> Leaf:
    """The leaf after one byte of an escape, the backslash included; its character is counted."""
    place, escape, low, high, match = leaf
    if escape == 0:
        escape = 1
    elif escape == 1 and byte == 0x75:
        escape = 2
    elif escape == 1:
        if RAW[byte] < 0:
            return -1, 0, 0, 0, 0
        return arrived(nodes, edges, rows, far, root, leaf, RAW[byte])
    elif escape < 4:
        return (place, escape + 1, low, high, match) if byte == 0x30 else (-1, 0, 0, 0, 0)
    elif escape == 4:
        if byte != 0x30 and byte != 0x31:
            return -1, 0, 0, 0, 0
        escape = 5 + byte - 0x30
    else:
        digit = byte - 0x30 if 0x30 <= byte <= 0x39 else byte - 0x57
        if not 0 <= digit < 16 or (byte > 0x39 and digit < 10):
            return -1, 0, 0, 0, 0
        control = (escape - 5) * 16 + digit
        if SPELLED[control] != 2:
            return -1, 0, 0, 0, 0
        return arrived(nodes, edges, rows, far, root, leaf, control)
    leaf = (place, escape, low, high, match)
    if owed_in_escape(nodes, edges, text, stop, rows, far, root, leaf) == FAR:
        return -1, 0, 0, 0, 0
    return leaf


@kernel(forceinline=True)
def step(
    nodes: Int32s,
    edges: NDArray[np.uint32],
    text: Int32s,
    stop: Int32s,
    rows: NDArray[np.int16],
    far: NDArray[np.uint16],
    root: int,
    leaf: Leaf,
    byte: int,
) -> Leaf:
    """The leaf after one byte of JSON."""
    place, escape, low, high, match = leaf
    if escape == 0:
        if byte < 0x20 or byte == 0x22 or byte >= 0xFE:
            return -1, 0, 0, 0, 0
        if (byte & 0xC0) != 0x80 and match < 0:
            low, high = max(low - 1, 0), high - 1
            if high < 0:
                return -1, 0, 0, 0, 0
        if byte != 0x5C:
            return arrived(nodes, edges, rows, far, root, (place, 0, low, high, match), byte)
    here = (place, escape, low, high, match)
    return escaping(nodes, edges, text, stop, rows, far, root, here, byte)


@kernel(forceinline=True)
def is_end(nodes: Int32s, far: NDArray[np.uint16], root: int, leaf: Leaf) -> bool:
    """Whether the piece may end here, with nothing left to be said of it."""
    place, escape, low, _, match = leaf
    if escape != 0 or place < 0:
        return False
    if match >= 0:
        return bool(far[place, match] == 0)
    return bool(low <= 0 and (nodes[place, 2] == 0 or place == root))
