r"""Character classes that regex dialects read differently: ``\d``, ``\w``, ``\s`` and the dot.

ECMA-262 has ASCII digits and word characters, others (Python's ``re``) Unicode ones; the lists of
white space differ as well. A class therefore has two sets: the characters that every dialect
matches, and those that any dialect matches. The complement swaps them, so generated texts match in
all dialects.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from app.constraint.language.codepoints import (
    ASSIGNED_PLANES,
    CHARACTERS,
    LAST,
    Ranges,
    assigned_planes,
    clip,
    common,
    negate,
    ranges,
    runs,
    single,
    union,
)


@dataclass(frozen=True, slots=True)
class CharacterClass:
    surely: Ranges
    possibly: Ranges

    def __or__(self, other: CharacterClass) -> CharacterClass:
        if not self.possibly or self == other:
            return other
        return CharacterClass(
            union(self.surely, other.surely), union(self.possibly, other.possibly)
        )

    def __invert__(self) -> CharacterClass:
        return CharacterClass(negate(self.possibly), negate(self.surely))


def exactly(members: Ranges) -> CharacterClass:
    return CharacterClass(members, members)


_ASCII_DIGITS = ranges([(0x30, 0x39)])
_ASCII_WORD = union(_ASCII_DIGITS, ranges([(0x41, 0x5A), (0x61, 0x7A)]), single(0x5F))
_EVERY_LINE_END = single(0x0A, 0x0D, 0x2028, 0x2029)
_SPACES = union(
    ranges([(0x09, 0x0D), (0x2000, 0x200A)]),
    single(0x20, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
)

LINE_ENDS = CharacterClass(single(0x0A), _EVERY_LINE_END)
DOT = ~LINE_ENDS
ANYTHING = exactly(CHARACTERS)


@cache
def shorthand(letter: str) -> CharacterClass:
    r"""The class of ``\d``, ``\D``, ``\w``, ``\W``, ``\s`` or ``\S``."""
    if letter.isupper():
        return ~shorthand(letter.lower())
    if letter == "d":
        return CharacterClass(_ASCII_DIGITS, runs(r"\d"))
    if letter == "w":
        return CharacterClass(_ASCII_WORD, runs(r"\w"))
    return CharacterClass(_SPACES, union(_SPACES, runs(r"\s"), single(0xFEFF)))


# fmt: off
_CATEGORY_NAMES = {
    "Letter": "L", "Cased_Letter": "LC", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt", "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M",
    "Combining_Mark": "M", "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc", "Enclosing_Mark": "Me",
    "Number": "N", "Decimal_Number": "Nd", "digit": "Nd", "Letter_Number": "Nl",
    "Other_Number": "No", "Punctuation": "P", "punct": "P", "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps", "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi", "Final_Punctuation": "Pf", "Other_Punctuation": "Po",
    "Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk",
    "Other_Symbol": "So", "Separator": "Z", "Space_Separator": "Zs", "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp", "Other": "C", "Control": "Cc", "cntrl": "Cc", "Format": "Cf",
    "Private_Use": "Co",
}
# fmt: on
"""Short names of general categories by their long ones."""
_NAMES_OF_SCRIPTS = {
    "LATIN": ("Latin", "Latn"),
    "GREEK": ("Greek", "Grek"),
    "CYRILLIC": ("Cyrillic", "Cyrl"),
    "CJK UNIFIED IDEOGRAPH": ("Han", "Hani"),
    "HIRAGANA LETTER": ("Hiragana", "Hira"),
    "KATAKANA LETTER": ("Katakana", "Kana"),
    "HANGUL": ("Hangul", "Hang"),
    "ARABIC LETTER": ("Arabic", "Arab"),
    "HEBREW LETTER": ("Hebrew", "Hebr"),
    "THAI CHARACTER": ("Thai",),
    "DEVANAGARI LETTER": ("Devanagari", "Deva"),
}
"""Names of a script in patterns, by the prefix of the names of its letters."""
_SCRIPTS = {name: prefix for prefix, names in _NAMES_OF_SCRIPTS.items() for name in names}


@cache
def unicode_property(name: str) -> CharacterClass | None:
    r"""The class of ``\p{name}``; None if it is unknown.

    General categories (ECMA-262, table 68), and scripts that the names of letters identify.
    Unassigned code points may belong to any class in another version of Unicode.
    """
    key, _, value = name.rpartition("=")
    if key in ("Script", "sc", "Script_Extensions", "scx"):
        prefix = _SCRIPTS.get(value)
        if prefix is None:
            return None
        scripts = _letters_by_script()
        others = union(*(members for key, members in scripts.items() if key != prefix))
        return CharacterClass(scripts[prefix], negate(others))
    if key not in ("", "General_Category", "gc"):
        return None
    if not key and value == "Any":
        return ANYTHING
    if not key and value == "ASCII":
        return exactly(((0, 0x7F),))
    short = _CATEGORY_NAMES.get(value, value)
    if short == "LC":
        members = union(_category("Lu"), _category("Ll"), _category("Lt"))
    elif short in _CATEGORY_NAMES.values():
        members = _category(short)
    else:
        return None
    return CharacterClass(common(members, CHARACTERS), union(members, _category("Cn")))


_TAGS = union(single(0xE0001), ranges([(0xE0020, 0xE007F)]))
_SELECTORS = ranges([(0xE0100, 0xE01EF)])
_PRIVATE = ranges([(0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)])


@cache
def _categories() -> str:
    """Two letters for each code point below ``ASSIGNED_PLANES``."""
    return "".join(map(unicodedata.category, assigned_planes()))


@cache
def _category(name: str) -> Ranges:
    codes = name if len(name) == 2 else name + "[a-z]"
    found = re.finditer(f"(?:{codes})+", _categories())  # upper and lower case keep it in step
    members = ranges((match.start() // 2, match.end() // 2 - 1) for match in found)
    higher = {"Cf": _TAGS, "Mn": _SELECTORS, "M": _SELECTORS, "Co": _PRIVATE}
    higher["Cn"] = clip(negate(union(_TAGS, _SELECTORS, _PRIVATE)), ASSIGNED_PLANES, LAST)
    higher["C"] = union(_TAGS, _PRIVATE, higher["Cn"])
    return union(members, higher.get(name, ()))


@cache
def _letters_by_script() -> dict[str, Ranges]:
    prefixes = tuple(set(_SCRIPTS.values()))
    found: dict[str, list[tuple[int, int]]] = {prefix: [] for prefix in prefixes}
    for first, last in _category("L"):
        for code in range(first, last + 1):
            name = unicodedata.name(chr(code), "")
            if name.startswith(prefixes):
                prefix = next(prefix for prefix in prefixes if name.startswith(prefix))
                found[prefix].append((code, code))
    return {prefix: ranges(parts) for prefix, parts in found.items()}


@lru_cache(maxsize=1024)
def ignoring_case(members: CharacterClass) -> CharacterClass:
    """``members`` with their other cases: plain pairs surely, other case variants possibly."""
    surely = [other for code, others in _cased(members.surely) for other, plain in others if plain]
    possibly = [other for code, others in _cased(members.possibly) for other, _ in others]
    return CharacterClass(
        union(members.surely, single(*surely)), union(members.possibly, single(*possibly))
    )


def _cased(members: Ranges) -> Iterator[tuple[int, list[tuple[int, bool]]]]:
    """The members with other cases, and these."""
    relatives = _case_relatives()
    codes = list(relatives)
    for first, last in members:
        for code in codes[bisect_left(codes, first) : bisect_right(codes, last)]:
            yield code, relatives[code]


_CASED = 0x20000
"""No letter from here on has cases."""


@cache
def _case_relatives() -> dict[int, list[tuple[int, bool]]]:
    """Case variants by ascending code point, each with a flag for a plain pair."""
    families: dict[str, set[str]] = {}
    characters = assigned_planes()[:_CASED]
    folds = zip(characters, map(str.casefold, characters), map(str.upper, characters), strict=True)
    for character, folded, upper in folds:
        if character != folded or character != upper:
            families.setdefault(folded, {folded}).update((character, upper, character.lower()))
    found: dict[int, list[tuple[int, bool]]] = {}
    for family in families.values():
        members = [member for member in family if len(member) == 1]
        pair = len(family) == 2
        for one in members:
            found[ord(one)] = [
                (ord(other), pair or (one.isascii() and other.isascii()))
                for other in members
                if other != one
            ]
    for letter in "iI":  # in some dialects the Turkish letters are cases of i
        found[ord(letter)] += [(0x130, False), (0x131, False)]
    return dict(sorted(found.items()))
