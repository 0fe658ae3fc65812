r"""Reads ECMA-262 patterns (with the usual extensions of Annex B) into the tree of ``syntax``.

Constructs on which dialects of regular expressions disagree, or that are not regular, raise
``PatternNotSupported``; errors in all dialects raise ``PatternError``. Names of groups are ignored,
as there are no references to groups; lazy quantifiers match the same language as greedy ones.
Beyond ECMA-262, ``\A``, ``\Z`` and flags at the start are those of Python's ``re``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

from app.constraint.language.codepoints import LAST, common, single
from app.constraint.limits import Limits
from app.constraint.regex.classes import (
    ANYTHING,
    DOT,
    LINE_ENDS,
    CharacterClass,
    exactly,
    ignoring_case,
    shorthand,
    unicode_property,
)
from app.constraint.regex.lookaround import (
    MOST_ROUNDS,
    MOST_SETS,
    atoms,
    first_untranslatable,
    is_one_behind,
    sets_behind,
)
from app.constraint.regex.syntax import (
    QUANTIFIERS,
    Alternatives,
    Anchor,
    Characters,
    Look,
    Node,
    PatternError,
    PatternNotSupported,
    Repeated,
    Sequence,
    counts,
)
from app.core.errors import ConstraintTooComplex, InvalidSchema, UnsupportedSchema

_COUNTS = re.compile(r"\{([0-9]+)(?:(,)([0-9]+)?)?\}")
_COUNT_FROM_NOTHING = re.compile(r"\{,[0-9]+\}")
_GROUP_NAME = re.compile(r"\?P?<[A-Za-z_$][A-Za-z0-9_$]*>")
_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_FLAGS_OF_GROUP = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]+))?:")
_SUPPORTED_FLAGS = frozenset("ims")
_NESTED_CLASS = re.compile(r"\[([:.=])\^?\w+\1\]|(?:&&|--)\[")
_PROPERTY = re.compile(r"\{([A-Za-z_]+(?:=[A-Za-z_]+)?)\}")
_CONTROL_LETTERS = {"f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}
_FEW_RANGES = 50
_MOST_CLASSES = 24
"""Maximum different classes of many ranges, such as ``\\W`` and ``\\p{L}``; some 10 ms each."""
_MOST_LOOKS = 200
_MOST_AHEAD = 40
"""Maximum look-aheads, as each part of an intersection multiplies the states."""
_MOST_WRITTEN_OUT = 4_000
_MOST_ATOMS = 12
"""Maximum atoms (see ``lookaround``) of one pattern."""
_LOOKS = {"?=": (False, False), "?!": (False, True), "?<=": (True, False), "?<!": (True, True)}
"""Kinds of look-around: (behind, negative)."""


@dataclass
class _Group:
    """A group being read: the alternatives so far, and the parts of the current one."""

    start: int
    flags: frozenset[str] = frozenset()
    """Flags that apply inside."""
    look: tuple[bool, bool] | None = None
    options: list[Node] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)

    def node(self) -> Node:
        last = self.parts[0] if len(self.parts) == 1 else Sequence(tuple(self.parts))
        return Alternatives((*self.options, last)) if self.options else last


def parse_keyword(pattern: str, limits: Limits, keyword: str, pointer: str) -> Node:
    """``parse``, for a pattern that stands at ``pointer``.

    Raises ``InvalidSchema`` or ``UnsupportedSchema`` for ``keyword``, with the position.
    """
    try:
        return parse(pattern, limits)
    except PatternError as error:
        raise InvalidSchema(str(error), pointer=pointer).at(position=error.position) from error
    except PatternNotSupported as error:
        raise UnsupportedSchema(keyword, pointer, str(error)).at(position=error.position) from error


def parse(pattern: str, limits: Limits) -> Node:
    """The tree of ``pattern``. Time is linear in its length."""
    if len(pattern) > limits.pattern_characters:
        raise ConstraintTooComplex(f"a pattern of more than {limits.pattern_characters} characters")
    return _Parser(pattern, limits).parse()


class _Parser:
    def __init__(self, text: str, limits: Limits) -> None:
        self.text = text
        self.limits = limits
        self.at = 0
        self.groups = [_Group(0)]
        self.positions: dict[Node, int] = {}
        """Positions of repetitions, for errors."""
        self.classes: set[CharacterClass] = set()
        """Character classes of many ranges."""
        self.looks = 0
        self.written_out = 0
        """Characters of the pattern times the rounds of look-around that are written out."""

    def parse(self) -> Node:
        flags = _FLAGS.match(self.text)  # of Python's ``re``, for the whole pattern
        if flags is not None:
            self.groups[0].flags = self._supported(flags[1], 0)
            self.at = flags.end()
        while self.at < len(self.text):
            self._term()
        if len(self.groups) > 1:
            raise self._error("a group is not closed", self.groups[-1].start)
        tree = self.groups[0].node()
        if tree.looks:
            if len(sets_behind(tree)) > MOST_SETS or len(atoms(tree)) > _MOST_ATOMS:
                reason = f"look-behind at more than {MOST_SETS} different sets of characters"
                raise self._refusal(reason, 0)
            found = first_untranslatable(tree)
            if found is not None:
                reason = (
                    f"look-around or anchors inside more than {MOST_ROUNDS} repetitions, except "
                    "as in ((?!x).)*$"
                )
                raise self._refusal(reason, self.positions.get(found, 0))
        return tree

    def _error(self, message: str, position: int) -> PatternError:
        return PatternError(message, self.text, position)

    def _refusal(self, reason: str, position: int) -> PatternNotSupported:
        return PatternNotSupported(reason, self.text, position)

    def _supported(self, flags: str, start: int) -> frozenset[str]:
        if not _SUPPORTED_FLAGS.issuperset(flags):
            raise self._refusal("only the flags i, m and s are supported", start)
        return frozenset(flags)

    def _peek(self, size: int = 1) -> str:
        return self.text[self.at : self.at + size]

    def _take(self) -> str:
        character = self.text[self.at : self.at + 1]
        self.at += 1
        return character

    def _term(self) -> None:
        start = self.at
        character = self._take()
        group = self.groups[-1]
        if character == "|":
            group.options.append(_Group(0, parts=group.parts).node())
            group.parts = []
        elif character == "(":
            self._open_group(start)
        elif character == ")":
            if len(self.groups) == 1:
                raise self._error("a parenthesis closes no group", start)
            closed = self.groups.pop()
            put = self._append if closed.look is None else self._assert
            put(self._closed(closed), closed.start)
        elif character in "^$":
            self._assert(self._anchor(at_end=character == "$"), start)
        elif character == ".":
            self._append(_characters(ANYTHING if "s" in group.flags else DOT), start)
        elif character == "[":
            self._append(self._of_class(self._character_class(start)), start)
        elif character == "\\" and self._peek() and self._peek() in "bBAZ":
            kind = self._take()
            if kind in "AZ":
                self._assert(Anchor(at_end=kind == "Z"), start)
            else:
                self._count_look()
                self._assert(_word_boundary() if kind == "b" else _no_word_boundary(), start)
        elif character == "\\":
            members = self._cased(self._escape(start, in_class=False))
            self._append(self._of_class(members), start)
        elif character in "*+?" or (character == "{" and _COUNTS.match(self.text, start)):
            raise self._error("a quantifier has nothing to repeat", start)
        elif character == "{" and _COUNT_FROM_NOTHING.match(self.text, start):
            raise self._refusal("regex dialects disagree on {,n}; write {0,n}", start)
        else:
            self._append(_characters(self._cased(exactly(single(ord(character))))), start)

    def _cased(self, members: CharacterClass) -> CharacterClass:
        return ignoring_case(members) if "i" in self.groups[-1].flags else members

    def _anchor(self, *, at_end: bool) -> Node:
        """``^`` or ``$``; with the flag m also after or before a line end."""
        anchor = Anchor(at_end)
        if "m" not in self.groups[-1].flags:
            return anchor
        self._count_look(1 if not at_end else _MOST_LOOKS // _MOST_AHEAD)
        line_end = Alternatives((anchor, _characters(LINE_ENDS)))
        return Look(line_end, behind=not at_end, negative=False)

    def _assert(self, node: Node, start: int) -> None:
        """Add an assertion to the open group. A quantifier after it is an error in ECMA-262 with
        the flag u, which validators set, but not in some other dialects."""
        if self._quantifier() is not None:
            raise self._refusal("regex dialects disagree on quantified assertions", start)
        self._append(node, start)

    def _append(self, node: Node, start: int) -> None:
        """Add ``node`` to the open group, with the quantifier after it."""
        bounds = self._quantifier()
        if bounds is not None:
            low, high = bounds
            inner, node = node, Repeated(node, low, high)
            if node.anchored:
                self.positions[node] = start
            if node.looks and high is not None:
                self.written_out += node.counts * (self.at - start)
                if self.written_out > _MOST_WRITTEN_OUT:
                    reason = "look-around inside repetitions of a text that is too long"
                    raise ConstraintTooComplex(reason)
            if inner.counts > 1 and node.counts > self.limits.nested_counts:
                raise ConstraintTooComplex(
                    "nested repetitions in a pattern: their counts multiply to more than "
                    f"{self.limits.nested_counts}"
                )
        parts = self.groups[-1].parts
        while isinstance(node, Characters) and parts:
            narrowed = _narrowed(parts[-1], node)
            if narrowed is None:
                break
            parts.pop()
            node = narrowed
        parts.append(node)

    def _of_class(self, members: CharacterClass) -> Characters:
        if len(members.surely) > _FEW_RANGES or len(members.possibly) > _FEW_RANGES:
            self.classes.add(members)
            if len(self.classes) > _MOST_CLASSES:
                raise ConstraintTooComplex(
                    f"more than {_MOST_CLASSES} different large character classes in a pattern"
                )
        return _characters(members)

    def _count_look(self, weight: int = 1) -> None:
        self.looks += weight
        if self.looks > _MOST_LOOKS:
            raise ConstraintTooComplex(
                f"more than {_MOST_AHEAD} look-aheads or {_MOST_LOOKS} other look-arounds"
            )

    def _quantifier(self) -> tuple[int, int | None] | None:
        start = self.at
        bounds = QUANTIFIERS.get(self._peek())
        if bounds is not None:
            self.at += 1
        else:
            found = _COUNTS.match(self.text, start)
            if found is None:
                return None
            self.at = found.end()
            low, high = bounds = counts(found[1], found[2], found[3], "pattern")
            if high is not None and high < low:
                raise self._error("the counts of a quantifier are out of order", start)
        if self._peek() == "?":
            self.at += 1
        elif self._peek() == "+":
            raise self._error("possessive quantifiers are not part of ECMA-262", self.at)
        return bounds

    def _open_group(self, start: int) -> None:
        if len(self.groups) > self.limits.pattern_nesting:
            raise ConstraintTooComplex(
                f"groups nested deeper than {self.limits.pattern_nesting} in a pattern"
            )
        look, flags = None, self.groups[-1].flags
        if self._peek() == "?":
            changed = _FLAGS_OF_GROUP.match(self.text, self.at)
            named = _GROUP_NAME.match(self.text, self.at)
            kind = self._peek(2) if self._peek(2) in _LOOKS else self._peek(3)
            if changed:
                on, off = changed[1], changed[2] or ""
                flags = (flags | self._supported(on, start)) - self._supported(off, start)
                self.at = changed.end()
            elif named:
                self.at = named.end()
            elif kind in _LOOKS:
                look = _LOOKS[kind]
                self.at += len(kind)
            elif _FLAGS.match(self.text, start):
                raise self._refusal("flags must be at the start of the pattern", start)
            elif self._peek(2) == "?>":
                raise self._refusal("atomic groups are not supported", start)
            elif self._peek(3) == "?P=":
                raise self._refusal("references to groups are not supported", start)
            else:
                raise self._error("this kind of group is unknown", start)
        self.groups.append(_Group(start, flags, look))

    def _closed(self, group: _Group) -> Node:
        node = group.node()
        if group.look is None:
            return node
        behind, negative = group.look
        self._count_look(1 if behind else _MOST_LOOKS // _MOST_AHEAD)
        if behind and not is_one_behind(node):
            raise self._refusal("look-behind may only match one character", group.start)
        return Look(node, behind, negative)

    def _character_class(self, start: int) -> CharacterClass:
        """The character class after ``[``."""
        negated = self._peek() == "^"
        self.at += negated
        if self._peek() == "]" and "]" in self.text[self.at + 1 :]:
            raise self._refusal("regex dialects disagree on an empty class", start)
        members = exactly(())
        while True:
            if self.at >= len(self.text):
                raise self._error("a character class is not closed", start)
            if self._peek() == "]":
                self.at += 1
                members = self._cased(members)
                return ~members if negated else members
            members |= self._class_range()

    def _class_range(self) -> CharacterClass:
        """A member of a character class, or a range of members."""
        start = self.at
        nested = _NESTED_CLASS.match(self.text, start)
        if nested:
            reason = f"regex dialects disagree on {nested[0]} inside a class"
            raise self._refusal(f"{reason}; write its members, as in [0-9A-Za-z]", start)
        first = self._class_atom()
        if self._peek() != "-" or self._peek(2) in ("-", "-]"):
            return first
        self.at += 1
        last = self._class_atom()
        low, high = _only_member(first), _only_member(last)
        if low is None or high is None:  # Annex B: the hyphen then stands for itself
            return first | last | exactly(single(ord("-")))
        if low > high:
            raise self._error("a range in a character class is out of order", start)
        return exactly(((low, high),))

    def _class_atom(self) -> CharacterClass:
        start = self.at
        character = self._take()
        if not character:
            raise self._error("a character class is not closed", start)
        if character == "\\":
            return self._escape(start, in_class=True)
        return exactly(single(ord(character)))

    def _escape(self, start: int, *, in_class: bool) -> CharacterClass:
        """The class of the escape after a backslash."""
        character = self._take()
        if not character:
            raise self._error("the pattern ends in a backslash", start)
        if character in "dDwWsS":
            return shorthand(character)
        if character in _CONTROL_LETTERS:
            return exactly(single(_CONTROL_LETTERS[character]))
        if character in "xu":
            return exactly(single(self._hexadecimal(character, start)))
        if character == "c" and self._peek().isascii() and self._peek().isalpha():
            return exactly(single(ord(self._take()) % 32))
        if character == "0" and not self._peek().isdecimal():
            return exactly(single(0))
        if character == "b" and in_class:
            return exactly(single(0x08))
        if character.isdecimal() or character == "k":
            raise self._refusal("no support for group references and octal escapes", start)
        if character in "pP":
            return self._property(character, start)
        if character.isascii() and character.isalpha():
            raise self._refusal(f"regex dialects disagree on \\{character}", start)
        return exactly(single(ord(character)))

    def _property(self, letter: str, start: int) -> CharacterClass:
        found = _PROPERTY.match(self.text, self.at)
        members = unicode_property(found[1]) if found else None
        if found is None or members is None:
            raise self._refusal("this Unicode property is not supported", start)
        self.at = found.end()
        return ~members if letter == "P" else members

    def _hexadecimal(self, letter: str, start: int) -> int:
        r"""The code point of ``\xHH``, ``\uHHHH`` (a surrogate pair too) or ``\u{H...}``."""
        if letter == "u" and self._peek() == "{":
            end = self.text.find("}", self.at)
            digits = self.text[self.at + 1 : end] if end > 0 else ""
            self.at = end + 1
            code = _hex_value(digits) if len(digits) <= 8 else None
            if code is None or code > LAST:
                raise self._error("this escape has no valid code point", start)
            return code
        code = self._hex_digits(2 if letter == "x" else 4)
        if code is None:
            raise self._error("an escape lacks hexadecimal digits", start)
        if 0xD800 <= code <= 0xDBFF and self._peek(2) == "\\u":
            self.at += 2
            low = self._hex_digits(4)
            if low is not None and 0xDC00 <= low <= 0xDFFF:
                return 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00)
            self.at = start + 6
        return code

    def _hex_digits(self, size: int) -> int | None:
        digits = self._peek(size)
        self.at += size
        return _hex_value(digits) if len(digits) == size else None


@cache
def _word_boundary() -> Node:
    """A word character on one side and none on the other."""
    word = _characters(shorthand("w"))
    starts = Look(word, behind=True, negative=True), Look(word, behind=False, negative=False)
    ends = Look(word, behind=True, negative=False), Look(word, behind=False, negative=True)
    return Alternatives((Sequence(starts), Sequence(ends)))


@cache
def _no_word_boundary() -> Node:
    """A word character on both sides or on none; Python before 3.14 has no match in empty text."""
    word, other = _characters(shorthand("w")), _characters(shorthand("W"))
    inside = Look(word, behind=True, negative=False), Look(word, behind=False, negative=False)
    after = Look(other, behind=True, negative=False), Look(word, behind=False, negative=True)
    before = Look(word, behind=True, negative=True), Look(other, behind=False, negative=False)
    nothing = Anchor(at_end=False), Anchor(at_end=True, doubtful=True)
    return Alternatives(tuple(Sequence(each) for each in (inside, after, before, nothing)))


def _narrowed(look: Node, node: Characters) -> Characters | None:
    """``node`` narrowed by the look-ahead of one character before it; None for other ``look``."""
    if not isinstance(look, Look) or look.behind or not isinstance(look.body, Characters):
        return None
    body = look.body
    seen = CharacterClass(body.members, body.possible)
    if look.negative:
        seen = ~seen
    return Characters(common(node.members, seen.surely), common(node.possible, seen.possibly))


def _characters(members: CharacterClass) -> Characters:
    return Characters(members.surely, members.possibly)


def _hex_value(digits: str) -> int | None:
    return int(digits, 16) if re.fullmatch("[0-9a-fA-F]+", digits) else None


def _only_member(members: CharacterClass) -> int | None:
    if members.surely == members.possibly and len(members.surely) == 1:
        first, last = members.surely[0]
        return first if first == last else None
    return None
