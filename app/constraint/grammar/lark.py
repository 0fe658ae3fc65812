"""Reads a subset of Lark's grammar notation (Lark's documentation, "Grammar Reference").

Supported: rules and terminals, alternatives, groups, ``[optional]``, ``? * + ~n ~n..m``, strings
with the flag ``i``, regular expressions, ranges, ``%import common.X``, ``%ignore``, comments, and
``%json {...}``: a JSON value valid against an inline schema, with objects closed as by the server.
Priorities, aliases and the prefixes ``?``, ``!`` and ``_`` shape Lark's tree or choose between
parses; they do not change the language and are ignored. Refused by name:
``%declare``, ``%override``, ``%extend``, templates, and other modules' imports.
"""

from __future__ import annotations

import json
import re
from ast import literal_eval
from typing import ClassVar

from app.constraint.grammar.regexes import both_cases, regex_node
from app.constraint.grammar.syntax import Characters, Json, Name, Node, Reader, Series, Text, Token
from app.constraint.regex.syntax import QUANTIFIERS, PatternError, PatternNotSupported, counts
from app.core.errors import ConstraintTooComplex

_DIGITS = "[0-9]+"
_SIGN = r"[+\-]?"
_DECIMAL = r"(?:[0-9]+\.[0-9]*|\.[0-9]+)"
_EXPONENT = r"[eE][+\-]?[0-9]+"
_FLOAT = f"(?:{_DIGITS}{_EXPONENT}|{_DECIMAL}(?:{_EXPONENT})?)"
_NUMBER = f"(?:{_FLOAT}|{_DIGITS})"

COMMON: dict[str, str] = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": _DIGITS,
    "SIGNED_INT": _SIGN + _DIGITS,
    "DECIMAL": _DECIMAL,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": _SIGN + _FLOAT,
    "NUMBER": _NUMBER,
    "SIGNED_NUMBER": _SIGN + _NUMBER,
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"\/\/[^\n]*",
    "C_COMMENT": r"\/\*(?:[^*]|\*+[^*\/])*\*+\/",
    "SQL_COMMENT": r"--[^\n]*",
}
"""The terminals of ``%import common.NAME``, as regular expressions.

Names and meanings are those of Lark's documentation. Quoted strings and block comments end at the
first possible end, as in Lark's lexer."""


_ITEM = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*+|\#[^\n]*+)++)
    | (?P<rule>[?!]*(?P<defined>_?[A-Za-z][A-Za-z0-9_]*+)
        (?:\.-?[0-9]+)?[ \t]*(?P<template>\{[^}\n]*\}[ \t]*)?:)
    | (?P<name>_?[A-Za-z][A-Za-z0-9_]*+)(?P<arguments>\{)?
    | "(?P<first>(?:[^"\\\n]|\\[^\n])++)"\s*\.\.\s*"(?P<last>(?:[^"\\\n]|\\[^\n])++)"
    | "(?P<text>(?:[^"\\\n]|\\[^\n])*+)"(?P<ignorecase>i?)
    | /(?P<regex>(?:[^/\\]|\\.)++)/(?P<flags>[a-z]*)
    | (?P<quantifier>[*+?])
    | ~\s*(?P<low>[0-9]+)(?:\s*\.\.\s*(?P<high>[0-9]+))?
    | ->\s*(?P<alias>[A-Za-z_][A-Za-z0-9_]*)
    | %(?P<directive>[a-z_]+)
    | (?P<mark>[|()\[\]])
    """,
    re.VERBOSE | re.DOTALL,
)
_IMPORT = re.compile(
    r"""[ \t]*(?P<path>\.?[A-Za-z_][A-Za-z0-9_.]*)[ \t]*
    (?:\((?P<names>[^)]*)\)|(?:->[ \t]*(?P<alias>[A-Za-z_][A-Za-z0-9_]*))?)""",
    re.VERBOSE,
)
_REFUSED = {
    "declare": "not supported; define the terminal",
    "override": "not supported; write the rule itself",
    "extend": "not supported; write the rule itself",
}


class LarkReader(Reader):
    _ITEM = _ITEM
    _START = "start"
    _UNCLOSED: ClassVar = {
        '"': "this string is not closed",
        "/": "this regular expression is not closed",
    }

    @property
    def _in_terminal(self) -> bool:
        return self._name is not None and _is_terminal(self._name)

    def _item(self, found: re.Match[str]) -> int:
        at, groups = found.start(), self._groups
        if found["rule"] is not None:
            self._end_rule()
            if found["template"] is not None:
                raise self._template(found.start("defined"))
            self._begin_rule(found["defined"], found.start("defined"), found["defined"])
        elif found["directive"] is not None:
            directive = found["directive"]
            end = found.end()
            if directive == "json":
                return self._json(at, end)
            self._end_rule()
            if directive == "ignore":
                self._begin_rule("", at, "")
                return end
            if directive == "import":
                return self._import(at, end)
            reason = _REFUSED.get(directive, "this directive is unknown")
            raise self._source.unsupported("%" + directive, reason, at)
        elif found["space"] is None:
            if self._name is None:
                raise self._source.invalid("a rule, as in name: ..., is expected here", at)
            if found["quantifier"] is not None:
                groups.repeat(*QUANTIFIERS[found["quantifier"]], at)
            elif found["low"] is not None:
                groups.repeat(*counts(found["low"], None, found["high"], "grammar"), at)
            elif found["mark"] == "|":
                groups.next_option()
            elif found["mark"] is not None:
                (groups.open if found["mark"] in "([" else groups.close)(found["mark"], at)
            elif found["alias"] is None:
                groups.append(self._part(found, at))
        return found.end()

    def _part(self, found: re.Match[str], at: int) -> Node:
        if found["name"] is not None:
            name = found["name"]
            if found["arguments"] is not None:
                raise self._template(at)
            if not _is_terminal(name) and self._in_terminal:
                raise self._source.invalid("a terminal cannot refer to a rule", at)
            if _is_terminal(name) and not self._in_terminal:
                return Token(Name(name, at))
            return Name(name, at)
        if found["regex"] is not None:
            node = self._regex(found, at)
        elif found["first"] is not None:
            node = self._range(found)
        else:
            node = self._text(found, at)
        return node if self._in_terminal else Token(node)

    def _template(self, at: int) -> Exception:
        return self._source.unsupported("template", "templates are not supported", at)

    def _import(self, at: int, end: int) -> int:
        found = _IMPORT.match(self._source.text, end)
        if found is None:
            raise self._source.invalid("%import takes module.NAME or module (NAME, ...)", at)
        module, _, name = found["path"].rpartition(".")
        names = [name]
        if found["names"] is not None:
            module, names = found["path"], [each.strip() for each in found["names"].split(",")]
        if module != "common":
            raise self._source.unsupported("%import", "only the module common can be imported", at)
        for each in names:
            if each not in COMMON:
                raise self._source.unsupported("%import", f"common.{each} is unknown", at)
            name = found["alias"] or each
            self._begin_rule(name, at, name)
            if not self._in_terminal:
                raise self._source.invalid("the name of a terminal must be in upper case", at)
            self._groups.append(regex_node(COMMON[each], "", self._limits))
            self._end_rule()
        return found.end()

    def _json(self, at: int, end: int) -> int:
        if self._name is None or self._in_terminal:
            raise self._source.invalid("%json is only allowed in a rule", at)
        text = self._source.text
        end += len(text[end:]) - len(text[end:].lstrip())
        try:
            schema, end = json.JSONDecoder().raw_decode(text, end)
        except json.JSONDecodeError as error:
            raise self._source.invalid("the schema after %json is not JSON", error.pos) from None
        except RecursionError:
            raise ConstraintTooComplex("the schema after %json is nested too deeply") from None
        self._groups.append(Token(Json(schema)))
        return end

    def _text(self, found: re.Match[str], at: int) -> Node:
        text = self._unescape(found["text"], at)
        if not text:
            raise self._source.invalid("a terminal cannot be empty", at)
        if not found["ignorecase"]:
            return Text(text.encode(), at)
        try:
            return Series(tuple(Characters(both_cases(character)) for character in text))
        except PatternNotSupported as error:
            raise self._source.unsupported("i", str(error), at) from None

    def _range(self, found: re.Match[str]) -> Node:
        at = found.start()
        first, last = (self._unescape(found[end], at) for end in ("first", "last"))
        if len(first) != 1 or len(last) != 1:
            raise self._source.invalid("both ends of a range must be single characters", at)
        if last < first:
            raise self._source.invalid("a range is out of order", at)
        return Characters(((ord(first), ord(last)),))

    def _regex(self, found: re.Match[str], at: int) -> Node:
        pattern, flags = found["regex"], found["flags"]
        if "\n" in pattern and "x" not in flags:
            raise self._source.invalid("a regular expression on several lines needs flag x", at)
        try:
            return regex_node(pattern, flags, self._limits)
        except PatternError as error:
            raise self._source.invalid(str(error), at) from None
        except PatternNotSupported as error:
            raise self._source.unsupported("regex", str(error), at) from None

    def _unescape(self, text: str, at: int) -> str:
        r"""As Lark reads strings: Python's ``\n \r \t \f \x \u \U \\ \"``, others as they are."""
        text = re.sub(r"\\(.)", lambda e: e[0] if e[1] in 'Uuxnftr\\"' else "\\\\" + e[1], text)
        try:
            value: str = literal_eval('"' + text + '"')
            value.encode()
        except (SyntaxError, ValueError):
            raise self._source.invalid("this string has a bad escape", at) from None
        return value


def _is_terminal(name: str) -> bool:
    """Whether ``name`` is a terminal's; the body of ``%ignore`` ("") counts as one."""
    return not name or name.lstrip("_")[:1].isupper()
