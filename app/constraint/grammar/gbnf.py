"""Reads GBNF, the notation of llama.cpp's grammars (grammars/README.md there).

Line ends are ignored: a rule ends before the next ``name ::=``, so alternatives may be on separate
lines. Names may have letters, digits, hyphens and underscores. Characters are Unicode
code points; ``.`` and negated sets include the line end.
"""

from __future__ import annotations

import re
from typing import ClassVar

from app.constraint.grammar.syntax import NOTHING, Characters, Name, Node, Reader, Text
from app.constraint.language.codepoints import CHARACTERS, LAST, Ranges, negate, ranges
from app.constraint.regex.syntax import QUANTIFIERS, counts

_ITEM = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*+)++)
    | (?P<rule>[A-Za-z0-9_-]++)(?:\s|\#[^\n]*+)*+::=
    | (?P<name>[A-Za-z0-9_-]++)
    | "(?P<text>(?:[^"\\]|\\.)*+)"
    | \[(?P<negated>\^?)(?P<set>(?:[^\]\\]|\\.)*+)\]
    | (?P<quantifier>[*+?])
    | \{\s*(?P<low>[0-9]+)\s*(?P<comma>,)?\s*(?P<high>[0-9]+)?\s*\}
    | (?P<mark>[|().])
    """,
    re.VERBOSE | re.DOTALL,
)
_CHARACTER = re.compile(
    r"""\\(?P<hex>x[0-9A-Fa-f]{2} | u[0-9A-Fa-f]{4} | U[0-9A-Fa-f]{8})
    | \\(?P<letter>[nrt"'\\\[\]^./-]) | (?P<plain>[^\\])
    """,
    re.VERBOSE | re.DOTALL,
)
_LETTERS = {"n": 0x0A, "r": 0x0D, "t": 0x09}


class GbnfReader(Reader):
    _ITEM = _ITEM
    _START = "root"
    _UNCLOSED: ClassVar = {
        '"': "this text is not closed",
        "[": "this set of characters is not closed",
        "{": "counts must be {m}, {m,} or {m,n}",
    }

    def _item(self, found: re.Match[str]) -> int:
        at, groups = found.start(), self._groups
        if found["space"] is not None:
            return found.end()
        if found["rule"] is not None:
            self._end_rule()
            self._begin_rule(found["rule"], at, f"rule {found['rule']}")
        elif self._name is None:
            raise self._source.invalid("a grammar starts with a rule: name ::= ...", at)
        elif found["name"] is not None:
            groups.append(Name(found["name"], at))
        elif found["text"] is not None:
            groups.append(self._text(found))
        elif found["set"] is not None:
            groups.append(Characters(self._set(found)))
        elif found["quantifier"] is not None:
            groups.repeat(*QUANTIFIERS[found["quantifier"]], at)
        elif found["low"] is not None:
            groups.repeat(*counts(found["low"], found["comma"], found["high"], "grammar"), at)
        elif found["mark"] == "|":
            groups.next_option()
        elif found["mark"] == "(":
            groups.open("(", at)
        elif found["mark"] == ")":
            groups.close(")", at)
        else:
            groups.append(Characters(CHARACTERS))
        return found.end()

    def _text(self, found: re.Match[str]) -> Node:
        codes = self._characters(found["text"], found.start("text"))
        value = "".join(chr(code) for code, _ in codes).encode()
        return Text(value, found.start()) if value else NOTHING

    def _set(self, found: re.Match[str]) -> Ranges:
        inside = self._characters(found["set"], found.start("set"))
        if not inside:
            raise self._source.invalid("a set of characters is empty", found.start())
        members, at = [], 0
        while at < len(inside):
            first, position = inside[at]
            last = first
            if at + 2 < len(inside) and self._source.text[inside[at + 1][1]] == "-":
                last = inside[at + 2][0]
                at += 2
            if last < first:
                raise self._source.invalid("a range is out of order", position)
            members.append((first, last))
            at += 1
        return negate(ranges(members)) if found["negated"] else ranges(members)

    def _characters(self, text: str, start: int) -> list[tuple[int, int]]:
        """Code points and their positions."""
        result, at = [], 0
        while at < len(text):
            found = _CHARACTER.match(text, at)
            if found is None:
                raise self._source.invalid("this escape is unknown", start + at)
            code = _code(found)
            if code > LAST or 0xD800 <= code <= 0xDFFF:
                raise self._source.invalid("this code point is not a character", start + at)
            result.append((code, start + at))
            at = found.end()
        return result

    def _unexpected(self, at: int) -> Exception:
        if self._source.text[at] in "<!":
            return self._source.unsupported(
                "token reference", "a grammar is made of characters, not of tokens", at
            )
        return super()._unexpected(at)


def _code(found: re.Match[str]) -> int:
    if found["hex"] is not None:
        return int(found["hex"][1:], 16)
    return _LETTERS.get(found["letter"]) or ord(found["letter"] or found["plain"])
