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


def _ordered(letters: str, between: str, before: str = "", *, strictly: bool = False) -> str:
    """Two of ``letters``, with ``between`` between them, the second not below the first."""
    pairs = [
        f"{first}{between}[{letters[index + strictly :]}]"
        for index, first in enumerate(letters[: len(letters) - strictly])
    ]
    return before + "(?:" + "|".join(pairs) + ")"


_DIGITS = "0123456789"
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_RANGE = (
    "(?:"
    + "|".join(
        [
            _ordered(_DIGITS, "-"),
            _ordered(_LOWER, "-"),
            _ordered(_LOWER.upper(), "-"),
            "[ !]-~",
            r"\\x[0-6]" + _HEX + r"-\\x[7-9A-Fa-f]" + _HEX,
            *(
                rf"\\u{low}{_HEX}{{3}}-\\u[{high}]{_HEX}{{3}}"
                for low, high in (
                    ("[0-3]", "4-9A-Fa-f"),
                    ("[4-7]", "89A-Fa-f"),
                    ("[89AaBb]", "C-Fc-f"),
                )
            ),
        ]
    )
    + ")"
)
_IN_CLASS = rf"(?:{_CLASS_CHARACTER}|\\(?:-|b|{_ESCAPE})|{_RANGE})"
_CLASS = rf"\[\^?(?:-{_IN_CLASS}*|{_IN_CLASS}+-?)\]"

_COUNT = r"(?:0|[1-9]\d{0,2})"
_COUNTS = (
    r"\{(?:" + _COUNT + ",?|"
    rf"{_ordered(_DIGITS, ',')}|\d,[1-9]\d{{1,2}}|[1-9]\d,[1-9]\d\d"
    + "|" + "|".join(_ordered(_DIGITS, f",{ten}", str(ten)) for ten in range(1, 10))
    + rf"|(?:{'|'.join(f'{ten}[0-9],[{ten + 1}-9][0-9]' for ten in range(1, 9))})"
    + r")\}"
)  # fmt: skip
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
