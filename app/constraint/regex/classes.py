r"""Character classes that regex dialects read differently: ``\d``, ``\w``, ``\s`` and the dot.

ECMA-262 means ASCII digits and word characters; others (Python's ``re``) mean Unicode ones, and the
lists of white space differ as well. A class therefore has two sets: what every dialect matches and
what any dialect matches. The complement swaps them, so what is generated is matched by all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from app.constraint.codepoints import Ranges, negate, ranges, single, union, where


@dataclass(frozen=True, slots=True)
class CharacterClass:
    surely: Ranges
    possibly: Ranges

    def __or__(self, other: CharacterClass) -> CharacterClass:
        return CharacterClass(
            union(self.surely, other.surely), union(self.possibly, other.possibly)
        )

    def __invert__(self) -> CharacterClass:
        return CharacterClass(negate(self.possibly), negate(self.surely))


def exactly(members: Ranges) -> CharacterClass:
    return CharacterClass(members, members)


_ASCII_DIGITS = ranges([(0x30, 0x39)])
_ASCII_WORD = union(_ASCII_DIGITS, ranges([(0x41, 0x5A), (0x61, 0x7A)]), single(0x5F))
_LINE_ENDS = single(0x0A, 0x0D, 0x2028, 0x2029)
_SPACES = union(
    ranges([(0x09, 0x0D), (0x2000, 0x200A)]),
    single(0x20, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
)

DOT = CharacterClass(negate(_LINE_ENDS), negate(single(0x0A)))


@cache
def shorthand(letter: str) -> CharacterClass:
    r"""The class of ``\d``, ``\D``, ``\w``, ``\W``, ``\s`` or ``\S``."""
    if letter.isupper():
        return ~shorthand(letter.lower())
    if letter == "d":
        return CharacterClass(_ASCII_DIGITS, where(str.isdecimal))
    if letter == "w":
        return CharacterClass(_ASCII_WORD, union(_ASCII_WORD, where(str.isalnum)))
    return CharacterClass(_SPACES, union(_SPACES, where(str.isspace), single(0xFEFF)))
