from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.constraint import Compiler
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import INFINITE, Expression
from app.core.constraint import ConstraintSpec
from app.core.specs import JsonObject, JsonSchema
from app.text import Vocabulary
from tests.conformance.trials import validator_of
from tests.conformance.walks import BruteForce, walk
from tests.constraint.walks import Walker
from tests.e2e.schemas import random_schema
from tests.wide import many

INDENTS = (0, 1, 2, 4, 16)
LAYOUTS = ("spaced", "compact", "flexible", *(f"indent:{count}" for count in INDENTS))
DEEPEST = 16
"""Containers from this depth on are on one line in ``indent:N``."""

SCALARS = st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.text()
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)

TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {
                "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                "note": True,
            },
            "required": ["kids"],
        }
    },
}
FIXED: list[Any] = [
    {},
    [],
    {"a": {}, "b": []},
    [[], [{}], [[1, {"x": None}], "two words: [1, 2]"]],
    {"k e y": {"deep": [1.5, {"er": [True]}]}, "é\n": "\u2028, : "},
]
SCHEMAS: list[Any] = [
    True,
    TREE,
    {"enum": FIXED},
    {"type": "array", "prefixItems": [{"const": FIXED[3]}, {"type": "integer"}], "minItems": 1},
    {"type": "object", "additionalProperties": {"type": "array", "maxItems": 2}},
    {"type": "object", "patternProperties": {"^x": {"enum": [[], [0]]}}, "minProperties": 1},
    {"type": "object", "properties": {"only": {"const": {}}}, "additionalProperties": False},
    {"anyOf": [{"type": "array", "items": {"enum": [{"a": [1]}, {}]}}, {"const": [[2]]}]},
    *(random_schema(random.Random(seed)) for seed in range(12)),
]


@cache
def anything(whitespace: str) -> Walker:
    return Walker.of(JsonSchema(True, whitespace=whitespace))


def dumped(value: Any, whitespace: str, depth: int = 0) -> str:
    """``value`` in a layout without free white space, written by ``json.dumps`` where possible."""
    if whitespace == "compact":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if whitespace == "spaced" or depth == DEEPEST or not value or not _is_container(value):
        return json.dumps(value, ensure_ascii=False)
    indent = " " * int(whitespace.partition(":")[2])
    brackets = "{}" if isinstance(value, dict) else "[]"
    items = value.items() if isinstance(value, dict) else ((None, each) for each in value)
    lines = [
        ("" if isinstance(value, list) else json.dumps(name, ensure_ascii=False) + ": ")
        + dumped(each, whitespace, depth + 1)
        for name, each in items
    ]
    inside = "\n" + indent * (depth + 1)
    return f"{brackets[0]}{inside}{f',{inside}'.join(lines)}\n{indent * depth}{brackets[1]}"


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list)


class Members(dict[str, Any]):
    """An object that keeps members with repeated names, so that ``json.dumps`` writes all."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Any:
        return self._pairs


def skeleton(text: str) -> str:
    """``text`` without its strings, numbers and words: brackets, commas, colons, white space."""
    return re.sub(r'"(?:[^"\\]|\\.)*"|[-+.\w]+', "_", text)


def white_runs(text: str) -> list[int]:
    """Lengths of the runs of white space outside strings."""
    return [len(run) for run in re.findall(r"[ \t\r\n]+", skeleton(text))]


def longest_run(whitespace: str) -> int:
    if whitespace.startswith("indent:"):
        return 1 + DEEPEST * int(whitespace.partition(":")[2])
    return {"spaced": 1, "compact": 0, "flexible": 3}[whitespace]


def nested(depth: int, *, objects: bool) -> Any:
    value: Any = [1, {}]
    for level in range(depth):
        value = {"a": value, "b": level} if objects else [value, level]
    return value


@given(value=JSON, count=st.sampled_from(INDENTS))
@settings(max_examples=many(150))
def test_any_value_has_every_value_as_json_dumps_indents_it(value: Any, count: int) -> None:
    walker = anything(f"indent:{count}")
    indented = json.dumps(value, ensure_ascii=False, indent=count)
    assert walker.accepts(indented)
    for other in (json.dumps(value), json.dumps(value, indent=count + 1)):
        assert walker.accepts(other) == (skeleton(other) == skeleton(indented))


@given(value=JSON)
@settings(max_examples=many(150))
def test_any_value_has_every_value_as_json_dumps_writes_it_compactly(value: Any) -> None:
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert anything("compact").accepts(compact)
    spaced = json.dumps(value, ensure_ascii=False)
    assert anything("compact").accepts(spaced) == (skeleton(spaced) == skeleton(compact))


@given(value=JSON)
@settings(max_examples=many(150))
def test_flexible_has_every_value_in_each_form_whose_places_are_small(value: Any) -> None:
    walker = anything("flexible")
    assert walker.accepts(json.dumps(value, ensure_ascii=False))
    assert walker.accepts(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    for count in (0, 1, 2):
        text = json.dumps(value, ensure_ascii=False, indent=count)
        assert walker.accepts(text) == (max(white_runs(text), default=0) <= 3)


@given(value=JSON, data=st.data())
@settings(max_examples=many(150))
def test_flexible_has_two_blanks_and_a_newline_in_every_place(value: Any, data: Any) -> None:
    places = re.split(
        r'("(?:[^"\\]|\\.)*"|[-+.\w]+|[\[\]{},:])', json.dumps(value, separators=(",", ":"))
    )
    tokens = [token for token in places if token]
    spaces = ["", " ", "  ", "\n", " \n", "\n ", "  \n", " \n ", "\n  "]
    gaps = [data.draw(st.sampled_from(spaces)) for _ in tokens[1:]]
    text = "".join(a + b for a, b in zip(tokens, [*gaps, ""], strict=True))
    assert json.loads(text) == value
    assert anything("flexible").accepts(text)


@pytest.mark.parametrize(
    "text",
    ["[1   ]", "[\n\n1]", "[1,\t2]", "[1\r\n]", '{"a" :   1}', " 1", "1 ", "[1] ", "[ \n  ]"],
)
def test_flexible_rejects_longer_white_space_and_any_at_the_ends(text: str) -> None:
    assert not anything("flexible").accepts(text)


@pytest.mark.parametrize("count", INDENTS)
@pytest.mark.parametrize("depth", [1, 14, 15, 16, 17, 40])
@pytest.mark.parametrize("objects", [True, False])
def test_containers_below_the_sixteenth_are_on_one_line(
    count: int, depth: int, objects: bool
) -> None:
    value = nested(depth, objects=objects)
    text = dumped(value, f"indent:{count}")
    assert json.loads(text) == value
    assert anything(f"indent:{count}").accepts(text)
    whole = json.dumps(value, indent=count)
    assert (text == whole) == (depth < DEEPEST)
    assert anything(f"indent:{count}").accepts(whole) == (text == whole)


@pytest.mark.parametrize("whitespace", LAYOUTS)
@pytest.mark.parametrize("value", FIXED, ids=str)
def test_a_constant_is_written_in_that_form_alone(value: Any, whitespace: str) -> None:
    own = dumped(value, "spaced" if whitespace == "flexible" else whitespace)
    for schema in ({"const": value}, {"enum": [value, 12]}):
        walker = Walker.of(JsonSchema(schema, whitespace=whitespace))
        for other in LAYOUTS:
            if other != "flexible":
                text = dumped(value, other)
                assert walker.accepts(text) == (text == own)


NEGATED: list[Any] = [
    {"not": {"const": {"a": 1}}},
    {"not": {"enum": [[1, 2], {"a": 1}, []]}},
    {"type": "object", "not": {"const": {}}},
    {"type": "array", "not": {"contains": {"const": {"a": 1}}}},
    {"type": "object", "additionalProperties": {"not": {"const": []}}},
    {"if": {"const": [1, 2]}, "then": False},
    {"type": "array", "contains": {"const": [1]}, "maxContains": 1},
    {"oneOf": [{"enum": [[1, 2], [2]]}, {"type": "array", "items": {"type": "integer"}}]},
]
OTHERS: list[Any] = [
    {"a": 1}, {"a": 2}, {"x": []}, {"x": [1]}, {}, [], [1, 2], [2], [3], [[1], [1]], [[1], [2]],
    [{"a": 1}], [{"a": 2}],
]  # fmt: skip


@pytest.mark.parametrize("whitespace", LAYOUTS)
@pytest.mark.parametrize("schema", NEGATED, ids=str)
def test_what_is_forbidden_is_forbidden_in_every_form(schema: Any, whitespace: str) -> None:
    walker = Walker.of(JsonSchema(schema, whitespace=whitespace))
    for value in OTHERS:
        texts = [dumped(value, name) for name in LAYOUTS if name != "flexible"]
        texts += [text.replace("[]", "[ ]").replace("{}", "{\n}") for text in texts]
        if not validator_of(schema).is_valid(value):
            assert not any(walker.accepts(text) for text in texts), value
        elif whitespace != "flexible":
            assert walker.accepts(dumped(value, whitespace)), value


@pytest.mark.parametrize("whitespace", LAYOUTS)
def test_a_constant_inside_containers_is_indented_with_them(whitespace: str) -> None:
    value = {"a": {"x": [1, {"y": []}]}, "list": [[2], {"z": {}}]}
    schema = {
        "type": "object",
        "properties": {
            "a": {"const": value["a"]},
            "list": {"type": "array", "items": {"enum": value["list"]}},
        },
    }
    walker = Walker.of(JsonSchema(schema, close_objects=True, whitespace=whitespace))
    own = "spaced" if whitespace == "flexible" else whitespace
    assert walker.accepts(dumped(value, own))


@pytest.mark.parametrize("whitespace", LAYOUTS)
@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_every_text_is_valid_and_as_json_dumps_would_write_it(number: int, whitespace: str) -> None:
    schema = SCHEMAS[number]
    walker = Walker.of(JsonSchema(schema, whitespace=whitespace))
    rng = random.Random(number)
    for _ in range(6):
        text = walker.sample(rng, steps=rng.choice([0, 30, 150])).decode()
        assert validator_of(schema).is_valid(json.loads(text)), text
        assert max(white_runs(text), default=0) <= longest_run(whitespace)
        if whitespace != "flexible":
            value = json.loads(text, object_pairs_hook=Members)
            assert skeleton(text) == skeleton(dumped(value, whitespace))


def places(walker: Walker, rng: random.Random) -> Iterator[Expression]:
    """States of a random text outside its strings, including the one at its end."""
    here, text = walker.root, walker.sample(rng, steps=60)
    inside, escaped = False, False
    yield here
    for byte in text:
        here = walker.derivatives.derivative(here, byte)
        inside ^= byte == ord('"') and not escaped
        escaped = inside and byte == ord("\\") and not escaped
        if not inside:
            yield here


def longest_white_path(derivatives: Derivatives, here: Expression, patience: int) -> int:
    """Length of the longest white space that may follow ``here``, at most ``patience``."""
    front = {here}
    for length in range(patience):
        front = {derivatives.derivative(each, byte) for each in front for byte in b" \t\r\n"} - {
            derivatives.pool.empty
        }
        front = {each for each in front if derivatives.length(each) < INFINITE}
        if not front:
            return length
    return patience


@pytest.mark.parametrize("whitespace", LAYOUTS)
@pytest.mark.parametrize(
    "spec", [JsonObject(), *(JsonSchema(schema) for schema in SCHEMAS[:9])], ids=str
)
def test_no_place_lets_white_space_run_on(spec: ConstraintSpec, whitespace: str) -> None:
    assert isinstance(spec, JsonSchema | JsonObject)
    walker = Walker.of(
        JsonObject(whitespace)
        if isinstance(spec, JsonObject)
        else JsonSchema(spec.schema, whitespace=whitespace)
    )
    most = longest_run(whitespace)
    for seed in range(3):
        for here in places(walker, random.Random(seed)):
            assert longest_white_path(walker.derivatives, here, most + 2) <= most


PIECES = [
    b'{"', b'": ', b'":', b'", "', b'","', b'"}', b"[]", b"{}", b"[1", b", ", b"  ", b"    ",
    b"\n", b"\n  ", b"\n    ", b",\n", b'",\n  "', b"\n}", b"\n]", b"[\n", b'{\n  "', b" \n",
    b"na", b"12", b"null", "é".encode(),
]  # fmt: skip
VOCABULARY = Vocabulary(
    [*(bytes([byte]) for byte in range(256)), *PIECES, None], eos_ids=[256 + len(PIECES)]
)


@pytest.mark.parametrize("whitespace", LAYOUTS)
def test_walks_end_whole_and_valid_within_their_budget(whitespace: str) -> None:
    compiler, check = Compiler(VOCABULARY), BruteForce(VOCABULARY)
    failures: list[str] = []
    for number, schema in enumerate(SCHEMAS):
        constraint = compiler.compile(JsonSchema(schema, whitespace=whitespace))
        for place in range(many(4, 2)):
            rng = random.Random(number * 10 + place)
            checked = check if place % 2 else None
            failures += walk(constraint, VOCABULARY, schema, rng, checked)
    assert failures == []
