"""Composite grammars, compared with a recogniser that tries every way to split a text."""

from __future__ import annotations

import json
import pickle
import random
import re
from dataclasses import replace
from itertools import product
from typing import Any

import jsonschema
import pytest

from app.constraint import Compiler, compile_program
from app.constraint.constraint import CompiledConstraint
from app.constraint.limits import Limits
from app.core.composite import (
    Composite,
    Either,
    FixedText,
    FreeText,
    NotStarting,
    Part,
    Repeated,
    Series,
    text_before,
    with_schemas,
)
from app.core.errors import (
    ConstraintTooComplex,
    InvalidSchema,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex
from app.text import Vocabulary
from tests.conformance.walks import BruteForce, tokens_of
from tests.constraint.walks import Walker

LETTERS = "abé"
TEXTS = ["".join(letters) for size in range(6) for letters in product(LETTERS, repeat=size)]

NESTED = Grammar('root ::= "" | "a" root "b"')
LISTS = JsonSchema({"type": "array", "items": {"$ref": "#"}}, whitespace="compact")

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}},
    "additionalProperties": False,
}
TOOLS = (("get_weather", WEATHER), ("get_tree", TREE))


def ends(part: Part, text: str, start: int) -> set[int]:
    """The positions at which a text of ``part`` that begins at ``start`` may end."""
    match part:
        case FixedText(wanted):
            return {start + len(wanted)} if text.startswith(wanted, start) else set()
        case Series(parts):
            reached = {start}
            for each in parts:
                reached = {end for place in reached for end in ends(each, text, place)}
            return reached
        case Either(parts):
            return {end for each in parts for end in ends(each, text, start)}
        case Repeated():
            return _ends_of_repeated(part, text, start)
        case NotStarting(inner, prefixes):
            found = ends(inner, text, start)
            return {end for end in found if not text[start:end].startswith(prefixes)}
    return {end for end in range(start, len(text) + 1) if _is_leaf(part, text[start:end])}


def _ends_of_repeated(part: Repeated, text: str, start: int) -> set[int]:
    found = {start} if part.at_least == 0 else set()
    reached, times = {start}, 0
    while reached and times < (len(text) + part.at_least + 1):
        times += 1
        if part.at_most is not None and times > part.at_most:
            break
        if times > 1:
            reached = {e for p in reached for e in ends(FixedText(part.separator), text, p)}
        reached = {end for place in reached for end in ends(part.part, text, place)}
        if times >= part.at_least:
            found |= reached
    return found


def _is_leaf(part: Part, text: str) -> bool:
    match part:
        case FreeText(without, not_ending):
            return not any(mark in text for mark in without) and not text.endswith(not_ending)
        case Choice(options):
            return text in options
        case Regex(pattern):
            return re.fullmatch(pattern, text) is not None
        case Grammar():
            return text == "a" * (len(text) // 2) + "b" * (len(text) // 2)
    assert isinstance(part, JsonSchema)
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return bool(jsonschema.Draft202012Validator(part.schema).is_valid(value))


def matches(part: Part, text: str) -> bool:
    return len(text) in ends(part, text, 0)


def random_part(rng: random.Random, depth: int) -> Part:
    def text(longest: int = 2) -> str:
        return "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, longest)))

    def texts(most: int) -> tuple[str, ...]:
        return tuple(text(3) for _ in range(rng.randint(0, most)))

    if depth == 0:
        leaves: list[Part] = [
            FixedText(text()),
            FreeText(texts(2), texts(1)),
            FreeText(texts(1)),
            Regex("(ab)*b?"),
            Choice((text(), text())),
            NESTED,
        ]
        return rng.choice(leaves)

    def inner() -> Part:
        return random_part(rng, depth - 1)

    kind = rng.randrange(4)
    if kind == 0:
        return Series(tuple(inner() for _ in range(rng.randint(0, 3))))
    if kind == 1:
        return Either(tuple(inner() for _ in range(rng.randint(1, 3))))
    if kind == 2:
        least = rng.randint(0, 2)
        most = rng.choice([None, least, least + 1])
        return Repeated(inner(), rng.choice(["", "b", "é"]), least, most)
    return NotStarting(inner(), texts(2))


@pytest.mark.parametrize("seed", range(150))
def test_a_composite_admits_what_a_recogniser_does(seed: int) -> None:
    rng = random.Random(seed)
    part = random_part(rng, rng.choice([0, 1, 1, 2]))
    expected = {text for text in TEXTS if matches(part, text)}
    try:
        walker = Walker.of(Composite(part))
    except UnsatisfiableSchema:
        assert not expected
        return
    assert {text for text in TEXTS if walker.accepts(text)} == expected


def test_free_text_is_utf8_whatever_it_may_not_hold() -> None:
    for part in (FreeText(), FreeText(("<é>",)), FreeText((), ("é",))):
        walker = Walker.of(Composite(part))
        for text in ("", "a\x00\x1f\x7fb", "日本", "\U0001f600", "é>"):
            assert walker.accepts(text)
        for data in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"a\x80"):
            assert not walker.accepts(data)


def test_the_first_mark_in_a_text_is_where_the_text_before_it_ends() -> None:
    for marks in (("aa",), ("ab", "ba"), ("aba", "b"), ("bab", "ab"), ("é", "aé")):
        for mark in marks:
            part = Series((text_before(mark, marks), FixedText(mark)))
            if any(other in mark[:-1] for other in marks):
                continue
            walker = Walker.of(Composite(part))
            for text in TEXTS:
                found = [(text.find(other) + len(other), -len(other), other) for other in marks
                         if other in text]  # fmt: skip
                first = min(found, default=(0, 0, ""))
                assert walker.accepts(text) == (first[2] == mark and first[0] == len(text))


def test_a_beginning_is_taken_out_of_recursive_parts() -> None:
    part = NotStarting(LISTS, ("[[[", "[]"))
    walker = Walker.of(Composite(part))
    texts = ["".join(t) for size in range(9) for t in product("[]", repeat=size)]
    assert [t for t in texts if walker.accepts(t)] == [t for t in texts if matches(part, t)]
    assert walker.accepts("[[],[[]]]")


def test_each_schema_of_a_composite_has_its_own_form_and_may_be_open_or_closed() -> None:
    open_, closed = {"type": "object"}, {"type": "object", "properties": {"a": {"type": "null"}}}
    composite = Composite(
        Series(
            (
                JsonSchema(open_, whitespace="compact"),
                FixedText("|"),
                JsonSchema(closed, close_objects=True, whitespace="spaced"),
                FixedText("|"),
                JsonObject("compact"),
            )
        )
    )
    walker = Walker.of(composite)
    assert walker.accepts('{"b":1}|{"a": null}|{"c":[1,2]}')
    assert not walker.accepts('{"b": 1}|{"a": null}|{"c":[1,2]}')
    assert not walker.accepts('{"b":1}|{"a":null}|{"c":[1,2]}')
    assert not walker.accepts('{"b":1}|{"b": null}|{"c":[1,2]}')


def test_the_key_of_a_schema_is_written_once_and_not_kept_for_another() -> None:
    spec = JsonSchema({"type": "string"})
    assert spec.cache_key() is spec.cache_key()
    changed = replace(spec, close_objects=True)
    assert changed.cache_key() != spec.cache_key()
    assert spec == JsonSchema({"type": "string"}) == pickle.loads(pickle.dumps(spec))
    composite = Composite(Series((FixedText("a"), spec)))
    assert with_schemas(composite, lambda part: FixedText("b"), FixedText) == Composite(
        Series((FixedText("b"), spec))
    )


def test_equal_composites_have_one_cache_key_and_different_ones_have_not() -> None:
    parts: list[Part] = [
        FixedText("a"),
        FreeText(("a",)),
        FreeText((), ("a",)),
        FreeText(("a",), ("a",)),
        Choice(("a",)),
        Series((FixedText("a"),)),
        Either((FixedText("a"),)),
        Repeated(FixedText("a")),
        Repeated(FixedText("a"), ","),
        Repeated(FixedText("a"), "", 1),
        Repeated(FixedText("a"), "", 0, 1),
        NotStarting(FixedText("a"), ("a",)),
        NotStarting(FixedText("a"), ("a", "b")),
        JsonSchema({"const": 1}),
        JsonSchema({"const": 1}, whitespace="compact"),
    ]
    keys = {Composite(part).cache_key() for part in parts}
    assert len(keys) == len(parts)
    assert Composite(Series((FixedText("a"),))).cache_key() in keys


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (Either(()), UnsatisfiableSchema),
        (Series((FreeText(("a",)), JsonSchema(False))), UnsatisfiableSchema),
        (NotStarting(FixedText("ab"), ("a",)), UnsatisfiableSchema),
        (Series((FreeText(("",)), FixedText("x"))), UnsatisfiableSchema),
        (FixedText("\ud800"), InvalidSchema),
        (FreeText(("\ud800",)), InvalidSchema),
        (Regex("("), InvalidSchema),
        (FreeText(("a" * 100_001,)), ConstraintTooComplex),
        (Series((FixedText("a"),) * 20_001), ConstraintTooComplex),
        (Repeated(Repeated(FixedText("a"), ",", 0, 1_000), "", 0, 1_000), ConstraintTooComplex),
    ],
)
def test_invalid_empty_and_huge_parts_are_refused(part: Part, error: type[Exception]) -> None:
    with pytest.raises(error):
        compile_program(Composite(part))


def test_parts_nested_too_deeply_are_refused() -> None:
    part: Part = FixedText("a")
    for _ in range(5_000):
        part = Either((part, FixedText("b")))
    with pytest.raises(ConstraintTooComplex):
        compile_program(Composite(part))
    with pytest.raises(ConstraintTooComplex):
        compile_program(Composite(FreeText()), Limits(nodes=10))


def test_an_error_in_a_schema_keeps_its_keyword_and_pointer() -> None:
    schema = {"properties": {"a": {"$ref": "https://example.org/a"}}}
    with pytest.raises(UnsupportedSchema) as alone:
        compile_program(JsonSchema(schema))
    with pytest.raises(UnsupportedSchema) as inside:
        compile_program(Composite(Series((FixedText("<"), JsonSchema(schema)))))
    assert (inside.value.keyword, inside.value.pointer) == (
        alone.value.keyword,
        alone.value.pointer,
    )


def hermes() -> Composite:
    calls = [
        Series(
            (FixedText(f'{name}", "arguments": '), JsonSchema(schema), FixedText("}\n</tool_call>"))
        )
        for name, schema in TOOLS
    ]
    call = Series((FixedText('<tool_call>\n{"name": "'), Either(tuple(calls))))
    text = FreeText(("<tool_call>",))
    return Composite(Either((text, Series((text, Repeated(call, "\n", 1))))))


def llama() -> Composite:
    leads = tuple(f'{{"name": "{name}", "parameters": ' for name, _ in TOOLS)
    calls = [
        Series((FixedText(lead), JsonSchema(schema), FixedText("}")))
        for lead, (_, schema) in zip(leads, TOOLS, strict=True)
    ]
    return Composite(Either((NotStarting(FreeText(), leads), *calls)))


def reasoning() -> Composite:
    return Composite(
        Series((FreeText(("</think>",)), FixedText("</think>\n\n"), JsonSchema(WEATHER)))
    )


def tags() -> Composite:
    ends = ("</f>", "</g>")
    tag = Series((FixedText("<f>"), text_before("</f>", ends), FixedText("</f>")))
    text = text_before("<f>", ("<f>",))
    return Composite(Series((Repeated(Series((text, tag))), FreeText(("<f>",)))))


STRUCTURES = [hermes, llama, reasoning, tags]

PIECES = [
    b"<tool", b"_call", b"<tool_call>", b"<tool_call>\n", b"</tool_call>", b"\n<", b"}\n", b"Hello",
    b'{"name": "', b"get_", b"weather", b"tree", b'", "', b'arguments": ', b'"parameters": {',
    b'{"',
    b"city", b'": "', b'"}', b"}", b"</", b"</think>", b"</think>\n\n", b"think", b'kids": [', b"[",
    b"]}", b"<f>", b"</f>", b"f>", b"f", b" a", "é".encode(), b"\xc3", b"\xa9<", b"><", b'{"x',
]  # fmt: skip


def small_vocabulary() -> Vocabulary:
    singles = [bytes([byte]) for byte in range(256)]
    return Vocabulary([*singles, *PIECES, b"city", None], eos_ids=[256 + len(PIECES) + 1])


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(small_vocabulary())


def biased_walk(
    constraint: CompiledConstraint, vocabulary: Vocabulary, rng: random.Random, check: BruteForce
) -> str:
    """The answer of a walk within a budget that prefers long tokens; compares one mask."""
    state = constraint.start()
    left = state.shortest_tokens() + rng.choice([0, 1, 2, 5, 15, 40])
    answer = b""
    compared = rng.randrange(left + 1)
    while left > 0 and not state.is_final:
        allowed = [int(token) for token in tokens_of(state.mask(budget=left))]
        assert allowed, answer
        if left == compared:
            here = constraint.automaton.step(1, answer)
            brute = check.tokens(
                constraint.automaton.derivatives, constraint.automaton.expression(here)
            )
            assert set(map(int, tokens_of(state.mask()))) == brute, answer
        long = [token for token in allowed if token >= 256]
        token = rng.choice(long if long and rng.random() < 0.8 else allowed)
        state.accept(token)
        if token in vocabulary.eos_ids:
            break
        answer += vocabulary.token_bytes[token] or b""
        left -= 1
    assert state.is_complete, (answer, left)
    return answer.decode()


@pytest.mark.parametrize("build", STRUCTURES, ids=lambda build: build.__name__)
def test_every_walk_within_its_budget_ends_in_a_text_of_the_composite(
    build: Any, compiler: Compiler
) -> None:
    composite, vocabulary = build(), small_vocabulary()
    constraint, check = compiler.compile(composite), BruteForce(vocabulary)
    answers = {biased_walk(constraint, vocabulary, random.Random(s), check) for s in range(60)}
    assert all(matches(composite.root, answer) for answer in answers)
    assert len({len(answer) for answer in answers}) > 10
    assert sum("}" in answer or "</f>" in answer for answer in answers) > 5, "too few have a call"


@pytest.mark.parametrize("build", STRUCTURES, ids=lambda build: build.__name__)
def test_samples_of_a_composite_and_their_neighbours_are_told_apart_as_by_the_recogniser(
    build: Any,
) -> None:
    composite = build()
    walker = Walker.of(composite)
    rng = random.Random(7)
    for _ in range(60):
        text = walker.sample(rng, steps=rng.choice([0, 5, 60])).decode()
        assert matches(composite.root, text), text
        place = rng.randrange(len(text) + 1)
        cut = text[:place] + text[place + 1 :]
        if walker.accepts(cut):
            assert matches(composite.root, cut), cut


def test_known_answers_of_tool_calls_are_admitted_and_broken_ones_are_not() -> None:
    walker = Walker.of(hermes())
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    tree = '<tool_call>\n{"name": "get_tree", "arguments": {"kids": [{}, {}]}}\n</tool_call>'
    for text in ("", "Hi", "<tool_call", call, f"Hi {call}", f"{call}\n{tree}", f"<<{tree}"):
        assert walker.accepts(text)
    for text in (
        f"{call} ",
        f"{call}{tree}",
        "<tool_call>",
        call.replace("city", "town"),
        call[:-1],
    ):
        assert not walker.accepts(text)
    plain = Walker.of(llama())
    assert plain.accepts('{"name": "get_weather", "parameters": {"city": "Oslo"}}')
    for text in ("", '{"name": "', '{"name": "get_weather", "parameters":', '{"name": "other"}'):
        assert plain.accepts(text)
    assert not plain.accepts('{"name": "get_weather", "parameters": {}}')
    assert not plain.accepts('{"name": "get_weather", "parameters": {"city": "Oslo"}} and more')


def test_text_after_a_mark_is_forced_up_to_the_next_choice(compiler: Compiler) -> None:
    state = compiler.compile(hermes()).start()
    state.accept_bytes(b"Hi <tool_call>")
    assert state.forced() == b'\n{"name": "get_'
    state.accept_bytes(state.forced() + b"w")
    assert state.forced() == b'eather", "arguments": {"city": "'


def test_a_long_free_text_stays_in_few_states(compiler: Compiler) -> None:
    state_of = compiler.compile(hermes())
    state = state_of.start()
    rng = random.Random(3)
    for _ in range(3_000):
        state.mask(budget=5_000)
        state.accept_bytes("".join(rng.choice("abc <tol_é日") for _ in range(4)).encode())
    assert state_of.num_states < 80
    assert state_of.num_masks < 40


def test_an_error_names_the_part_it_is_about_also_after_pickling() -> None:
    def call(schema: Any) -> Composite:
        part = JsonSchema(schema, subject="the function 'f'")
        return Composite(Either((FixedText("x"), part)))

    with pytest.raises(UnsupportedSchema, match="the function 'f': the keyword") as unsupported:
        compile_program(call({"$dynamicRef": "https://elsewhere.example/x"}))
    again = pickle.loads(pickle.dumps(unsupported.value))
    assert str(again) == again.message == str(unsupported.value)
    assert again.keyword == unsupported.value.keyword
    # An impossible alternative without a subject is only dropped.
    with pytest.raises(UnsatisfiableSchema, match="the function 'f': no value") as impossible:
        compile_program(call(False))
    assert str(pickle.loads(pickle.dumps(impossible.value))) == str(impossible.value)
    compile_program(Composite(Either((FixedText("x"), JsonSchema(False)))))
