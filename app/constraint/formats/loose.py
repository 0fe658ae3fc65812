"""More than what any validator takes for a format: what lies outside has not the format.

Validators differ: some follow an RFC to the letter, some ask the standard library of a language,
some only look for an ``@``. Each pattern holds what all of them take together, even the line feed
that ``$`` of Python's ``re`` lets through at the end.
"""

from __future__ import annotations

_ANY = r"[\s\S]*"
_HOST = r"[^\x00-,/:-@\[-^`{-\x7f]*"
"""Letters, digits, full stop, hyphen, underscore, and all that is not ASCII."""
_URI = rf"[A-Za-z][A-Za-z0-9+.\-]*:{_ANY}"
_REFERENCE = r"[^\x00-\x20<>\\^`{|}]*"

_WITHOUT_LINE_FEED: dict[str, str] = {
    "date": r"\d{4}-?(?:\d\d-?\d\d|[Ww]\d\d(?:-?\d)?|\d{3})",
    "time": rf"[Tt]?\d{_ANY}",
    "date-time": rf"[+-]?\d{{4}}{_ANY}",
    "duration": rf"[+-]?[Pp]{_ANY}",
    "email": rf"{_ANY}@{_ANY}",
    "idn-email": rf"{_ANY}@{_ANY}",
    "hostname": _HOST,
    "idn-hostname": _HOST,
    "ipv4": r"[0-9A-Fa-fxX.]+",
    "ipv6": rf"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:[%/]{_ANY})?",
    "uuid": rf"(?:[Uu][Rr][Nn]:)?(?:[Uu][Uu][Ii][Dd]:)?\{{*[\w\-]{{32,}}\}}*|.{{8}}-{_ANY}",
    "uri": _URI,
    "iri": _URI,
    "uri-reference": _REFERENCE,
    "iri-reference": _REFERENCE,
    "uri-template": r"(?:[^{}]|\{[^{}]*\})*",
    "json-pointer": rf"(?:[/#]{_ANY})?",
    "relative-json-pointer": rf"[+-]?\d{_ANY}",
}
LOOSE = {name: rf"(?:{pattern})\n?" for name, pattern in _WITHOUT_LINE_FEED.items()}
"""Patterns that the whole string matches. Whatever is no regular expression has no sure form."""
