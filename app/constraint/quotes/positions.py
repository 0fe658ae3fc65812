"""The compiled loops over a document: the occurrences of a text, and the bytes that may follow.

Positions where pieces may begin are sorted by the bytes from there on (a suffix array: Manber and
Myers, 1990), so the occurrences of a text are neighbours. An occurrence is alive up to ``last`` of
its first position.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.constraint.automaton.trie import Int32s, UInt8s
from app.core.kernels import kernel

BREAK = 0xFF
"""Separator of texts, also for characters that no piece may contain. No byte of UTF-8."""
DEAD_END = 65_535
"""Distance to the next end if there is none, or none nearer."""
TOGETHER = 256
"""Number of neighbouring starts that a search skips by their longest piece."""
NONE = -1
"""State of the pattern if there is no pattern."""

Leaf = tuple[int, int, int, int]
"""The text so far: first and end of the ``starts`` where it occurs, its length in bytes, and the
state of the pattern."""


class Places(NamedTuple):
    """A document with the bounds and the pattern of one hole, for the kernels."""

    data: UInt8s
    fed: UInt8s
    chars: Int32s
    stop: Int32s
    starts: Int32s
    words: bool
    """The fields up to here are those of ``Document``."""
    last: Int32s
    """By position: the last end of a piece that begins there; -1 if there is none."""
    longest: Int32s
    """Bytes of the longest piece of each ``TOGETHER`` starts; below 0 if there is none."""
    rows: NDArray[np.int16]
    """[P, 256]: next states of the pattern; no rows if there is none."""
    far: NDArray[np.uint16]
    """[positions, P]: bytes to the next common end of piece and pattern, or ``DEAD_END``."""
    low: int
    """Minimum characters of a piece."""


def suffix_order(data: UInt8s) -> Int32s:
    """All positions of ``data``, sorted by the bytes from there on. O(n log n) for each doubling of
    the longest repeated text, over the positions of repeated texts only."""
    size, length = 8, len(data)
    padded = np.append(data, np.zeros(size, np.uint8))
    key = np.zeros(length, np.uint64)
    for at in range(size):
        key = key << np.uint64(8) | padded[at : at + length]
    order = np.argsort(key).astype(np.int32)
    places, rank = np.arange(length), np.zeros(length + 1, np.uint64)
    sorted_key = key[order]
    while True:
        begins = np.append(True, sorted_key[1:] != sorted_key[:-1])
        first = places[begins][np.cumsum(begins) - 1]
        rank[order[places]] = first + 1
        alike = ~(begins & np.append(begins[1:], True))
        places = places[alike]
        if not len(places):
            return order
        members = order[places]
        key = rank[members] << np.uint64(32) | rank[np.minimum(members + size, length)]
        sorting = np.argsort(key)
        order[places], sorted_key = members[sorting], key[sorting]
        size *= 2


@kernel()
def to_ends(
    data: UInt8s, fed: UInt8s, is_end: NDArray[np.bool_], rows: NDArray[np.int16], finals: UInt8s,
) -> tuple[NDArray[np.uint16], Int32s]:  # fmt: skip
    """``Places.far``, and by position the last end of a piece that begins there (-1: none)."""
    far = np.full((len(data), len(finals)), DEAD_END, np.uint16)
    last = np.full(len(data), -1, np.int32)
    ends, ends_after = np.full((2, len(finals)), -1, np.int32)
    for at in range(len(data) - 1, -1, -1):
        ends, ends_after = ends_after, ends
        for state in range(len(finals)):
            ends[state] = -1
            after = -1
            if data[at] != BREAK:
                after = state if fed[at] == BREAK else int(rows[state, fed[at]])
            if after >= 0:
                far[at, state] = min(DEAD_END, far[at + 1, after] + 1)
            if is_end[at] and finals[state]:
                far[at, state], ends[state] = 0, at
            if after >= 0 and far[at, state] < DEAD_END:
                ends[state] = max(ends[state], ends_after[after])
        last[at] = ends[0]
    return far, last


@kernel(forceinline=True)
def matched(rows: NDArray[np.int16], fed: UInt8s, match: int, at: int) -> int:
    """The pattern's state after the byte at ``at``; ``NONE`` without a pattern, -2 if it fails."""
    if match < 0 or fed[at] == BREAK:
        return match
    there = int(rows[match, fed[at]])
    return there if there >= 0 else -2


@kernel(forceinline=True)
def next_alive(places: Places, first: int, end: int, size: int) -> int:
    """The first of ``starts[first:end]`` whose piece may end ``size`` bytes on or later."""
    starts, last, longest = places.starts, places.last, places.longest
    while first < end:
        if first % TOGETHER == 0 and longest[first // TOGETHER] < size:
            first += TOGETHER
        elif starts[first] + size <= last[starts[first]]:
            return first
        else:
            first += 1
    return end


@kernel(forceinline=True)
def reach(data: UInt8s, starts: Int32s, first: int, end: int, size: int, byte: int) -> int:
    """The first of ``starts[first:end]`` where the next byte is ``byte`` or more."""
    if first >= end or data[starts[first] + size] >= byte:
        return first
    step = 1
    while first + step < end and data[starts[first + step] + size] < byte:
        first += step
        step *= 2
    end = min(first + step, end)
    while first + 1 < end:
        middle = (first + end) >> 1
        if data[starts[middle] + size] < byte:
            first = middle
        else:
            end = middle
    return end


@kernel()
def least_owed(places: Places, leaf: Leaf) -> tuple[int, int]:
    """Bytes from the text so far to an end, and the position they are counted from; -1 if dead.

    Only one of the occurrences that go on with the same byte is examined, so there may be
    a nearer end; whether the piece may end here is exact.
    """
    data, chars, starts, low = places.data, places.chars, places.starts, places.low
    first, end, size, match = leaf
    best, place = 1 << 30, -1
    while True:
        first = next_alive(places, first, end, size)
        if first >= end:
            break
        begin = starts[first]
        at = begin + size
        first += 1
        if match >= 0:
            left = int(places.far[at, match])
        else:
            left = places.stop[max(chars[at], chars[begin] + low)] - at
        if left < best:
            best, place = left, at
        if best == 0:
            break
        # Whether a word ends here depends on the character that follows, where one may end at all.
        too_short = chars[at] < chars[begin] + max(low, 1)
        if not places.words or data[at] < 0x80 or chars[at] == chars[at + 1] or too_short:
            first = reach(data, starts, first, end, size, data[at] + 1)
    return (best, place) if place >= 0 else (-1, -1)


@kernel(forceinline=True)
def after(places: Places, leaf: Leaf, byte: int) -> Leaf:
    """The leaf after ``byte``; all of its occurrences may be dead."""
    data, starts = places.data, places.starts
    first, end, size, match = leaf
    first = reach(data, starts, first, end, size, byte)
    stops = reach(data, starts, first, end, size, byte + 1) if byte != BREAK else first
    if first < stops:
        match = matched(places.rows, places.fed, match, starts[first] + size)
    return first, stops, size + 1, match


@kernel()
def locate(data: UInt8s, starts: Int32s, text: UInt8s) -> tuple[int, int]:
    """First and end of the ``starts`` where ``text`` occurs."""
    first, end = 0, len(starts)
    for size in range(len(text)):
        first = reach(data, starts, first, end, size, int(text[size]))
        end = reach(data, starts, first, end, size, int(text[size]) + 1)
    return first, end


@kernel()
def bytes_after(places: Places, leaf: Leaf) -> Int32s:
    """The bytes that may follow: [N, 5], each byte and the leaf after it."""
    data, starts = places.data, places.starts
    first, end, size, match = leaf
    found, count = np.empty((256, 5), np.int32), 0
    while first < end and data[starts[first] + size] != BREAK:
        byte = int(data[starts[first] + size])
        stops = reach(data, starts, first, end, size, byte + 1)
        if next_alive(places, first, stops, size + 1) < stops:
            found[count, 0], found[count, 1], found[count, 2] = byte, first, stops
            found[count, 3] = size + 1
            found[count, 4] = matched(places.rows, places.fed, match, starts[first] + size)
            count += 1
        first = stops
    return found[:count]


@kernel()
def follow(places: Places, leaf: Leaf, text: UInt8s, at: int) -> tuple[Leaf, int]:
    """Follow ``text`` from ``at`` as far as possible: the leaf there, and the index in ``text``."""
    while at < len(text):
        there = after(places, leaf, int(text[at]))
        if next_alive(places, there[0], there[1], there[2]) >= there[1]:
            break
        leaf = there
        at += 1
    return leaf, at


@kernel()
def walk(
    places: Places, leaf: Leaf, may_end: bool,
    trie_byte: UInt8s, depth: Int32s, skip: Int32s, token: Int32s, node: int, end: int,
    levels: int, found: Int32s, quotes: Int32s, enough: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Walk the nodes of a trie from ``node`` to ``end``, siblings that follow the text.

    ``may_end``: whether the piece may end before the first of them. ``found`` [N, 2] gets the
    tokens that stay within the piece, and the bytes then owed to its end; ``quotes`` the nodes of
    quotes that end the piece. ``levels``: bytes of the longest string of the trie. Stops after
    ``enough`` results. Returns the numbers of found, of quotes and of visited nodes.
    """
    stack = np.zeros((levels + 2, 4), np.int32)  # first and end in ``starts``, match, owed
    stack[0, 0], stack[0, 1], size, stack[0, 2] = leaf
    stack[0, 3] = 0 if may_end else 1
    base = depth[node] if node < end else 0
    count, ends, visited = 0, 0, 0
    while node < end and count + ends < enough:
        visited += 1
        level = depth[node] - base
        byte = int(trie_byte[node])
        if byte == 0x22 and stack[level, 3] == 0:
            quotes[ends] = node
            ends += 1
            node = skip[node]
            continue
        here = (int(stack[level, 0]), int(stack[level, 1]), size + level, int(stack[level, 2]))
        there = after(places, here, byte)
        stack[level, 0] = there[1]
        owed = -1
        if there[0] < there[1]:
            owed, _ = least_owed(places, there)
        if owed < 0:
            node = skip[node]
            continue
        if token[node] >= 0:
            found[count, 0], found[count, 1] = token[node], owed
            count += 1
        level += 1
        stack[level, 0], stack[level, 1] = there[0], there[1]
        stack[level, 2], stack[level, 3] = there[3], owed
        node += 1
    return count, ends, visited
