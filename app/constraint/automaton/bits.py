"""Packed masks: compiled loops over their bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.constraint.automaton.trie import Int32s
from app.core.kernels import kernel

UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]


@kernel()
def set_bits(mask: UInt32s, tokens: Int32s) -> None:
    """Set the bits of ``tokens`` in a packed mask."""
    for token in tokens:
        mask[token >> 5] |= np.uint32(1) << np.uint32(token & 31)


@kernel()
def finish(mask: UInt32s, duplicates: Int32s, eos: Int32s, ends: bool) -> None:
    """Copy the bits of tokens to their duplicates, and set or clear ``eos``.

    ``duplicates`` [D, 2]: (token, one with the same bytes).
    """
    for index in range(len(duplicates)):
        source, target = duplicates[index, 0], duplicates[index, 1]
        bit = np.uint32(1) << np.uint32(target & 31)
        if mask[source >> 5] >> np.uint32(source & 31) & np.uint32(1):
            mask[target >> 5] |= bit
        else:
            mask[target >> 5] &= ~bit
    for token in eos:
        bit = np.uint32(1) << np.uint32(token & 31)
        if ends:
            mask[token >> 5] |= bit
        else:
            mask[token >> 5] &= ~bit


@kernel()
def fingerprint(words: UInt64s, last: np.uint32) -> np.int64:
    """A hash of a mask's bits, without protection against chosen collisions; 0 only for no bits.

    ``words`` are all pairs of the mask's words; ``last`` is its last word, in a pair or not. Four
    lanes of multiplications, as in a hash table's hash (Appleby, MurmurHash3).
    """
    factor, none = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0)
    a, b, c, d, some = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4), none
    some |= np.uint64(last)
    d ^= np.uint64(last) * factor
    whole = len(words) // 4 * 4
    for index in range(0, whole, 4):
        first, second = np.uint64(words[index]), np.uint64(words[index + 1])
        third, fourth = np.uint64(words[index + 2]), np.uint64(words[index + 3])
        some |= first | second | third | fourth
        a = (a ^ first) * factor
        b = (b ^ second) * factor
        c = (c ^ third) * factor
        d = (d ^ fourth) * factor
        a ^= a >> np.uint64(29)
        b ^= b >> np.uint64(29)
        c ^= c >> np.uint64(29)
        d ^= d >> np.uint64(29)
    for index in range(whole, len(words)):
        some |= np.uint64(words[index])
        a = (a ^ np.uint64(words[index])) * factor
        a ^= a >> np.uint64(29)
    mixed = (a ^ (b * factor) ^ ((c ^ (d >> np.uint64(31))) * factor)) >> np.uint64(1)
    return np.int64(none if some == none else mixed | np.uint64(1))


@kernel()
def meets(row: Int32s, marked: NDArray[np.bool_]) -> bool:
    """Whether a byte that is ``marked`` (shape [256]) has a next state in ``row``."""
    met = False
    for byte in range(len(row)):
        met |= row[byte] != 0 and marked[byte]
    return met


@kernel()
def set_crossing(
    mask: UInt32s, found: Int32s, alive: NDArray[np.bool_], ending: Int32s, characters: Int32s,
    token: Int32s, low: int, high: int,
) -> None:  # fmt: skip
    """Set tokens whose ending is in ``found[:, 0]``, with ``low`` to ``high`` characters before it.

    ``alive`` has an entry for each ending, all false, and is left so.
    """
    for index in range(len(found)):
        alive[found[index, 0]] = True
    for index in range(len(token)):
        if alive[ending[index]] and low <= characters[index] <= high:
            mask[token[index] >> 5] |= np.uint32(1) << np.uint32(token[index] & 31)
    for index in range(len(found)):
        alive[found[index, 0]] = False


@kernel()
def different(found: Int32s, seen: NDArray[np.bool_], out: Int32s) -> int:
    """Write the different states of ``found[:, 1]`` to ``out``; returns their number.

    ``seen`` has an entry for each state, all false, and is left so.
    """
    count = 0
    last = np.int32(-1)
    for index in range(len(found)):
        state = found[index, 1]
        if state != last and not seen[state]:
            seen[state] = True
            out[count] = state
            count += 1
        last = state
    for index in range(count):
        seen[out[index]] = False
    return count
