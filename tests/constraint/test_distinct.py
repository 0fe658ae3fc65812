"""Unique items: memory of the items seen, masks without them, and budgets that suffice."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from functools import partial
from itertools import permutations
from typing import Any

import jsonschema
import pytest

from app.constraint import Compiler, Grammar, JsonSchema, compile_program
from app.constraint.constraint import AutomatonState, CompiledConstraint
from app.constraint.language.counting import Counting
from app.constraint.language.derivatives import measured
from app.constraint.language.expressions import ExpressionPool
from app.constraint.program import Program
from app.constraint.stored import compile_and_dump, load
from app.core.composite import Composite, FixedText, Series
from app.core.errors import (
    ConstraintTooComplex,
    RejectedToken,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from app.text import Vocabulary
from tests.conformance.walks import instruments
from tests.constraint.test_masks import acceptable, brute_force, random_walk
from tests.wide import many
from tools import datasets

PIECES = [
    b'", "', b', "', b', "a"', b'"a"', b'"a", "a"', b'"a", "b"', b'a"', b"ab", b"aa", b"1, 2",
    b"1, 1", b", 1", b"12", b'[["', b'"]', b'"], ["', b'{"a": "', b'"}, {"', b'"}', b", true",
    b"true, true", b'"", ""', b'{"', b'": ', b'": 1, "a"', b'": true, "', b', "a": ', b'"a": 1',
    b" 1", b'"a"]', b', "a", "b"', b"1]", b"0, 1",
]  # fmt: skip


def unique(**keywords: Any) -> dict[str, Any]:
    return {"type": "array", "uniqueItems": True, **keywords}


LETTERS = {"type": "string", "pattern": "^[ab]{1,2}$"}
RECORD = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}},
    "required": ["a"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, Any] = {
    "strings": unique(items={"type": "string"}),
    "strings, so many": unique(items={"type": "string"}, minItems=4),
    "all of few integers": unique(
        items={"type": "integer", "minimum": 0, "maximum": 12}, minItems=13
    ),
    "few strings": unique(items=LETTERS, minItems=5),
    "numbers": unique(items={"type": "number"}, minItems=2),
    "anything": unique(),
    "records": unique(items=RECORD, minItems=2),
    "one letter over and over": unique(items={"type": "string", "pattern": "^a*$"}, minItems=4),
    "booleans first": unique(prefixItems=[{"type": "boolean"}] * 2, minItems=3),
    "lists that differ, of items that differ": unique(
        items=unique(items={"type": "string", "pattern": "^a*$"}, minItems=1, maxItems=2),
        minItems=3,
    ),
    "one that is wanted": unique(items={"type": "integer"}, contains={"const": 5}),
    "at most two of a kind": unique(
        items={"enum": [*range(20), "a", "ab", "ba"]},
        contains={"type": "string"},
        minContains=0,
        maxContains=2,
        minItems=5,
    ),
    "several lists": {
        "type": "object",
        "properties": {
            "x": unique(items={"type": "string"}, minItems=2),
            "y": unique(items={"anyOf": [{"enum": ["foo"]}, {"type": "integer"}]}, minItems=1),
        },
        "required": ["x", "y"],
    },
    "one of two readings": {
        "anyOf": [
            unique(items={"type": "integer"}),
            {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2},
        ]
    },
    "so many names": {
        "type": "object",
        "minProperties": 3,
        "properties": {"a": {"type": "integer"}},
        "patternProperties": {"^x": {"type": "integer"}},
        "additionalProperties": {"type": "boolean"},
    },
    "so many names in each of them": {
        "type": "object",
        "minProperties": 2,
        "propertyNames": {"pattern": "^[ab]+$"},
        "additionalProperties": {
            "type": "object",
            "minProperties": 2,
            "maxProperties": 3,
            "additionalProperties": {"type": "boolean"},
        },
    },
    "chains beside strings": unique(
        items={
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"a": {"anyOf": [{"$ref": "#/items/anyOf/1"}, {"type": "null"}]}},
                    "required": ["a"],
                    "additionalProperties": False,
                },
            ]
        },
        minItems=2,
    ),
    "a tree": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": unique(items={"$ref": "#/$defs/node"}),
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    },
}
FINITE: dict[str, tuple[Any, list[Any], int, int]] = {
    "strings": (
        unique(items=LETTERS, minItems=2, maxItems=3),
        ["a", "b", "aa", "ab", "ba", "bb"],
        2,
        3,
    ),
    "integers": (unique(items={"type": "integer", "minimum": 0, "maximum": 3}), [0, 1, 2, 3], 0, 4),
    "first a boolean": (
        unique(prefixItems=[{"type": "boolean"}], items={"type": ["boolean", "null"]}, minItems=1),
        [True, False, None],
        1,
        3,
    ),
    "no more than one number": (
        unique(items={"enum": ["a", "aa", 1, 2, 12]}, contains={"type": "integer"}, maxContains=1),
        ["a", "aa", 1, 2, 12],
        1,
        3,
    ),
    "two strings, and what else there is": (
        unique(
            items={"enum": ["a", "b", "ab", None]},
            contains={"type": "string"},
            minContains=1,
            maxContains=2,
            minItems=2,
        ),
        ["a", "b", "ab", None],
        2,
        3,
    ),
    "perhaps one of a kind, twenty in all": (
        unique(
            items={"enum": [*range(20)]},
            contains={"minimum": 2},
            minContains=0,
            maxContains=1,
        ),
        [*range(20)],
        0,
        3,
    ),
}
"""Schema, its possible items, and the minimum and maximum number of items."""


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    singles = [bytes([byte]) for byte in range(256)]
    return Vocabulary([*singles, *PIECES, b"12", None], eos_ids=[257 + len(PIECES)])


@pytest.fixture(scope="module")
def compiler(vocabulary: Vocabulary) -> Compiler:
    return Compiler(vocabulary)


def texts_of(name: str) -> Iterator[bytes]:
    """All answers of a finite schema, one after the other."""
    schema, items, low, high = FINITE[name]
    validator = jsonschema.Draft202012Validator(schema)
    for size in range(low, high + 1):
        for chosen in permutations(items, size):
            if validator.is_valid([*chosen]):
                yield json.dumps(chosen).encode()


def check_all_masks(
    constraint: CompiledConstraint, vocabulary: Vocabulary, texts: list[bytes]
) -> None:
    """Compare masks along random answers with ``texts``, the list of all answers."""
    prefixes = {text[:size] for text in texts for size in range(len(text) + 1)}
    spelled = vocabulary.token_bytes
    for seed in range(many(40, 4)):
        rng, state, answer = random.Random(seed), constraint.start(), b""
        while True:
            expected = [
                token
                for token, data in enumerate(spelled)
                if (answer in texts if data is None else answer + data in prefixes)
            ]
            assert acceptable(state) == expected, answer
            assert (answer + state.shortest_completion()) in texts
            long = [t for t in expected if len(spelled[t] or b"") > 1]
            token = rng.choice(long if long and rng.random() < 0.5 else expected)
            if token in vocabulary.eos_ids:
                break
            state.accept(token)
            answer += spelled[token] or b""


@pytest.mark.parametrize("name", FINITE)
def test_masks_are_those_of_all_answers_written_out(
    name: str, vocabulary: Vocabulary, compiler: Compiler
) -> None:
    constraint = compiler.compile(JsonSchema(FINITE[name][0]))
    check_all_masks(constraint, vocabulary, [*texts_of(name)])


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_walk_ends_valid_within_its_budget(
    name: str, vocabulary: Vocabulary, compiler: Compiler
) -> None:
    schema = SCHEMAS[name]
    constraint = compiler.compile(JsonSchema(schema))
    likely = {t for t, data in enumerate(vocabulary.token_bytes) if data and data in b'"ab1, 2]}'}
    likely |= {256 + index for index in range(len(PIECES))}
    for seed in range(many(25, 6)):
        rng, state = Choosing(seed, likely), constraint.start()
        checked = partial(compare, vocabulary=vocabulary) if seed % 5 == 0 else leap
        budget = state.shortest_tokens() + rng.choice([0, 0, 1, 2, 3, 5, 8, 13, 30, 60])
        answer = random_walk(state, vocabulary, rng, budget, checked)
        jsonschema.Draft202012Validator(schema).validate(json.loads(answer))


class Choosing(random.Random):
    """Mostly chooses tokens that may repeat an item."""

    def __init__(self, seed: int, likely: set[int]) -> None:
        super().__init__(seed)
        self._likely = likely

    def choice(self, seq: Any) -> Any:
        likely = [each for each in seq if each in self._likely]
        return super().choice(likely if likely and self.random() < 0.85 else seq)


def leap(state: AutomatonState) -> None:
    """Forced text can be accepted, and the answer can be completed after it."""
    after = state.copy()
    after.accept_bytes(state.forced())
    after.accept_bytes(after.shortest_completion())
    assert after.is_complete


def compare(state: AutomatonState, vocabulary: Vocabulary) -> None:
    assert acceptable(state) == brute_force(state, vocabulary)


@pytest.mark.parametrize("tokenizer_name", [n for n in datasets.tokenizers() if n != "llama3_2"])
def test_walks_with_real_tokenizers_end_valid_within_their_budget(tokenizer_name: str) -> None:
    vocabulary, compiler, _ = instruments(tokenizer_name)
    letters = b'"ab1, ]}{:['
    likely = {
        token
        for token, data in enumerate(vocabulary.token_bytes)
        if data and all(byte in letters for byte in data)
    }
    for name in ("strings, so many", "records", "several lists", "few strings"):
        constraint = compiler.compile(JsonSchema(SCHEMAS[name]))
        for seed in range(many(3, 2)):
            rng, state = Choosing(seed, likely), constraint.start()
            budget = state.shortest_tokens() + rng.choice([0, 1, 5, 30])
            answer = random_walk(state, vocabulary, rng, budget)
            jsonschema.Draft202012Validator(SCHEMAS[name]).validate(json.loads(answer))


def follow(constraint: CompiledConstraint, text: str) -> AutomatonState:
    state = constraint.start()
    state.accept_bytes(text.encode())
    return state


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ({"type": "string"}, '["a", "a"'),
        ({"type": "string"}, r'["a", "\u0061'),
        ({"type": "number"}, "[1, 1.0]"),
        ({"type": "number"}, "[10, 1e"),
        ({"type": "number"}, "[0, -0]"),
        ({"type": "number"}, "[0.1, 0.10000000000000001"),
        ({"enum": [1.0, "x"]}, "[1.0"),
        (RECORD, '[{"a": "x"}, {"a": "x"}'),
        (RECORD, '[{"b": true'),
        ({"type": "object"}, '[{"a": 1, "b"'),
        ({"type": "array", "items": {"type": "number"}}, "[[1], [1]"),
        ({}, "[null, null"),
    ],
)
def test_equal_items_are_not_repeated_in_any_spelling(
    items: Any, text: str, compiler: Compiler
) -> None:
    constraint = compiler.compile(JsonSchema(unique(items=items, prefixItems=[items])))
    with pytest.raises(RejectedToken):
        follow(constraint, text)


def test_names_that_are_counted_differ(compiler: Compiler) -> None:
    schema = {"type": "object", "minProperties": 3, "additionalProperties": {"type": "integer"}}
    constraint = compiler.compile(JsonSchema(schema))
    assert len(json.loads(constraint.start().shortest_completion())) == 3
    for text in ('{"a": 1, "a"', r'{"a": 1, "\u0061"', '{"a": 1, "b": 2}'):
        with pytest.raises(RejectedToken):
            follow(constraint, text)
    assert follow(constraint, '{"a": 1, "b": 2, "": 3}').is_complete


def test_the_last_value_that_is_left_ends_the_list(compiler: Compiler) -> None:
    constraint = compiler.compile(
        JsonSchema(unique(items={"type": "integer", "minimum": 8, "maximum": 10}))
    )
    assert follow(constraint, "[10, 8, ").shortest_completion() == b"9]"
    assert follow(constraint, "[10, 8, 9").forced() == b"]"
    with pytest.raises(RejectedToken):
        follow(constraint, "[10, 8, 9,")


def test_a_shortest_completion_says_new_items(compiler: Compiler) -> None:
    constraint = compiler.compile(JsonSchema(SCHEMAS["strings, so many"]))
    answer = json.loads(constraint.start().shortest_completion())
    assert len(set(answer)) == 4
    assert sorted(map(len, answer)) == [0, 1, 1, 1]


def test_a_completion_finds_the_new_item_among_several_kinds(compiler: Compiler) -> None:
    digit = {"type": "integer", "minimum": 0, "maximum": 3}
    schema = unique(items=digit, contains=digit, minItems=1, maxItems=3)
    state = follow(compiler.compile(JsonSchema(schema, whitespace="indent:2")), "[\n  0,")
    assert state.fits(30)
    assert state.shortest_completion() == b"\n  1\n]"


def test_the_number_of_states_does_not_grow_with_the_items(compiler: Compiler) -> None:
    constraint = compiler.compile(JsonSchema(SCHEMAS["strings"]))
    states = []
    for count in (20, 200):
        state = constraint.start()
        for token in json.dumps([f"item {number}" for number in range(count)]).encode():
            state.mask(10_000)
            state.accept(token)
        states.append(constraint.num_states)
    assert states[0] == states[1] < 50


def test_a_mask_beside_many_items_that_share_their_beginning_is_bounded_work(
    compiler: Compiler,
) -> None:
    constraint = compiler.compile(JsonSchema(SCHEMAS["strings"]))
    beginning = "https://example.org/" + "a" * 20
    text = json.dumps([f"{beginning}{number}" for number in range(500)])[:-1] + ', "'
    state = follow(constraint, text)
    for byte in f"{beginning}19".encode():
        state.mask(100_000, work=500)
        state.accept(byte)
    assert ord('"') not in acceptable(state)


def test_the_mask_behind_a_completion_that_was_planned_is_the_end(compiler: Compiler) -> None:
    schema = {"type": "array", "items": {"enum": [2]}, "contains": {}, "uniqueItems": True}
    state = compiler.compile(JsonSchema(schema)).start()
    assert state.shortest_tokens() <= 3
    state.accept_bytes(b"[2]")
    assert state.is_complete
    assert (state.mask(budget=30) == state.mask()).all()


def test_copies_remember_on_their_own(compiler: Compiler) -> None:
    state = follow(compiler.compile(JsonSchema(SCHEMAS["strings"])), '["a"')
    other = state.copy()
    other.accept_bytes(b', "b"')
    state.accept_bytes(b', "b"]')
    with pytest.raises(RejectedToken):
        other.accept_bytes(b', "b"')


def test_a_program_that_was_pickled_still_remembers(compiler: Compiler) -> None:
    program = pickle.loads(pickle.dumps(compile_program(JsonSchema(SCHEMAS["strings"]))))
    with pytest.raises(RejectedToken):
        follow(compiler.link(program), '["a", "a"')


def test_how_much_longer_items_get_is_the_most_of_all_kinds() -> None:
    """Of 300 numbers, ten have one digit and ninety have two; the first ten have one each."""
    pool = ExpressionPool()
    texts = [pool.one_of([str(n).encode() for n in range(stop)]) for stop in (10, 300)]
    for languages in (texts, texts[::-1]):
        longer = partial(Counting(measured(pool)).longer, languages)
        assert [longer(number) for number in (1, 10, 17, 100, 257)] == [0, 0, 1, 1, 2]
    assert Counting(measured(pool)).longer(texts[:1], 17) == 0


def test_a_schema_whose_items_are_too_much_to_count_compiles(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def longer(counting: Counting, languages: Any, number: int) -> int:
        if number > 17:
            raise ConstraintTooComplex("more than 6438 expression nodes")
        return 1

    with monkeypatch.context() as patched:
        patched.setattr(Counting, "longer", longer)
        program = compile_program(JsonSchema(SCHEMAS["strings"]))
    assert program.derivatives.pool.longer_items == {16: 1}
    follow(compiler.link(program), '["a", "b"]')


def test_how_much_longer_items_get_comes_with_the_program(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the engine thread would compute it, which takes up to 0.1 s."""
    items = {"anyOf": [{"type": "string"}, {"enum": [5, 70, 800]}, {"type": "boolean"}]}
    data = compile_and_dump(JsonSchema(unique(items=items, minItems=3)), compiler.limits)[1]

    def bound(program: Program) -> int:
        constraint = compiler.link(program)
        assert constraint.places is not None
        return constraint.plans.bound(constraint.places.start())

    without, shipped = load(data, compiler.limits), load(data, compiler.limits)
    without.derivatives.pool.longer_items = {}
    worked_out = bound(without)
    monkeypatch.setattr(Counting, "longer", None)
    assert bound(shipped) == worked_out > len("[1,2,3]")


def test_items_differ_inside_an_answer_with_text_around_it(compiler: Compiler) -> None:
    spec = Composite(Series((FixedText("list: "), JsonSchema(SCHEMAS["strings"]))))
    with pytest.raises(RejectedToken):
        follow(compiler.compile(spec), 'list: ["a", "a"')


@pytest.mark.parametrize(
    "schema",
    [
        unique(prefixItems=[{"enum": [1, 2]}, {"const": 1}], minItems=2),
        unique(items=unique(items={"type": "integer", "minimum": 0, "maximum": 9})),
        unique(contains={"type": "boolean"}, minContains=3),
    ],
)
def test_lists_that_may_run_out_of_values_are_refused_by_name(schema: Any) -> None:
    with pytest.raises(UnsupportedSchema, match="the keyword 'uniqueItems' at "):
        compile_program(JsonSchema(schema))


def test_a_list_of_more_records_than_there_are_has_no_value() -> None:
    few = unique(items={**RECORD, "properties": {"a": {"enum": [1, 2]}}}, minItems=3)
    with pytest.raises(UnsatisfiableSchema):
        compile_program(JsonSchema(few))


def test_a_schema_inside_a_grammar_refuses_unlisted_unique_items() -> None:
    grammar = 'start: "x" %json {"type": "array", "uniqueItems": true}'
    with pytest.raises(UnsupportedSchema, match="uniqueItems"):
        compile_program(Grammar(grammar, "lark"))
