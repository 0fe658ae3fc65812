"""The formats of JSON Schema as patterns, written from the RFCs that define them.

Each matches a part of its format that every validator accepts, and nearly all that anyone writes:
letters such as the T and Z of times are upper case, leap seconds and quoted local parts are left
out, fractions of seconds have at most nine digits.
"""

from __future__ import annotations

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

# RFC 1123 section 2.1: labels of at most 63; no two hyphens in a row, which internationalised
# names give a meaning
_LABEL = r"(?:[A-Za-z0-9]{1,63}|[A-Za-z0-9](?:-?[A-Za-z0-9]){0,31})"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"

# RFC 5321 section 4.1.2, dot-string only; the domain has a dot and ends in letters
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_EMAIL = rf"{_ATOM}(?:\.{_ATOM})*@(?:{_LABEL}\.)+[A-Za-z]{{2,63}}"

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
_PCHAR = rf"(?:[{_UNRESERVED}:@]|{_PERCENT})"
_AUTHORITY = (
    rf"(?:(?:[{_UNRESERVED}:]|{_PERCENT})*@)?(?:\[{_IPV6}\]|(?:[{_UNRESERVED}]|{_PERCENT})*)"
    r"(?::\d{0,5})?"
)
_HIERARCHY = rf"(?://{_AUTHORITY}(?:/{_PCHAR}*)*|/?(?:{_PCHAR}+(?:/{_PCHAR}*)*)?)"
_QUERY = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]*:{_HIERARCHY}{_QUERY}"
_SEGMENT_WITHOUT_COLON = rf"(?:[{_UNRESERVED}@]|{_PERCENT})+"
_RELATIVE = (
    rf"(?://{_AUTHORITY}(?:/{_PCHAR}*)*|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
    rf"|(?:{_SEGMENT_WITHOUT_COLON}(?:/{_PCHAR}*)*)?){_QUERY}"
)

_POINTER = r"(?:/(?:[^~/]|~[01])*)*"

PATTERNS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}T{_TIME}",
    "duration": _DURATION,
    "email": _EMAIL,
    "idn-email": _EMAIL,
    "hostname": _HOSTNAME,
    "idn-hostname": _HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uuid": r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
    "uri": _URI,
    "iri": _URI,
    "uri-reference": rf"(?:{_URI}|{_RELATIVE})",
    "iri-reference": rf"(?:{_URI}|{_RELATIVE})",
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(?:0|[1-9]\d{{0,8}})(?:#|{_POINTER})",
}
"""Patterns that the whole string matches. Internationalised formats keep to ASCII."""

LONGEST: dict[str, str] = {
    "hostname": r".{1,253}",
    "idn-hostname": r".{1,253}",
    "email": r"[^@]{1,64}@.{1,253}",
    "idn-email": r"[^@]{1,64}@.{1,253}",
}
"""Lengths that the whole must keep to as well (RFC 1035 section 2.3.4, RFC 5321 section 4.5.3)."""

NOT_REGULAR = frozenset(["regex", "uri-template"])
"""Formats that are known and refused; unknown ones are annotations."""

_LOOSE: dict[str, str] = {
    "date": r"[\s\S]*\d[\s\S]*",
    "email": r"[\s\S]*@[\s\S]*",
    "idn-email": r"[\s\S]*@[\s\S]*",
    "ipv6": r"[^:]*:[\s\S]*",
}


def loose_pattern(name: str) -> str | None:
    """A pattern of all that any validator takes for the format ``name``; None if there is none."""
    return _LOOSE.get(name)
