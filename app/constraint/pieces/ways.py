"""The compiled ways along a piece: where text leads, how it goes on, walks over tries.

As in ``steps``, kernels take the fields of ``Places`` one by one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.constraint.pieces.steps import (
    COST,
    SPELLED,
    Leaf,
    after,
    escaping,
    fits,
    is_end,
    least_owed,
    matched,
    owed,
    step,
)
from app.constraint.pieces.suffixes import FAR, MARK, Int32s, UInt8s
from app.core.kernels import kernel


@kernel()
def locate(nodes: Int32s, edges: NDArray[np.uint32], root: int, raw: UInt8s) -> int:
    """The state of the piece ``raw``, -1 where it is none."""
    place = root
    for byte in raw:
        place = after(nodes, edges, root, place, byte)
        if place < 0:
            break
    return place


@kernel()
def follow(
    nodes: Int32s,
    edges: NDArray[np.uint32],
    text: Int32s,
    stop: Int32s,
    rows: NDArray[np.int16],
    far: NDArray[np.uint16],
    root: int,
    leaf: Leaf,
    written: UInt8s,
    at: int,
) -> tuple[Leaf, int]:
    """As far along ``written`` as the piece goes: the last leaf, and where in the text it is."""
    while at < len(written):
        there = step(nodes, edges, text, stop, rows, far, root, leaf, written[at])
        if there[0] < 0:
            break
        leaf = there
        at += 1
    return leaf, at


@kernel()
def row(
    nodes: Int32s,
    edges: NDArray[np.uint32],
    text: Int32s,
    stop: Int32s,
    rows: NDArray[np.int16],
    far: NDArray[np.uint16],
    root: int,
    leaf: Leaf,
    leaves: Int32s,
) -> None:
    """The leaf after each byte, in ``leaves`` [256, 5]."""
    for byte in range(256):
        there = step(nodes, edges, text, stop, rows, far, root, leaf, byte)
        leaves[byte, 0], leaves[byte, 1], leaves[byte, 2] = there[0], there[1], there[2]
        leaves[byte, 3], leaves[byte, 4] = there[3], there[4]


@kernel()
def nearest(
    nodes: Int32s,
    edges: NDArray[np.uint32],
    text: Int32s,
    stop: Int32s,
    rows: NDArray[np.int16],
    far: NDArray[np.uint16],
    root: int,
    leaf: Leaf,
) -> int:
    """The raw byte, behind no escape, after which least is owed: the smallest such; -1 for none."""
    place, _, low, high, match = leaf
    best, best_byte = FAR, -1
    for first in range(nodes[place, 0], nodes[place + 1, 0]):
        begin, end = first, first + 1
        if edges[first] >> 24 == MARK:
            marked = edges[first] & 0xFFFFFF
            begin, end = nodes[marked, 0], nodes[marked + 1, 0]
        for second in range(begin, end):
            byte = int(np.int64(edges[second] >> 24))  # signed, as -1 is
            there = int(np.int64(edges[second] & 0xFFFFFF))
            after_low, after_high = low, high
            if (byte & 0xC0) != 0x80 and match < 0:
                after_low, after_high = max(low - 1, 0), high - 1
            state = matched(rows, match, byte)
            if byte >= 0xFE or after_high < 0 or state == -2:
                continue
            if not fits(nodes, far, root, there, after_low, after_high, state):
                continue
            size = COST[byte] + owed(nodes, text, stop, far, root, there, after_low, state)
            if size < best or (size == best and byte < best_byte):
                best, best_byte = size, byte
    return best_byte


@kernel()
def spell(
    nodes: Int32s,
    edges: NDArray[np.uint32],
    text: Int32s,
    stop: Int32s,
    rows: NDArray[np.int16],
    far: NDArray[np.uint16],
    root: int,
    leaf: Leaf,
    written: UInt8s,
) -> int:
    """Write the JSON that leads to the end that is owed; ``written`` has room. How much it is."""
    size = 0
    while not is_end(nodes, far, root, leaf):
        if leaf[1] == 0:
            near = nearest(nodes, edges, text, stop, rows, far, root, leaf)
            if near < 0:
                break
            written[size] = near if SPELLED[near] == 0 else 0x5C
        else:
            best, best_byte = FAR, 0
            for tried in range(0x22, 0x7F):
                there = escaping(nodes, edges, text, stop, rows, far, root, leaf, tried)
                if there[0] >= 0:
                    left = least_owed(nodes, edges, text, stop, rows, far, root, there)
                    if left < best:
                        best, best_byte = left, tried
            written[size] = best_byte
        leaf = step(nodes, edges, text, stop, rows, far, root, leaf, int(written[size]))
        size += 1
        if leaf[0] < 0 or size >= len(written):
            break
    return size


@kernel()
def walk(
    nodes: Int32s,
    edges: NDArray[np.uint32],
    text: Int32s,
    stop: Int32s,
    rows: NDArray[np.int16],
    far: NDArray[np.uint16],
    root: int,
    leaf: Leaf,
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
        byte = int(trie_byte[node])
        here = (
            int(stack[level, 0]),
            int(stack[level, 1]),
            int(stack[level, 2]),
            int(stack[level, 3]),
            int(stack[level, 4]),
        )
        if byte == 0x22 and here[1] == 0:
            if is_end(nodes, far, root, here):
                quotes[ends] = node
                ends += 1
            node = skip[node]
            continue
        there = step(nodes, edges, text, stop, rows, far, root, here, byte)
        if there[0] < 0:
            node = skip[node]
            continue
        level += 1
        stack[level, 0], stack[level, 1], stack[level, 2] = there[0], there[1], there[2]
        stack[level, 3], stack[level, 4] = there[3], there[4]
        if token[node] >= 0:
            found[count, 0] = token[node]
            found[count, 1] = least_owed(nodes, edges, text, stop, rows, far, root, there)
            count += 1
        node += 1
    return count, ends, visited
