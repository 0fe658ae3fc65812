"""Undeclared names: no object has a name twice, and no object runs out of possible names."""

from __future__ import annotations

import json
import random
import re
from functools import partial
from itertools import permutations
from typing import Any

import jsonschema
import pytest

from app.constraint import Compiler, Grammar, JsonObject, JsonSchema
from app.constraint.compiler import read_document
from app.constraint.constraint import CompiledConstraint
from app.core.arguments import Arguments, Parameters
from app.core.composite import Composite, FixedText, FreeText, NotStarting, Series
from app.core.errors import RejectedToken
from app.core.json_scan import Place
from app.core.literals import Literals
from app.text import Vocabulary
from tests.constraint.test_distinct import Choosing, check_all_masks, compare, follow, leap
from tests.constraint.test_masks import random_walk
from tests.constraint.walks import Walker
from tests.wide import many

PIECES = [
    b'{"', b'": ', b'": "', b', "', b'", "', b'"a"', b'"a": ', b'"a": 1', b', "a": 1', b'": 1, "',
    b'"a": 1, "a"', b'"a": 1, "b"', b'"}', b'}, "', b"1, ", b'{"a": {"a": 1', b'}, "a": ', b"ab",
    b'": {"', b'": 1, "a": ', b'": 1, "b": 1}', b"}}", b'x"', b'"x', b"true", b'", "a": "',
]  # fmt: skip


def mapping(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", **keywords}


INTEGER = {"type": "integer", "minimum": 1, "maximum": 1}
LETTERS = {"enum": ["a", "b", "ab"]}
SCHEMAS: dict[str, Any] = {
    "integers": mapping(additionalProperties={"type": "integer"}),
    "strings": mapping(additionalProperties={"type": "string"}),
    "beside declared ones": mapping(
        properties={"a": {"type": "integer"}, "ab": {"type": "string"}},
        required=["ab"],
        additionalProperties={"type": ["integer", "null"]},
    ),
    "by pattern": mapping(
        patternProperties={"^a": {"type": "integer"}, "b$": {"type": "integer"}},
        additionalProperties=False,
    ),
    "by pattern and others": mapping(
        patternProperties={"^a": {"type": "integer"}}, additionalProperties={"type": "boolean"}
    ),
    "names of a length": mapping(propertyNames={"maxLength": 1}, additionalProperties=INTEGER),
    "few names": mapping(propertyNames=LETTERS, additionalProperties={"type": "boolean"}),
    "few names, all of them": mapping(
        propertyNames=LETTERS, additionalProperties={"type": "boolean"}, minProperties=3
    ),
    "few names beside declared ones": mapping(
        properties={"x": {"type": "integer"}},
        patternProperties={"^[ab]$": {"type": "integer"}},
        additionalProperties=False,
    ),
    "a few of many": mapping(
        additionalProperties={"type": "integer"}, minProperties=2, maxProperties=3
    ),
    "maps of maps": mapping(
        additionalProperties=mapping(additionalProperties={"type": "integer"}), minProperties=1
    ),
    "lists of maps": {"type": "array", "items": mapping(additionalProperties=INTEGER)},
    "recursion": {
        "$ref": "#/$defs/tree",
        "$defs": {"tree": mapping(additionalProperties={"$ref": "#/$defs/tree"})},
    },
    "one of two readings": {
        "anyOf": [
            mapping(additionalProperties={"type": "integer"}),
            mapping(patternProperties={"^a": {"type": "string"}}, additionalProperties=False),
        ]
    },
    "maps in a list of different items": {
        "type": "array",
        "uniqueItems": True,
        "items": mapping(
            properties={"x": mapping(additionalProperties={"type": "integer"})},
            required=["x"],
        ),
    },
    "different items in maps": mapping(
        additionalProperties={"type": "array", "uniqueItems": True, "items": {"type": "string"}}
    ),
}
FINITE: dict[str, tuple[Any, list[str], int, int]] = {
    "few names": (SCHEMAS["few names"], ["a", "b", "ab"], 0, 3),
    "few names, all of them": (SCHEMAS["few names, all of them"], ["a", "b", "ab"], 3, 3),
    "few names by pattern": (
        mapping(patternProperties={"^[ab]$": {"type": "boolean"}}, additionalProperties=False),
        ["a", "b"],
        0,
        2,
    ),
    "names in two classes": (
        mapping(
            propertyNames=LETTERS,
            patternProperties={"^a": {"type": "boolean"}},
            additionalProperties={"enum": [True, False]},
            maxProperties=2,
        ),
        ["a", "b", "ab"],
        0,
        2,
    ),
}
"""Schema, the names of its booleans, and the minimum and maximum number of members."""


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    singles = [bytes([byte]) for byte in range(256)]
    return Vocabulary([*singles, *PIECES, None], eos_ids=[256 + len(PIECES)])


@pytest.fixture(scope="module")
def compiler(vocabulary: Vocabulary) -> Compiler:
    return Compiler(vocabulary)


def pairs_of(text: str | bytes) -> Any:
    """The parsed ``text``; asserts that no object has a name twice."""

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names)), text
        return dict(pairs)

    return json.loads(text, object_pairs_hook=checked)


def texts_of(name: str) -> list[bytes]:
    """All answers of a finite schema."""
    schema, names, low, high = FINITE[name]
    chosen = [each for size in range(low, high + 1) for each in permutations(names, size)]
    answers = []
    for order in chosen:
        for number in range(1 << len(order)):
            value = {each: bool(number >> bit & 1) for bit, each in enumerate(order)}
            jsonschema.Draft202012Validator(schema).validate(value)
            answers.append(json.dumps(value).encode())
    return answers


@pytest.mark.parametrize("name", FINITE)
def test_masks_are_those_of_all_answers_written_out(
    name: str, vocabulary: Vocabulary, compiler: Compiler
) -> None:
    constraint = compiler.compile(JsonSchema(FINITE[name][0]))
    check_all_masks(constraint, vocabulary, texts_of(name))


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_walk_ends_valid_within_its_budget_with_no_name_twice(
    name: str, vocabulary: Vocabulary, compiler: Compiler
) -> None:
    schema = SCHEMAS[name]
    constraint = compiler.compile(JsonSchema(schema))
    likely = {t for t, data in enumerate(vocabulary.token_bytes) if data and data in b'"ab1: ,{x}'}
    likely |= {256 + index for index in range(len(PIECES))}
    for seed in range(many(15, 3)):
        rng, state = Choosing(seed, likely), constraint.start()
        checked = partial(compare, vocabulary=vocabulary) if seed % 5 == 0 else leap
        budget = state.shortest_tokens() + rng.choice([0, 0, 1, 2, 3, 5, 8, 13, 30, 60])
        answer = random_walk(state, vocabulary, rng, budget, checked)
        jsonschema.Draft202012Validator(schema).validate(pairs_of(answer))


def test_random_maps_hold_what_is_valid_and_no_name_twice() -> None:
    accepted = rejected = 0
    for seed in range(many(150)):
        rng = random.Random(seed)
        schema = random_map(rng)
        walker = Walker.of(JsonSchema(schema))
        validator = jsonschema.Draft202012Validator(schema)
        for _ in range(3):
            text = walker.sample(rng, steps=rng.choice([0, 20, 60]))
            validator.validate(pairs_of(text))
        for _ in range(12):
            value = random_value(rng)
            valid = validator.is_valid(value)
            assert walker.accepts_in_some_order(value) == valid, (schema, value)
            accepted += valid
            if valid and value:
                name = rng.choice([*value])
                twice = json.dumps(value)[:-1] + ", " + json.dumps({name: value[name]})[1:]
                assert not walker.accepts(twice), (schema, twice)
            rejected += not valid
    assert accepted > many(200)
    assert rejected > many(200)


def random_map(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    def value() -> dict[str, Any]:
        kinds: list[Any] = [{"type": "integer"}, {"type": "boolean"}, {"enum": [1, "a"]}]
        return random_map(rng, depth + 1) if depth < 1 and rng.random() < 0.3 else rng.choice(kinds)

    schema = mapping(additionalProperties=rng.choice([value(), value(), False]))
    if rng.random() < 0.6 or not schema["additionalProperties"]:
        patterns = rng.sample(["^a", "b$", "^[ab]$", "c"], rng.randint(1, 2))
        schema["patternProperties"] = {pattern: value() for pattern in patterns}
    if rng.random() < 0.4:
        schema["properties"] = {name: value() for name in rng.sample(["a", "b", "abc"], 2)}
    if rng.random() < 0.4:
        asked: list[Any] = [{"maxLength": 1}, {"enum": ["a", "b", "c", "ac"]}, {"pattern": "a|c"}]
        schema["propertyNames"] = rng.choice(asked)
    if rng.random() < 0.3:
        schema["maxProperties"] = rng.randint(1, 3)
    return schema


def random_value(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    values = [0, 1, 7, True, "a", None]
    names = rng.sample(["a", "b", "c", "ab", "ac", "abc", "bc", ""], rng.randint(0, 3))
    return {
        name: random_value(rng, 1) if depth < 1 and rng.random() < 0.2 else rng.choice(values)
        for name in names
    }


def test_a_name_in_another_spelling_is_the_same_name(compiler: Compiler) -> None:
    constraint = compiler.compile(JsonSchema(SCHEMAS["integers"]))
    for text in ('{"a": 1, "a"', r'{"a": 1, "\u0061"', r'{"\u0061": 1, "a"', '{"": 1, ""'):
        with pytest.raises(RejectedToken):
            follow(constraint, text)
    assert follow(constraint, r'{"\n": 1, "\"": 2, "é": 3, "\u0001": 4}').is_complete


def test_values_are_spelled_as_freely_as_before(compiler: Compiler) -> None:
    constraint = compiler.compile(JsonSchema(SCHEMAS["strings"]))
    assert follow(constraint, r'{"a": "\u0061", "b": "\/a"}').is_complete


def test_after_the_last_name_the_object_closes(compiler: Compiler) -> None:
    constraint = compiler.compile(JsonSchema(SCHEMAS["few names"]))
    assert follow(constraint, '{"ab": true, "b": true, "a": true').forced() == b"}"
    assert follow(constraint, '{"ab": true, "b": true, "').shortest_completion()[:4] == b'a": '
    counted = compiler.compile(JsonSchema(SCHEMAS["names of a length"]))
    state = counted.start()
    state.accept_bytes(b"{")
    for number in range(200):
        state.accept_bytes(f'{", " if number else ""}"{chr(0x100 + number)}": 1'.encode())
    assert state.shortest_completion() == b"}"


def test_a_map_may_ask_for_all_names_that_there_are(compiler: Compiler) -> None:
    constraint = compiler.compile(JsonSchema(SCHEMAS["few names, all of them"]))
    assert {*pairs_of(constraint.start().shortest_completion())} == {"a", "b", "ab"}


def test_the_budget_of_a_member_that_a_negation_needs_is_for_a_new_name() -> None:
    vocabulary = Vocabulary([*(bytes([byte]) for byte in range(256)), b'""', None], eos_ids=[257])
    schema = JsonSchema(mapping(**{"not": {"additionalProperties": {"type": "null"}}}))
    state = follow(Compiler(vocabulary).compile(schema), '{"": null')
    assert state.shortest_tokens() == len(', "a": 0}')
    assert not state.fits(len(', "a": 0}') - 1)


def test_a_budget_is_enough_where_the_shortest_name_is_the_only_one_of_its_kind() -> None:
    vocabulary = Vocabulary([*(bytes([byte]) for byte in range(256)), b'""', None], eos_ids=[257])
    other = {"patternProperties": {"^$": {"type": "integer"}}, "minProperties": 2}
    schema = JsonSchema(mapping(**other, additionalProperties={"type": "boolean"}))
    state = follow(Compiler(vocabulary).compile(schema), '{"": 1')
    assert state.fits(len(', "0": true}'))
    assert not state.fits(len(', "0": true}') - 1)


def test_a_shortest_completion_takes_the_shortest_name_that_is_new(compiler: Compiler) -> None:
    inner = mapping(additionalProperties={"type": "integer"}, minProperties=2)
    declared = mapping(properties={"b": {}, "a": {}, "ba": inner}, required=["c"], minProperties=3)
    state = compiler.compile(JsonSchema(declared, close_objects=True)).start()
    assert state.shortest_completion() == b'{"b": 0, "a": 0, "c": 0}'


def test_maps_differ_inside_an_answer_with_text_around_it(compiler: Compiler) -> None:
    spec = Composite(Series((FixedText("map: "), JsonSchema(SCHEMAS["integers"]))))
    with pytest.raises(RejectedToken):
        follow(compiler.compile(spec), 'map: {"a": 1, "a"')


def test_a_map_inside_a_grammar_may_repeat_names(compiler: Compiler) -> None:
    grammar = 'start: "x" %json {"type": "object", "additionalProperties": {"type": "integer"}}'
    assert follow(compiler.compile(Grammar(grammar, "lark")), 'x{"a": 1, "a": 2}').is_complete


def test_states_are_those_of_the_schema_however_many_names_there_are(compiler: Compiler) -> None:
    constraint: CompiledConstraint = compiler.compile(JsonSchema(SCHEMAS["integers"]))
    states = []
    for count in (20, 1_000):
        state = constraint.start()
        text = json.dumps({f"name {number}": number % 7 for number in range(count)})
        for start in range(0, len(text), 5):
            state.mask(100_000, work=20_000)
            state.accept_bytes(text[start : start + 5].encode())
        assert state.is_complete
        states.append(constraint.num_states)
    assert states[0] == states[1] < 100


def test_a_chosen_value_keeps_the_names_seen(compiler: Compiler) -> None:
    schema = mapping(additionalProperties={"enum": ["x", "xy"]}, minProperties=1)
    state = follow(compiler.compile(JsonSchema(schema)), '{"a": "x", "b": ')
    choice = state.choice(Place.VALUE)
    assert choice is not None
    after = state.only(next(way for way in choice.ways if way.text == b'"xy"'))
    assert after.forced() == b'"xy"'
    after.accept_bytes(b'"xy", "')
    assert after.copy().shortest_completion() != b'a": "x"}'
    for name in (b'a"', b'b"'):
        with pytest.raises(RejectedToken):
            after.copy().accept_bytes(name)


GEMMA = Literals(
    equals=":",
    comma=",",
    end="}",
    quote='<|"|>',
    escaped=False,
    words=("null", "false", "true"),
    colon=":",
    bare_names=True,
)
PARAMETERS = Parameters("<p=", "</p>", "</p>", between=">")


def arguments(notation: Literals | Parameters, schema: Any, end: str) -> Composite:
    own = JsonSchema(schema, close_objects=True)
    return Composite(Series((FixedText("f "), Arguments(own, notation, schema), FixedText(end))))


@pytest.mark.parametrize(
    ("notation", "begun", "said", "other", "end"),
    [
        (Literals(), 'f m={"a": 1, "', 'a"', 'b": 2}', ")"),
        (Literals(quote="'"), "f m={'a': 1, '", "a'", "b': 2}", ")"),
        (GEMMA, "f m:{a:1,", "a:", "ab:2}", "}"),
        (PARAMETERS, 'f <p=m>{"a": 1, "', 'a"', 'b": 2}', "</p>!"),
    ],
)
def test_names_differ_inside_arguments_of_every_notation(
    notation: Literals | Parameters,
    begun: str,
    said: str,
    other: str,
    end: str,
    compiler: Compiler,
) -> None:
    schema = mapping(properties={"m": SCHEMAS["integers"]}, required=["m"])
    last = end.removeprefix("</p>") if isinstance(notation, Parameters) else end
    constraint = compiler.compile(arguments(notation, schema, last))
    state = follow(constraint, begun)
    with pytest.raises(RejectedToken):
        state.copy().accept_bytes(said.encode())
    state.accept_bytes((other + end).encode())
    assert state.is_complete


def test_names_differ_in_each_text_of_an_answer_and_not_beyond_it(compiler: Compiler) -> None:
    text = JsonSchema(SCHEMAS["integers"])
    free = FreeText(without=("<",))
    constraint = compiler.compile(Composite(Series((free, FixedText("<"), text, free))))
    before, after = '{"a": 1, "a": [2]} ', ' {"b": 1, "b": {"b": 2}, "'
    state = follow(constraint, before + '<{"b": 1, "a": 2}' + after)
    assert state.is_complete
    with pytest.raises(RejectedToken):
        follow(constraint, before + '<{"b": 1, "b"')
    twice = compiler.compile(Composite(Series((text, FixedText("\n"), text))))
    assert follow(twice, '{"a": 1}\n{"a": 1}').is_complete


def test_names_differ_where_an_answer_may_not_begin_with_something(compiler: Compiler) -> None:
    part = NotStarting(JsonSchema(SCHEMAS["integers"]), ('{"x',))
    constraint = compiler.compile(Composite(Series((part,))))
    for text in ('{"x', '{"a": 1, "a"'):
        with pytest.raises(RejectedToken):
            follow(constraint, text)
    assert follow(constraint, '{"a": 1, "x": 2}').is_complete


def test_names_differ_beside_values_that_stand_in_the_prompt(compiler: Compiler) -> None:
    schema = mapping(additionalProperties={"type": "string", "x-verbatim": True})
    unbound = compiler.compile(JsonSchema(schema))
    document = read_document(["some words"], False)
    constraint = unbound.bind({hole.source: document for hole in unbound.holes})
    state = constraint.start()
    state.accept_bytes(b'{"a": "some", "')
    with pytest.raises(RejectedToken):
        state.copy().accept_bytes(b'a"')
    state.mask(budget=20)
    state.accept_bytes(b'b": "words"}')
    assert state.is_complete


@pytest.mark.parametrize("schema", [{}, mapping(), JsonObject(), mapping(properties={"x": {}})])
def test_names_differ_in_objects_that_the_schema_leaves_open(
    schema: Any, compiler: Compiler
) -> None:
    spec = schema if isinstance(schema, JsonObject) else JsonSchema(schema)
    constraint = compiler.compile(spec)
    for text in ('{"a": 1, "a"', r'{"a": 1, "\u0061"', '{"b": [{"c": 1, "c"', '{"x": {"": 1, ""'):
        with pytest.raises(RejectedToken):
            follow(constraint, text)
    assert follow(constraint, '{"a": {"a": [{"a": 1}, {"a": 2}]}, "b": "{\\"a"}').is_complete


@pytest.mark.parametrize("required", [False, True])
def test_a_map_among_thousands_of_members_is_followed_to_its_end(
    required: bool, compiler: Compiler
) -> None:
    # Each mask under such a small budget needs a completion, which has all required names.
    names = [f"n{number}" for number in range(80 if required else 2_000)]
    inner = mapping(
        properties={name: {"type": "boolean"} for name in names},
        required=names if required else [],
        additionalProperties=False,
    )
    state = compiler.compile(JsonSchema(mapping(additionalProperties=inner))).start()
    text = json.dumps(dict.fromkeys(names if required else names[:3], True))
    for data in ('{"a": ', text, ', "b": {"n0": true'):
        for piece in re.findall(r"[^,]+|,", data):
            for budget in (None, 5, 1_000_000):
                state.mask(budget)
            state.accept_bytes(piece.encode())
    with pytest.raises(RejectedToken):
        state.copy().accept_bytes(text.removeprefix('{"n0": true').encode() + b', "a"')
    state.accept_bytes(state.shortest_completion())
    assert state.is_complete
