"""Sets of Unicode code points, and their spellings in UTF-8."""

from __future__ import annotations

import re
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from functools import cache

from app.constraint.language.expressions import Expression, ExpressionPool, byte_range

Ranges = tuple[tuple[int, int], ...]
"""Sorted, disjoint, not adjacent ranges, both ends included."""

LAST = sys.maxunicode
CHARACTERS: Ranges = ((0, 0xD7FF), (0xE000, LAST))
"""All code points except surrogates: the characters of text."""


def ranges(parts: Iterable[tuple[int, int]]) -> Ranges:
    """The union of ``parts``, which may overlap and come in any order."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(parts):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def single(*members: int) -> Ranges:
    return ranges((member, member) for member in members)


def negate(members: Ranges) -> Ranges:
    result, start = [], 0
    for first, last in members:
        if start < first:
            result.append((start, first - 1))
        start = last + 1
    if start <= LAST:
        result.append((start, LAST))
    return tuple(result)


def union(*sets: Ranges) -> Ranges:
    return ranges(part for members in sets for part in members)


def common(left: Ranges, right: Ranges) -> Ranges:
    result, one, other = [], 0, 0
    while one < len(left) and other < len(right):
        first = max(left[one][0], right[other][0])
        last = min(left[one][1], right[other][1])
        if first <= last:
            result.append((first, last))
        if left[one][1] == last:
            one += 1
        else:
            other += 1
    return tuple(result)


def clip(members: Ranges, first: int, last: int) -> Ranges:
    """The members from ``first`` to ``last``."""
    result = []
    for low, high in members[bisect_left(members, first, key=lambda part: part[1]) :]:
        if low > last:
            break
        result.append((max(low, first), min(high, last)))
    return tuple(result)


ASSIGNED_PLANES = 0x40000
"""Code point above which Unicode assigns only tags, variation selectors and private use."""


@cache
def assigned_planes() -> str:
    """The code points below ``ASSIGNED_PLANES`` in order, surrogates too; 10 ms once."""
    codes = array("I", range(ASSIGNED_PLANES))
    return codes.tobytes().decode(f"utf-32-{sys.byteorder[0]}e", "surrogatepass")


@cache
def runs(character_class: str) -> Ranges:
    r"""The members of a class such as ``\w`` of Python's ``re``: digits, word characters, spaces.

    Some milliseconds once per class, as the scan is compiled.
    """
    found = re.finditer(f"(?:{character_class})+", assigned_planes())
    return ranges((match.start(), match.end() - 1) for match in found)


def utf8(pool: ExpressionPool, members: Ranges) -> Expression:
    """The well-formed UTF-8 spellings of ``members`` (RFC 3629); surrogates have none."""
    if members == CHARACTERS:
        return any_character(pool)
    return _utf8(pool, common(members, CHARACTERS))


def any_character(pool: ExpressionPool) -> Expression:
    """Any character in UTF-8; built once per pool."""
    return pool.once("character of UTF-8", lambda: _utf8(pool, CHARACTERS))


def _utf8(pool: ExpressionPool, members: Ranges) -> Expression:
    options = [pool.byte(byte_range(first, last)) for first, last in clip(members, 0, 0x7F)]
    for mark, first, last, tails in (
        (0xC0, 0x80, 0x7FF, 1),
        (0xE0, 0x800, 0xFFFF, 2),
        (0xF0, 0x10000, LAST, 3),
    ):
        part = clip(members, first, last)
        if part:
            options.append(_units(pool, part, mark, 0, tails))
    return pool.union(options)


def _units(pool: ExpressionPool, members: Ranges, mark: int, base: int, tails: int) -> Expression:
    """The encodings of ``members``: a unit (``mark`` and its own bits), then ``tails`` more.

    ``base`` is the code point that has no bits set in these units.
    """
    if tails == 0:
        return pool.byte(
            sum(byte_range(mark + first - base, mark + last - base) for first, last in members)
        )
    size = 64**tails
    whole, parts = 0, dict[int, list[tuple[int, int]]]()
    for first, last in members:
        unit, last_unit = (first - base) // size, (last - base) // size
        while unit <= last_unit:
            start = base + unit * size
            clipped = (max(first, start), min(last, start + size - 1))
            if clipped == (start, start + size - 1):
                full_to = (last + 1 - base) // size
                whole |= byte_range(mark + unit, mark + full_to - 1)
                unit = full_to
            else:
                parts.setdefault(unit, []).append(clipped)
                unit += 1
    by_rest = {pool.repeat(pool.byte(byte_range(0x80, 0xBF)), tails, tails): whole}
    for unit, part in parts.items():
        rest = _units(pool, tuple(part), 0x80, base + unit * size, tails - 1)
        by_rest[rest] = by_rest.get(rest, 0) | 1 << (mark + unit)
    return pool.union(pool.concatenate(pool.byte(units), rest) for rest, units in by_rest.items())
