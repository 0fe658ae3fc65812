"""Each value of a JSON answer is reported once, when it is complete, for every split."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from app.answer.fields import LARGEST, LONGEST_POINTER, MOST_LEVELS, FieldReader, ValueScanner
from app.answer.pieces import (
    CallArguments,
    CallStart,
    Content,
    End,
    Fields,
    FieldValue,
    Piece,
)

TEXTS = [
    '{"a": 1, "b": [true, null, -2.5e3], "c": {"d~/": "x\\"y\\\\", "é": "ü\\u00e9😀"}}',
    '{"a":[],"b":{},"c":[[],[{}],[1,[2,3]]]}',
    '[\n  1,\n  {\n    "k": "v"\n  }\n]',
    '"text"',
    "12.5",
    "true",
    "[0]",
    '{"": {"": 0}, "0": [0, 1]}',
    '  {"a" : [ 1 , 2 ] }  ',
]


def values(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """All values in a value in the order of their ends, with their pointers."""
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for key, member in members:
        name = str(key).replace("~", "~0").replace("/", "~1")
        yield from values(member, f"{pointer}/{name}")
    yield pointer, value


def parsed(found: list[FieldValue]) -> list[tuple[str, Any]]:
    return [(each.pointer, json.loads(each.text)) for each in found if each.text is not None]


def scanned(*chunks: bytes) -> list[FieldValue]:
    scanner = ValueScanner()
    found = [value for chunk in chunks for value in scanner.push(chunk)]
    return found + scanner.end()


@pytest.mark.parametrize("text", TEXTS)
def test_in_every_split_each_value_is_what_its_pointer_resolves_to(text: str) -> None:
    data, expected = text.encode(), list(values(json.loads(text)))
    assert parsed(scanned(data)) == expected
    assert parsed(scanned(*(bytes([byte]) for byte in data))) == expected
    for first in range(len(data) + 1):
        assert parsed(scanned(data[:first], data[first:])) == expected


@pytest.mark.parametrize("text", TEXTS)
def test_a_value_is_reported_at_its_last_byte_and_a_number_at_the_next(text: str) -> None:
    data = text.encode()
    scanner, seen = ValueScanner(), 0
    for end in range(1, len(data) + 1):
        for value in scanner.push(data[end - 1 : end]):
            assert value.text is not None
            number = value.text[:1] in b"-0123456789"
            assert data[:end].endswith(value.text + data[end - 1 : end] * number)
            seen += 1
    assert seen + len(scanner.end()) == len(list(values(json.loads(text))))


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(5 if depth > 4 else 8)
    match kind:
        case 0 | 5:
            return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
        case 1 | 6:
            return {
                "".join(rng.choices('ab/~"\\é', k=rng.randrange(4))): random_value(rng, depth + 1)
                for _ in range(rng.randrange(4))
            }
        case 2:
            return rng.choice([0, -1, 12, 1.5, -2e-3, 10**30])
        case 3:
            return rng.choice([True, False, None])
    return "".join(rng.choices('ab"\\/\n{}[],:é😀', k=rng.randrange(8)))


@pytest.mark.parametrize("seed", range(40))
def test_random_values_in_random_splits(seed: int) -> None:
    rng = random.Random(seed)
    value = random_value(rng)
    indent = rng.choice([None, None, 2])
    data = json.dumps(value, indent=indent, ensure_ascii=rng.random() < 0.5).encode()
    cuts = sorted(rng.choices(range(len(data) + 1), k=rng.randrange(6)))
    chunks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    expected = list(values(value))
    found = scanned(*chunks)
    assert [each.pointer for each in found] == [pointer for pointer, _ in expected]
    for each, (_, known) in zip(found, expected, strict=True):
        if each.text is not None:
            assert json.loads(each.text) == known


def test_an_unfinished_value_is_not_reported() -> None:
    assert [each.pointer for each in scanned(b'{"a": 1, "b": [2, 34')] == ["/a", "/b/0"]
    assert scanned(b'{"a": "tex') == []
    assert scanned(b'{"a": tru') == []
    assert scanned(b"") == []


def test_a_large_value_is_reported_without_its_text_and_its_parts_with_it() -> None:
    long = "x" * LARGEST
    items = [f"{number}" * 100 for number in range(1, 200)]
    data = json.dumps({"long": long, "items": items}).encode()
    scanner, found = ValueScanner(), []
    for start in range(0, len(data), 100):
        found += scanner.push(data[start : start + 100])
        assert len(scanner._kept) <= LARGEST
    texts = {each.pointer: each.text for each in found}
    assert texts["/long"] is texts["/items"] is texts[""] is None
    assert [json.loads(texts[f"/items/{n}"] or b"") for n in range(199)] == items


def test_the_number_of_values_that_repeat_a_text_is_limited() -> None:
    deep = b"[" * 3000 + b"1" + b"]" * 3000
    found = scanned(deep)
    assert sum(each.text is not None for each in found) == 0  # its pointer is too long
    assert max(len(each.pointer) for each in found) <= LONGEST_POINTER
    shallow = b"[" * 20 + b"1" + b"]" * 20
    with_text = [each for each in scanned(shallow) if each.text is not None]
    assert len(with_text) == MOST_LEVELS + 1
    key = json.dumps({"k" * 5000: {"a": 1}, "b": 2}).encode()
    assert [each.pointer for each in scanned(key)] == ["/b", ""]


def read(reader: FieldReader, *pieces: Piece) -> list[Piece]:
    return reader.read(pieces)


def test_values_follow_the_piece_that_made_them_whole() -> None:
    reader = FieldReader(content=False)
    content, arguments = Content("1, 2"), CallArguments(3, '{"a": 1}')
    got = read(reader, content, CallStart(3, "f"), arguments, End("tool_calls"))
    values = [FieldValue("/a", b"1", 3), FieldValue("", b'{"a": 1}', 3)]
    assert got == [content, CallStart(3, "f"), arguments, Fields(values), End("tool_calls")]
    custom = CallArguments(4, '{"a": 1}', custom=True)
    assert read(reader, custom) == [custom]


@pytest.mark.parametrize(
    ("reason", "stopped_by", "whole"),
    [("stop", "", True), ("length", "", False), ("stop", "x", False)],
)
def test_a_number_as_the_whole_answer_is_complete_if_the_model_ends_it(
    reason: Literal["stop", "length", "tool_calls"], stopped_by: str, whole: bool
) -> None:
    reader, end = FieldReader(content=True), End(reason, stopped_by)
    assert read(reader, Content("12")) == [Content("12")]
    found = [Fields([FieldValue("", b"12")])] if whole else []
    assert read(reader, end) == [*found, end]
