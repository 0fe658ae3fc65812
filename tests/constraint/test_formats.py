from __future__ import annotations

import ipaddress
import json
import random
import uuid
from collections.abc import Callable
from datetime import date, datetime, time
from urllib.parse import urlsplit

import pytest

from app.core.constraint import JsonSchema
from app.core.errors import UnsupportedSchema
from tests.constraint.walks import Walker

ORACLES: dict[str, Callable[[str], object]] = {
    "date": date.fromisoformat,
    "date-time": datetime.fromisoformat,
    "time": time.fromisoformat,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uuid": uuid.UUID,
    "uri": urlsplit,
}
GOOD = {
    "date": ["2024-02-29", "2000-02-29", "1999-12-31", "0001-01-01"],
    "time": ["23:59:59Z", "00:00:00.123+01:30"],
    "date-time": ["2024-02-29T10:00:00Z", "1990-12-31T15:59:59.5-08:00"],
    "duration": ["P3Y6M4DT12H30M5S", "P1W", "PT36H", "P1Y", "PT5S"],
    "email": ["a@b.co", "first.last+tag@mail.example.org"],
    "hostname": ["localhost", "www.example.com", "xn-a.de", "a" * 63 + ".org"],
    "ipv4": ["0.0.0.0", "255.255.255.255", "192.168.1.1"],
    "ipv6": ["::", "::1", "1::", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "uri": ["https://a.b/c?d=e#f", "mailto:a@b.co", "urn:isbn:1", "file:///x", "http://[::1]:80/"],
    "uri-reference": ["/a/b", "../x?y", "#z", "", "//host/p", "a:b"],
    "json-pointer": ["", "/a~1b/0", "/é"],
    "relative-json-pointer": ["0", "1/a", "2#"],
}
BAD = {
    "date": ["2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "0000-01-01", "24-01-01"],
    "time": ["24:00:00Z", "12:00:00", "12:60:00Z"],
    "date-time": ["2024-02-05", "2024-02-05 10:00:00Z", "2024-02-05T10:00:00"],
    "duration": ["P", "PT", "1Y", "P1S", "P1Y1D", "P1W1D"],
    "email": ["x", "@b.co", "a@", "a b@c.de", ".a@b.co", "a@b..co", "a" * 65 + "@b.co"],
    "hostname": ["", "-a", "a-", "a..b", "a_b", "a" * 64, ".".join(["a" * 60] * 5)],
    "ipv4": ["256.1.1.1", "1.2.3", "01.2.3.4"],
    "ipv6": [":", "1:::2", "12345::", "1:2:3:4:5:6:7", "1::2::3", "1:2:3:4:5:6:7:8:9"],
    "uuid": ["123e4567e89b12d3a456426614174000", "xyz"],
    "uri": ["not a uri", "/relative", 'http://a"b', "http://[::1", "1a:b", "http://a\\b"],
    "uri-reference": ["a b", "\\", "1:b"],
    "json-pointer": ["a", "/~2"],
    "relative-json-pointer": ["", "01", "-1"],
}


def of_format(name: str) -> Walker:
    return Walker.of(JsonSchema({"type": "string", "format": name}))


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


def test_unknown_formats_are_annotations_and_irregular_ones_are_refused() -> None:
    assert of_format("int32").accepts('"anything"')
    with pytest.raises(UnsupportedSchema, match="format"):
        of_format("regex")
