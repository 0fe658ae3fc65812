"""Regular expressions inside Lark grammars: Python's ``re``, rewritten for our ECMA-262 parser.

The flags ``i``, ``s``, ``x`` and ``u`` have Python's meaning (``i`` for ASCII letters and the
characters that Python takes for their cases). ``m`` only changes anchors, which are refused, as a
terminal is in the middle of a text; so is look-around, which would see text beyond the terminal.
"""

from __future__ import annotations

import re

from app.constraint.grammar.syntax import NOTHING, Alternatives, Characters, Node, Repeated, Series
from app.constraint.language.codepoints import LAST, Ranges, ranges
from app.constraint.limits import Limits
from app.constraint.regex import syntax as regex_tree
from app.constraint.regex.parser import parse
from app.constraint.regex.syntax import PatternError, PatternNotSupported

_PIECE = re.compile(
    r"""\((?P<group>\?(?:P?<[=!]?|[^:<P]|P=)?)
    | \\(?P<escape>x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)
    | (?P<class>\[\^?\]?(?:[^\]\\]|\\.)*+\])
    | (?P<plain>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ATOM = r"(\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|.)"
_MEMBER = re.compile(f"{_ATOM}(?:-{_ATOM})?", re.DOTALL)
"""A member of a class, or a range."""
_PLAIN = " _-,:;<>=!@#%&~'\"`"
"""Characters without a meaning outside of classes, beyond letters and digits."""
_BEYOND_ASCII = "case can be ignored for ASCII letters only"
_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_SAME_CASE = {"i": "\u0130\u0131", "k": "\u212a", "s": "\u017f"}
"""Characters that Python's IGNORECASE takes for an ASCII letter, beyond its two cases."""


def regex_node(pattern: str, flags: str, limits: Limits) -> Node:
    """The texts that ``pattern`` matches as a whole.

    Raises ``PatternError`` or ``PatternNotSupported`` of ``app.constraint.regex``, or
    ``ConstraintTooComplex``.
    """
    leading = re.match(r"\(\?([a-z]+)\)", pattern)
    if leading:
        pattern, flags = pattern[leading.end() :], flags + leading[1]
    if set(flags) - set("imsux"):
        raise PatternNotSupported(f"unsupported flags {flags!r}", pattern, 0)
    tree = parse("".join(_rewrite(pattern, set(flags))), limits)
    if tree.anchored:
        raise PatternNotSupported("unsupported anchor in a terminal", pattern, 0)
    return _convert(tree)


def both_cases(character: str) -> Ranges:
    """The characters equal to ``character`` when case is ignored; exact for ASCII."""
    if not character.isascii() and character.lower() != character.upper():
        raise PatternNotSupported(_BEYOND_ASCII, character, 0)
    low = character.lower()
    return ranges((ord(c), ord(c)) for c in low + low.upper() + _SAME_CASE.get(low, ""))


def _rewrite(pattern: str, flags: set[str]) -> list[str]:
    out: list[str] = []
    at, in_comment = 0, False
    while at < len(pattern):
        found = _PIECE.match(pattern, at)
        assert found is not None
        at = found.end()
        plain = found["plain"]
        if in_comment:
            at = found.start() + 1
            in_comment = pattern[found.start()] != "\n"
        elif "x" in flags and plain is not None and (plain.isspace() or plain == "#"):
            in_comment = plain == "#"
        else:
            out.append(_piece(found, flags))
    return out


def _piece(found: re.Match[str], flags: set[str]) -> str:
    if found["group"] is not None:
        return _group(found)
    if found["escape"] is not None:
        escape = found["escape"]
        code = _code(escape, found)
        return "\\" + escape if code is None else _character(chr(code), flags)
    if found["class"] is not None:
        return _class(found, flags)
    plain = found["plain"]
    if plain == "[":
        raise PatternError("a character class is not closed", found.string, found.start())
    if plain == ".":
        return rf"[\u{{0}}-\u{{{LAST:x}}}]" if "s" in flags else r"[^\n]"
    if plain in "^$":
        raise PatternNotSupported("unsupported anchor", found.string, found.start())
    return plain if plain in "()|*+?{}" else _character(plain, flags)


def _group(found: re.Match[str]) -> str:
    opening: str = found["group"]
    if opening in ("?P<", "?<", "?"):
        return "(" + opening
    if opening in ("?=", "?!", "?<=", "?<!"):
        raise PatternNotSupported("unsupported look-around", found.string, found.start())
    raise PatternNotSupported(f"unsupported group ({opening}", found.string, found.start())


def _character(character: str, flags: set[str]) -> str:
    members = both_cases(character) if "i" in flags else ((ord(character), ord(character)),)
    if members != ((ord(character), ord(character)),):
        return f"[{_spell(members)}]"
    return character if character.isalnum() or character in _PLAIN else _spell(members)


def _class(piece: re.Match[str], flags: set[str]) -> str:
    """A character class; with ``i``, both cases of its members *before* it is negated."""
    text: str = piece["class"]
    negated = text.startswith("[^")
    out = []
    for found in _MEMBER.finditer(text, 2 if negated else 1, len(text) - 1):
        first, last = (_member(end, piece) for end in (found[1], found[2] or found[1]))
        if isinstance(first, str) and first == last:
            out.append(first)
        elif isinstance(first, str) or isinstance(last, str):
            reason = "a range must end in a single character"
            raise PatternNotSupported(reason, piece.string, piece.start())
        else:
            out.append(_spell(_range(first, last, flags)))
    return f"[{'^' if negated else ''}{''.join(out)}]"


def _member(atom: str, piece: re.Match[str]) -> int | str:
    """The code point of a character; a nested class such as ``\\d`` as it is written."""
    code = _code(atom[1:], piece) if len(atom) > 1 else ord(atom)
    return atom if code is None else code


def _range(first: int, last: int, flags: set[str]) -> Ranges:
    if last < first or "i" not in flags:
        return ((first, last),)
    parts = [(first, last)]
    for code in range(first, min(last, 0x7F) + 1):
        parts.extend(both_cases(chr(code)))
    if last > 0x7F:
        if (max(first, 0x80), last) != (0x80, LAST):
            raise PatternNotSupported(_BEYOND_ASCII, chr(first), 0)
        parts.extend(((0x41, 0x5A), (0x61, 0x7A)))
    return ranges(parts)


def _spell(members: Ranges) -> str:
    return "".join(
        rf"\u{{{low:x}}}" if low == high else rf"\u{{{low:x}}}-\u{{{high:x}}}"
        for low, high in members
    )


def _code(escape: str, piece: re.Match[str]) -> int | None:
    """The code point of an escape without its backslash; None for classes and unknown escapes."""
    if len(escape) > 1:
        return int(escape[1:], 16)
    if escape in _CONTROLS:
        return _CONTROLS[escape]
    if escape.isdecimal():
        reason = "references to groups, and octal escapes"
        raise PatternNotSupported(reason, piece.string, piece.start())
    return None if escape.isalnum() else ord(escape)


def _convert(tree: regex_tree.Node) -> Node:
    match tree:
        case regex_tree.Characters(members=members):
            return Characters(members)
        case regex_tree.Sequence(parts=parts):
            return Series(tuple(map(_convert, parts))) if parts else NOTHING
        case regex_tree.Alternatives(options=options):
            return Alternatives(tuple(map(_convert, options)))
    assert isinstance(tree, regex_tree.Repeated)
    return Repeated(_convert(tree.body), tree.low, tree.high)
