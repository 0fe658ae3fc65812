"""The suffix automaton of a text, in flat arrays, built by compiled loops.

Its states are the classes of pieces that end at the same positions (Blumer et al., "The smallest
automaton recognizing the subwords of a text", 1985): at most twice as many as bytes. It is built
over raw UTF-8 and not over escaped JSON, where a piece could begin inside an escape. UTF-8 is
self-synchronising, so whether a state is between two characters is a property of the state.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import kernel

Int32s = NDArray[np.int32]
UInt8s = NDArray[np.uint8]

MARK = 0xFF
"""Stands before each word where pieces begin and end with words. No byte of UTF-8."""
SEPARATOR = 0xFE
"""Stands between two texts: no piece goes across."""
ROOT = 0

FAR = 1 << 30
"""Bytes and characters to the next end where there is none."""
DEAD_END = 65_535
"""The same beside a pattern; an end that is as far counts as none."""


@kernel()
def build(
    text: UInt8s,
) -> tuple[Int32s, Int32s, Int32s, UInt8s, Int32s, Int32s, Int32s, int]:
    """States and edges: (length, link, first, byte, target, next, prefix, number of states).

    ``length``: of the longest piece of a state; ``link``: the state of its longest suffix that
    ends elsewhere, too. Edges of a state are a list from ``first`` along ``next``. ``prefix[i]``
    is the state of ``text[:i]``.
    """
    size = len(text)
    length = np.zeros(2 * size + 2, np.int32)
    link = np.full(2 * size + 2, -1, np.int32)
    first = np.full(2 * size + 2, -1, np.int32)
    byte = np.zeros(3 * size + 8, np.uint8)
    target = np.zeros(3 * size + 8, np.int32)
    following = np.zeros(3 * size + 8, np.int32)
    prefix = np.zeros(size + 1, np.int32)
    states, edges, last = 1, 0, 0
    for i in range(size):
        letter = text[i]
        new = states
        states += 1
        length[new] = length[last] + 1
        state, other = last, -1
        while state != -1:
            edge = first[state]
            while edge != -1 and byte[edge] != letter:
                edge = following[edge]
            if edge != -1:
                other = target[edge]
                break
            byte[edges], target[edges], following[edges] = letter, new, first[state]
            first[state] = edges
            edges += 1
            state = link[state]
        if state == -1:
            link[new] = ROOT
        elif length[state] + 1 == length[other]:
            link[new] = other
        else:
            clone = states
            states += 1
            length[clone] = length[state] + 1
            link[clone] = link[other]
            edge = first[other]
            while edge != -1:
                byte[edges], target[edges] = byte[edge], target[edge]
                following[edges] = first[clone]
                first[clone] = edges
                edges += 1
                edge = following[edge]
            link[other] = clone
            link[new] = clone
            while state != -1:
                edge = first[state]
                while edge != -1 and byte[edge] != letter:
                    edge = following[edge]
                if edge == -1 or target[edge] != other:
                    break
                target[edge] = clone
                state = link[state]
        last = new
        prefix[i + 1] = new
    return length, link, first, byte, target, following, prefix, states


@kernel()
def pack(
    first: Int32s, byte: UInt8s, target: Int32s, following: Int32s, states: int, words: bool
) -> tuple[Int32s, UInt8s, Int32s]:
    """Edges of each state side by side, ascending by byte: (start [states + 1], byte, target).

    Without those that leave a text, or begin a piece within a character (or within a word).
    """
    start = np.zeros(states + 1, np.int32)
    packed = np.empty(len(byte), np.uint8)
    targets = np.empty(len(byte), np.int32)
    count = 0
    for state in range(states):
        begin = count
        start[state] = begin
        edge = first[state]
        while edge != -1:
            letter = byte[edge]
            left_out = letter == SEPARATOR
            if state == ROOT:
                left_out = left_out or (letter & 0xC0) == 0x80 or (words and letter != MARK)
            if not left_out:
                at = count
                while at > begin and packed[at - 1] > letter:
                    packed[at], targets[at] = packed[at - 1], targets[at - 1]
                    at -= 1
                packed[at], targets[at] = letter, target[edge]
                count += 1
            edge = following[edge]
    start[states] = count
    return start, packed[:count].copy(), targets[:count].copy()


@kernel()
def by_length(length: Int32s, states: int) -> Int32s:
    """The states from the longest to the shortest: an edge leads to a longer one, a link to a
    shorter one."""
    longest = 0
    for state in range(states):
        longest = max(longest, length[state])
    counts = np.zeros(longest + 2, np.int32)
    for state in range(states):
        counts[longest - length[state] + 1] += 1
    for size in range(longest + 1):
        counts[size + 1] += counts[size]
    order = np.empty(states, np.int32)
    for state in range(states):
        size = longest - length[state]
        order[counts[size]] = state
        counts[size] += 1
    return order


@kernel()
def occurrences(
    order: Int32s, link: Int32s, prefix: Int32s, behind: Int32s
) -> tuple[Int32s, Int32s]:
    """Of each state the first position at which it ends, and that with most ``behind`` it."""
    none = len(prefix)
    earliest = np.full(len(order), none, np.int32)
    roomiest = np.full(len(order), none, np.int32)
    for position in range(len(prefix)):
        state = prefix[position]
        earliest[state] = position
        roomiest[state] = position
    for state in order:
        above = link[state]
        if above >= 0 and state != ROOT:
            earliest[above] = min(earliest[above], earliest[state])
            mine, known = roomiest[state], roomiest[above]
            if (
                known == none
                or behind[mine] > behind[known]
                or (behind[mine] == behind[known] and mine < known)
            ):
                roomiest[above] = mine
    return earliest, roomiest


@kernel()
def accepting(
    link: Int32s, prefix: Int32s, good: NDArray[np.bool_], states: int
) -> NDArray[np.bool_]:
    """States one of whose occurrences ends at a ``good`` position."""
    result = np.zeros(states, np.bool_)
    for position in range(len(prefix)):
        if good[position]:
            state = prefix[position]
            while state != -1 and not result[state]:
                result[state] = True
                state = link[state]
    return result


@kernel()
def to_the_end(
    order: Int32s,
    start: Int32s,
    byte: UInt8s,
    target: Int32s,
    accept: NDArray[np.bool_],
    cost: Int32s,
) -> tuple[Int32s, Int32s]:
    """From each state to an accepting one: characters at least, and then bytes of JSON."""
    near = np.full(len(order), FAR, np.int32)
    far = np.full(len(order), FAR, np.int32)
    for state in order:
        if accept[state]:
            near[state], far[state] = 0, 0
            continue
        for edge in range(start[state], start[state + 1]):
            letter, after = byte[edge], target[edge]
            if near[after] == FAR:
                continue
            begins = 0 if letter == MARK or (letter & 0xC0) == 0x80 else 1
            characters = near[after] + begins
            size = far[after] + cost[letter]
            if characters < near[state] or (characters == near[state] and size < far[state]):
                near[state], far[state] = characters, size
    return near, far


@kernel()
def without_dead_ends(
    start: Int32s, byte: UInt8s, target: Int32s, near: Int32s
) -> tuple[UInt8s, Int32s]:
    """Without edges to states from which no end is reached; ``start`` is changed."""
    count, begin = 0, 0
    for state in range(len(near)):
        end = start[state + 1]
        start[state] = count
        for edge in range(begin, end):
            if near[target[edge]] != FAR:
                byte[count], target[count] = byte[edge], target[edge]
                count += 1
        begin = end
    start[len(near)] = count
    return byte[:count].copy(), target[:count].copy()


@kernel()
def packed_nodes(
    start: Int32s,
    near: Int32s,
    far: Int32s,
    roomiest: Int32s,
    behind: Int32s,
    data: UInt8s,
) -> Int32s:
    """``Places.nodes``. Without ``near`` an end is between any two characters."""
    nodes = np.zeros((len(start), 5), np.int32)
    for state in range(len(start) - 1):
        at = roomiest[state]
        nodes[state, 0], nodes[state, 3], nodes[state, 4] = start[state], behind[at], at
        if len(near):
            nodes[state, 1], nodes[state, 2] = near[state], far[state]
            continue
        left = 0
        while at + left < len(data) and (data[at + left] & 0xC0) == 0x80:
            left += 1
        nodes[state, 2] = left
    nodes[len(start) - 1, 0] = start[len(start) - 1]
    return nodes


@kernel()
def matching(
    order: Int32s,
    nodes: Int32s,
    edges: NDArray[np.uint32],
    cost: Int32s,
    pattern: NDArray[np.int16],
    finals: UInt8s,
) -> NDArray[np.uint16]:
    """[states, P]: bytes of JSON to the next common end of piece and pattern, or ``DEAD_END``."""
    far = np.full((len(order), len(finals)), DEAD_END, np.uint16)
    for state in order:
        for here in range(len(finals)):
            if nodes[state, 2] == 0 and finals[here]:
                far[state, here] = 0
                continue
            best = DEAD_END
            for edge in range(nodes[state, 0], nodes[state + 1, 0]):
                letter = edges[edge] >> 24
                after = here if letter == MARK else pattern[here, letter]
                if after >= 0:
                    best = min(best, far[edges[edge] & 0xFFFFFF, after] + cost[letter])
            far[state, here] = best
    return far
