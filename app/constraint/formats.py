"""The formats of JSON Schema as patterns, written from the RFCs that define them.

Each matches a subset of its format that every validator accepts, with nearly all usual strings:
letters such as the T and Z of times are upper case, leap seconds and quoted local parts are left
out, fractions of seconds have at most nine digits. ``LOOSE`` has supersets, for negations.
"""

from __future__ import annotations

from functools import cache

from app.constraint.limits import Limits
from app.constraint.regex.parser import parse
from app.constraint.regex.syntax import Alternatives, Node, Repeated, Sequence

_ANYTHING = r"[\s\S]*"
_LOOSE_HOST = r"[^\x00-,/:-@\[-^`{-\x7f]*"
"""Letters, digits, full stop, hyphen, underscore, and all that is not ASCII."""
_LOOSE_URI = rf"[A-Za-z][A-Za-z0-9+.\-]*:{_ANYTHING}"
_LOOSE_REFERENCE = r"[^\x00-\x20<>\\^`{|}]*"

_WITHOUT_LINE_FEED: dict[str, str] = {
    "date": r"\d{4}-?(?:\d\d-?\d\d|[Ww]\d\d(?:-?\d)?|\d{3})",
    "time": rf"[Tt]?\d{_ANYTHING}",
    "date-time": rf"[+-]?\d{{4}}{_ANYTHING}",
    "duration": rf"[+-]?[Pp]{_ANYTHING}",
    "email": rf"{_ANYTHING}@{_ANYTHING}",
    "idn-email": rf"{_ANYTHING}@{_ANYTHING}",
    "hostname": _LOOSE_HOST,
    "idn-hostname": _LOOSE_HOST,
    "ipv4": r"[0-9A-Fa-fxX.]+",
    "ipv6": rf"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:[%/]{_ANYTHING})?",
    "uuid": rf"(?:[Uu][Rr][Nn]:)?(?:[Uu][Uu][Ii][Dd]:)?\{{*[\w\-]{{32,}}\}}*|.{{8}}-{_ANYTHING}",
    "uri": _LOOSE_URI,
    "iri": _LOOSE_URI,
    "uri-reference": _LOOSE_REFERENCE,
    "iri-reference": _LOOSE_REFERENCE,
    "uri-template": r"(?:[^{}]|\{[^{}]*\})*",
    "json-pointer": rf"(?:[/#]{_ANYTHING})?",
    "relative-json-pointer": rf"[+-]?\d{_ANYTHING}",
}
LOOSE = {name: rf"(?:{pattern})\n?" for name, pattern in _WITHOUT_LINE_FEED.items()}
"""Patterns, for whole strings, of supersets of what any validator accepts for a format: a string
that does not match lacks the format. Some validators follow an RFC to the letter, some use the
standard library of a language, some only look for an ``@``; each pattern covers all of them, even
the line feed that ``$`` of Python's ``re`` allows. There is no such pattern for ``regex``."""


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
"""Ranges that are in order whatever their digits and letters: not all, but the usual ones."""
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
    """Matches, from end to end, the regular expressions of the format ``regex``.

    They are valid in ECMA-262 and in Python's ``re``. As groups nest they are not regular: these
    nest at most ``_DEEPEST`` groups, and keep to the syntax that the Unicode mode of ECMA-262, its
    older mode and ``re`` share: no references to groups, no named groups, escapes only where all
    have them, look-behind at one character.
    """
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


# RFC 3339 section 5.6 and appendix A; years start at 1
_YEAR = r"(?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})"
_DIVISIBLE_BY_4 = r"(?:0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = rf"(?:\d\d{_DIVISIBLE_BY_4}|{_DIVISIBLE_BY_4}00)"
_DAYS = r"(?:0[1-9]|1\d|2[0-8])"
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-{_DAYS}|(?:0[13-9]|1[0-2])-(?:29|30)"
    rf"|(?:0[13578]|1[02])-31)|{_LEAP_YEAR}-02-29)"
)
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"

_COUNT = r"\d{1,9}"
_HOURS = rf"T(?:{_COUNT}H(?:{_COUNT}M(?:{_COUNT}S)?)?|{_COUNT}M(?:{_COUNT}S)?|{_COUNT}S)"
_DAYS_AND_MORE = rf"(?:{_COUNT}Y(?:{_COUNT}M(?:{_COUNT}D)?)?|{_COUNT}M(?:{_COUNT}D)?|{_COUNT}D)"
_DURATION = rf"P(?:{_DAYS_AND_MORE}(?:{_HOURS})?|{_HOURS}|{_COUNT}W)"

# RFC 1123 section 2.1; no two hyphens in a row, which internationalised names give a meaning.
# Whole names have at most 253 characters (RFC 1035 section 2.3.4): four labels of the full 63, or
# eight that are shorter but for the first. To count over the whole name would make every position
# a state of its own.
_LETTER_OR_DIGIT = "[A-Za-z0-9]"


def _label(longest: int) -> str:
    many = f"{_LETTER_OR_DIGIT}{{1,{longest}}}"
    return f"(?:{many}|{_LETTER_OR_DIGIT}(?:-?{_LETTER_OR_DIGIT}){{0,{(longest - 1) // 2}}})"


_HOSTNAME = (
    rf"(?:{_label(63)}(?:\.{_label(63)}){{0,2}}(?:\.{_label(61)})?"
    rf"|{_label(63)}(?:\.{_label(26)}){{0,7}})"
)

# RFC 5321 section 4.1.2, dot-string only, of at most 64 characters; the domain has a dot and ends
# in letters. The whole has at most 254 (section 4.5.3), so 189 are left for the domain.
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_LOCAL = (
    rf"(?:{_ATOM}{{1,64}}|{_ATOM}{{1,31}}\.{_ATOM}{{1,32}}|{_ATOM}{{1,20}}(?:\.{_ATOM}{{1,20}}){{2}}"
    rf"|{_ATOM}(?:\.?{_ATOM}){{0,31}})"
)
_DOMAIN = (
    rf"(?:(?:{_label(63)}\.){{1,2}}[A-Za-z]{{2,61}}"
    rf"|{_label(63)}\.(?:{_label(26)}\.){{0,4}}[A-Za-z]{{2,17}})"
)
_EMAIL = rf"{_LOCAL}@{_DOMAIN}"

# RFC 5892: letters of several scripts that are as they are in all versions of the tables, and in
# normal form; ten of them take less than the 63 characters of a label (RFC 3492)
_IDN_LETTER = r"[a-z0-9\u00e0-\u00f6\u00f8-\u00ff\u03b1-\u03c1\u03c3-\u03c9\u0430-\u044f"
_IDN_LETTER += r"\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3]"
_IDN_LABEL = rf"(?:{_label(63)}|{_IDN_LETTER}{{1,10}})"
_IDN_HOSTNAME = rf"(?:{_HOSTNAME}|{_IDN_LABEL}(?:\.{_IDN_LABEL}){{0,2}}(?:\.{_label(61)})?)"
_IDN_WORD = rf"(?:{_ATOM}|{_IDN_LETTER}){{1,10}}"
_IDN_DOMAIN = rf"(?:{_IDN_LABEL}\.){{1,2}}[A-Za-z]{{2,61}}"
_IDN_EMAIL = rf"(?:{_EMAIL}|{_IDN_WORD}(?:\.{_IDN_WORD})?@{_IDN_DOMAIN})"

_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"

# RFC 3986 section 3.2.2
_H16 = r"[0-9A-Fa-f]{1,4}"
_LS32 = rf"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = (
    "(?:"
    + "|".join(
        [rf"(?:{_H16}:){{6}}{_LS32}", rf"::(?:{_H16}:){{5}}{_LS32}"]
        + [rf"(?:(?:{_H16}:){{0,{n}}}{_H16})?::(?:{_H16}:){{{4 - n}}}{_LS32}" for n in range(5)]
        + [rf"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}", rf"(?:(?:{_H16}:){{0,6}}{_H16})?::"]
    )
    + ")"
)

# RFC 3986 appendix A
_PERCENT = r"%[0-9A-Fa-f]{2}"
_UNRESERVED = r"A-Za-z0-9\-._~!$&'()*+,;="
_AUTHORITY = (
    rf"(?:(?:[{_UNRESERVED}:]|{_PERCENT})*@)?(?:\[{_IPV6}\]|(?:[{_UNRESERVED}]|{_PERCENT})*)"
    r"(?::\d{0,5})?"
)
# RFC 3987 section 2.2, less white space and marks that some take for it; no private use
_UCS = (
    r"\u00a1-\u167f\u1681-\u1fff\u2070-\u2fff\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufefe\uff00-\uffef"
    r"\u{10000}-\u{1fffd}\u{20000}-\u{2fffd}"
)


def _uris(more: str = "") -> tuple[str, str]:
    """Absolute URIs, and references: these or relative ones.

    ``more`` characters may stand outside the authority.
    """
    character = rf"(?:[{_UNRESERVED}:@{more}]|{_PERCENT})"
    path = rf"(?:/(?:[{_UNRESERVED}:@/{more}]|{_PERCENT})*)?"
    characters = rf"(?:[{_UNRESERVED}:@/?{more}]|{_PERCENT})*"
    query = rf"(?:\?{characters})?(?:#{characters})?"
    hierarchy = rf"(?://{_AUTHORITY}{path}|/?(?:{character}+{path})?)"
    absolute = rf"[A-Za-z][A-Za-z0-9+.-]*:{hierarchy}{query}"
    without_colon = rf"(?:[{_UNRESERVED}@{more}]|{_PERCENT})+"
    relative = rf"(?://{_AUTHORITY}{path}|/(?:{character}+{path})?|(?:{without_colon}{path})?)"
    return absolute, rf"(?:{absolute}|{relative}{query})"


_URI, _URI_REFERENCE = _uris()
_IRI, _IRI_REFERENCE = _uris(_UCS)

# RFC 6570 section 2; no dots in names and no apostrophes, which some refuse
_NAME = rf"(?:[A-Za-z0-9_]|{_PERCENT})+"
_VARIABLE = rf"{_NAME}(?::[1-9]\d{{0,3}}|\*)?"
_LITERAL = rf"(?:[!#$&(-;=?-\[\]_a-z~{_UCS}]|{_PERCENT})"
_URI_TEMPLATE = rf"(?:{_LITERAL}|\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"

_POINTER = r"(?:/(?:[^~/]|~[01])*)*"

PATTERNS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}T{_TIME}",
    "duration": _DURATION,
    "email": _EMAIL,
    "idn-email": _IDN_EMAIL,
    "hostname": _HOSTNAME,
    "idn-hostname": _IDN_HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uuid": r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
    "uri": _URI,
    "iri": _IRI,
    "uri-reference": _URI_REFERENCE,
    "iri-reference": _IRI_REFERENCE,
    "uri-template": _URI_TEMPLATE,
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(?:0|[1-9]\d{{0,8}})(?:#|{_POINTER})",
}
"""Patterns that the whole string matches."""


def known_formats() -> frozenset[str]:
    """The formats that are enforced; all others are annotations."""
    return frozenset([*PATTERNS, "regex"])


@cache
def strict_format(name: str) -> Node | None:
    """A tree that matches, from end to end, what every validator takes for the format ``name``.

    None for a format that is not known.
    """
    if name == "regex":
        return regex_tree()
    return parse(PATTERNS[name], Limits()) if name in PATTERNS else None


@cache
def loose_format(name: str) -> Node | None:
    """A tree that matches all that any validator takes for the format ``name``.

    None for a format that is not known, and where there is no such tree.
    """
    return parse(LOOSE[name], Limits()) if name in LOOSE else None
