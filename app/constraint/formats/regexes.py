r"""The format ``regex``: regular expressions that are valid in ECMA-262 and in Python's ``re``.

Regular expressions are not regular, as groups nest. These nest at most ``_DEEPEST`` groups, and
keep to the syntax that the Unicode mode of ECMA-262, its older mode and ``re`` share: no references
to groups, no named groups, escapes only where all have them, look-behind at one character.
"""

from __future__ import annotations

from functools import cache

from app.constraint.limits import Limits
from app.constraint.regex.parser import parse
from app.constraint.regex.syntax import Alternatives, Node, Repeated, Sequence

_DEEPEST = 4

_SYNTAX = r"\^$\\.*+?()\[\]{}|/"
"""The characters that Unicode mode lets one escape, inside a character class."""
_HEX = "[0-9A-Fa-f]"
_ESCAPE = rf"(?:[dDwWsStnrfv{_SYNTAX}]|x{_HEX}{{2}}|u{_HEX}{{4}})"
_CHARACTER = r"[^\x00-\x1f\ud800-\udfff\^$\\.*+?()\[\]{}|]"
_CLASS_CHARACTER = r"[^\x00-\x1f\ud800-\udfff\\\[\]\^\-]"


_RANGE = (
    r"(?:0-[1-9]|[1-4]-[5-8]|[1-8]-9|a-[b-z]|[b-m]-[n-y]|[b-y]-z|A-[B-Z]|[B-M]-[N-Y]|[B-Y]-Z|[ !]-~"
    rf"|\\x[0-6]{_HEX}-\\x[7-9A-Fa-f]{_HEX}|\\u[0-7]{_HEX}{{3}}-\\u[89A-Fa-f]{_HEX}{{3}})"
)
"""Ranges in order whatever their digits and letters: not all, but those that one writes."""
_IN_CLASS = rf"(?:{_CLASS_CHARACTER}|\\(?:-|b|{_ESCAPE})|{_RANGE})"
_CLASS = rf"\[\^?(?:-{_IN_CLASS}*|{_IN_CLASS}+-?)\]"

_COUNTS = (
    r"\{(?:(?:0|[1-9]\d{0,2}),?|0,\d|1,[1-9]|2,[2-9]|3,[3-9]|[45],[5-9]|[6-8],[89]"
    r"|\d,[1-9]\d{1,2}|[1-4]\d,[5-9]\d|[1-9]\d,[1-9]\d\d|[1-4]\d\d,[5-9]\d\d)\}"
)
_QUANTIFIER = rf"(?:(?:[*+?]|{_COUNTS})\??)?"

_SIMPLE = rf"{_CHARACTER}|\.|\\{_ESCAPE}|{_CLASS}"
_ASSERTION = rf"[\^$|]|\\[bB]|\(\?<[=!](?:{_CHARACTER}|\.|\\[dDwWsS{_SYNTAX}])\)"


@cache
def regex_tree() -> Node:
    """Matches, from end to end, the regular expressions of the format."""
    limits = Limits()

    def read(pattern: str) -> Node:
        return parse(pattern, limits)

    simple, quantifier, assertion = read(_SIMPLE), read(_QUANTIFIER), read(_ASSERTION)
    begin, look, end = read(r"\((?:\?:)?"), read(r"\(\?[=!]"), read(r"\)")
    expression = _repeated(Sequence((simple, quantifier)), assertion)
    for _ in range(_DEEPEST):
        group = Sequence((begin, expression, end))
        repeated = Sequence((Alternatives((simple, group)), quantifier))
        expression = _repeated(repeated, assertion, Sequence((look, expression, end)))
    return expression


def _repeated(*options: Node) -> Node:
    return Repeated(Alternatives(options), 0, None)
