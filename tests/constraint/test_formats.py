from __future__ import annotations

import ipaddress
import json
import random
import re
import uuid
from collections.abc import Callable
from datetime import date, datetime, time
from functools import cache
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from app.constraint.formats import known_formats
from app.core.errors import UnsupportedSchema
from app.core.specs import JsonSchema
from tests.constraint.walks import Walker
from tests.wide import many
from tools import datasets

ORACLES: dict[str, Callable[[str], object]] = {
    "date": date.fromisoformat,
    "date-time": datetime.fromisoformat,
    "time": time.fromisoformat,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uuid": uuid.UUID,
    "uri": urlsplit,
    "iri": urlsplit,
}
GOOD = {
    "date": ["2024-02-29", "2000-02-29", "1999-12-31", "0001-01-01"],
    "time": ["23:59:59Z", "00:00:00.123+01:30"],
    "date-time": ["2024-02-29T10:00:00Z", "1990-12-31T15:59:59.5-08:00"],
    "duration": ["P3Y6M4DT12H30M5S", "P1W", "PT36H", "P1Y", "PT5S"],
    "email": ["a@b.co", "first.last+tag@mail.example.org"],
    "idn-email": ["a@b.co", "jörg.grün@bücher.example", "用户@例子.com"],
    "hostname": ["localhost", "www.example.com", "xn-a.de", "a" * 63 + ".org"],
    "idn-hostname": ["localhost", "bücher.example", "例え.jp", "пример", "실례.com"],
    "ipv4": ["0.0.0.0", "255.255.255.255", "192.168.1.1"],
    "ipv6": ["::", "::1", "1::", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "uri": ["https://a.b/c?d=e#f", "mailto:a@b.co", "urn:isbn:1", "file:///x", "http://[::1]:80/"],
    "uri-reference": ["/a/b", "../x?y", "#z", "", "//host/p", "a:b"],
    "json-pointer": ["", "/a~1b/0", "/é"],
    "relative-json-pointer": ["0", "1/a", "2#"],
    "iri": ["https://a.b/ä?ö=ü#ß", "https://a.b/"],
    "iri-reference": ["/ä", "日本"],
    "uri-template": ["", "/a/{b}{?c,d*}", "{+x:3}/{#y}", "a%41é"],
    "regex": [
        "",
        "^a+?$",
        r"\d{2,4}|[^\w.-]*",
        "(?:(a|b)c){3}",
        "(?=x)y(?!z)",
        r"(?<!a)b",
        r"[a-zA-Z0-9_-]",
        r"[\]\-\\]",
        r"^\$\{.*\}$",
        r"[ -~]",
        r"[\x00-\x7F]",
        "((((a))))",
    ],
}
BAD = {
    "date": ["2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "0000-01-01", "24-01-01"],
    "time": ["24:00:00Z", "12:00:00", "12:60:00Z"],
    "date-time": ["2024-02-05", "2024-02-05 10:00:00Z", "2024-02-05T10:00:00"],
    "duration": ["P", "PT", "1Y", "P1S", "P1Y1D", "P1W1D"],
    "email": ["x", "@b.co", "a@", "a b@c.de", ".a@b.co", "a@b..co", "a" * 65 + "@b.co"],
    "idn-email": ["x", "@b.co", "a@", "é é@c.de", ".é@c.de", "a@é..de", "é@b"],
    "hostname": ["", "-a", "a-", "a..b", "a_b", "a" * 64, ".".join(["a" * 60] * 5)],
    "idn-hostname": ["", "-é", "é-", "é..de", "é_", "É.de", "ａ.de", "é" * 11],
    "ipv4": ["256.1.1.1", "1.2.3", "01.2.3.4"],
    "ipv6": [":", "1:::2", "12345::", "1:2:3:4:5:6:7", "1::2::3", "1:2:3:4:5:6:7:8:9"],
    "uuid": ["123e4567e89b12d3a456426614174000", "xyz"],
    "uri": ["not a uri", "/relative", 'http://a"b', "http://[::1", "1a:b", "http://a\\b"],
    "uri-reference": ["a b", "\\", "1:b"],
    "json-pointer": ["a", "/~2"],
    "relative-json-pointer": ["", "01", "-1"],
    "iri": ["ä", "http://a b/"],
    "iri-reference": ["a b", "1:ä"],
    "uri-template": ["{", "}", "{}", "{a", "{a,}", "a b", "{a:0}", "{a:12345}", "{=a}"],
    "regex": [
        "(",
        ")",
        "[",
        "a**",
        "*",
        "[z-a]",
        "a{2,1}",
        "a{3,2}",
        "a{30,20}",
        "(?",
        "\\",
        "a{",
        "]",
        "^*",
        "(?=a)*",
        "a++",
        r"\1",
        "(?<n>a)",
        r"\cA",
        r"\p{L}",
        "[]",
        "[^]",
        r"\_",
        r"\u12",
    ],
}


@cache
def of_format(name: str) -> Walker:
    return Walker.of(JsonSchema({"type": "string", "format": name}))


@pytest.mark.parametrize("left", GOOD)
def test_of_two_formats_a_text_of_one_alone_is_admitted(left: str) -> None:
    """By our patterns; a warning tells where validators may disagree."""
    texts = {text for name in GOOD for text in GOOD[name] if of_format(left).accepts_value(text)}
    inexact = set()
    for right in GOOD:
        if "regex" in (left, right):
            continue
        one = {"type": "string", "format": left}
        other = {"type": "string", "format": right}
        either = Walker.of(JsonSchema({"oneOf": [one, other, {"type": "null"}]}))
        beside = Walker.of(JsonSchema({"anyOf": [{**one, "not": {"format": right}}, {"const": 0}]}))
        for text in texts:
            expected = not of_format(right).accepts_value(text)
            assert either.accepts_value(text) is expected, (right, text)
            assert beside.accepts_value(text) is expected, (right, text)
        inexact |= {right for _ in beside.pool.inexact}
    assert left != "date" or inexact == {"date-time", "time", "relative-json-pointer"}


def test_dates_and_date_times_beside_each_other_are_both_written() -> None:
    formats = ["date", "date-time", "time"]
    ways = [{"type": "string", "format": name} for name in formats]
    walker = Walker.of(JsonSchema({"oneOf": ways}))
    for name in formats:
        assert all(walker.accepts_value(text) for text in GOOD[name])
    assert {each.pointer for each in walker.pool.inexact} >= {"/oneOf/1/format"}
    alone = Walker.of(JsonSchema({"type": "string", "not": {"format": "date-time"}}))
    assert not alone.accepts_value("2020-01-01")  # one validator accepts it as a date-time
    assert not alone.pool.inexact


@pytest.mark.parametrize("name", GOOD)
def test_formats_admit_good_and_refuse_bad_texts(name: str) -> None:
    walker = of_format(name)
    assert [text for text in GOOD[name] if not walker.accepts_value(text)] == []
    assert [text for text in BAD[name] if walker.accepts_value(text)] == []


@pytest.mark.parametrize("name", ORACLES)
def test_random_texts_of_a_format_are_read_by_the_standard_library(name: str) -> None:
    walker = of_format(name)
    rng = random.Random(3)
    for _ in range(25):
        ORACLES[name](json.loads(walker.sample(rng)))


def test_a_format_holds_together_with_lengths_and_patterns() -> None:
    schema = {"type": "string", "format": "email", "maxLength": 8, "pattern": "^x"}
    walker = Walker.of(JsonSchema(schema))
    assert walker.accepts('"xy@b.co"')
    assert not walker.accepts('"y@b.co"')
    assert not walker.accepts('"xyz@bb.co"')


@pytest.mark.parametrize("name", ["int32", "int64", "double", "byte", "binary", "password", "x"])
def test_unknown_formats_are_annotations(name: str) -> None:
    assert name not in known_formats()
    assert of_format(name).accepts('"anything"')


def test_random_regular_expressions_compile() -> None:
    walker, rng = of_format("regex"), random.Random(5)
    for _ in range(many(300, 4)):
        re.compile(json.loads(walker.sample(rng, rng.randrange(60))))


def outside(name: str) -> Walker | None:
    """Strings that certainly lack the format; None if no string certainly does."""
    try:
        return Walker.of(JsonSchema({"type": "string", "not": {"format": name}}))
    except UnsupportedSchema:
        return None


@pytest.mark.parametrize("name", sorted(known_formats()))
def test_no_text_of_a_format_is_outside_it(name: str) -> None:
    inside, other, rng = of_format(name), outside(name), random.Random(6)
    assert (other is None) == (name == "regex")
    if other is not None:
        texts = [*GOOD.get(name, []), *(json.loads(inside.sample(rng)) for _ in range(50))]
        assert [text for text in texts if other.accepts_value(text)] == []


CHECKED = sorted(known_formats() & set(Draft202012Validator.FORMAT_CHECKER.checkers))
NEARLY = st.one_of(
    st.text(max_size=8),
    st.text(alphabet="0123456789-:.WwTZ+", max_size=12),
    st.text(alphabet="abf0:.%1", max_size=14),
    st.sampled_from([text for texts in GOOD.values() for text in texts]),
    st.dates().map(lambda day: day.strftime("%Y%m%d")),
    st.dates().map(lambda day: "-W".join(map(str, day.isocalendar()[:2]))),
    st.uuids().map(lambda one: "{" + str(one).upper() + "}"),
    st.emails(),
    st.ip_addresses().map(str),
)


@given(st.sampled_from(CHECKED), NEARLY)
@settings(max_examples=many(500))
def test_what_jsonschema_takes_is_not_outside_and_what_it_refuses_is_not_inside(
    name: str, text: str
) -> None:
    taken = Draft202012Validator.FORMAT_CHECKER.conforms(text, name)
    if taken:
        other = cached(outside, name)
        assert other is None or not other.accepts_value(text)
    else:
        inside = cached(of_format, name)
        assert inside is not None
        assert not inside.accepts_value(text)


@cache
def cached(language: Callable[[str], Walker | None], name: str) -> Walker | None:
    return language(name)


OFFICIAL = [
    (draft, name)
    for name in [*sorted(known_formats()), "ecmascript-regex"]
    for draft, files in datasets.official_suite().items()
    if f"optional/format/{name}" in files
]


@pytest.mark.parametrize(("draft", "name"), OFFICIAL)
def test_the_official_cases_of_formats_are_never_accepted_wrongly(draft: str, name: str) -> None:
    for group in datasets.official_suite()[draft][f"optional/format/{name}"]:
        inside, other = of_format(group["schema"]["format"]), outside(group["schema"]["format"])
        for test in group["tests"]:
            if not isinstance(test["data"], str):
                continue
            if not test["valid"]:
                assert not inside.accepts_value(test["data"]), test["description"]
            elif other is not None:
                assert not other.accepts_value(test["data"]), test["description"]
