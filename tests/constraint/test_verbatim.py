"""``x-verbatim``: strings that are pieces of a document."""

from __future__ import annotations

import json
import random
from typing import Annotated, Any

import numpy as np
import pytest
from openai.lib._parsing._completions import type_to_response_format_param
from pydantic import BaseModel, Field

from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.constraint import AutomatonState, CompiledConstraint
from app.constraint.program import compile_program
from app.constraint.quotes.document import Document
from app.constraint.quotes.positions import suffix_order
from app.core.composite import Composite, NotStarting
from app.core.errors import (
    ConstraintTooComplex,
    InvalidRequest,
    InvalidSchema,
    RejectedToken,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from app.core.specs import JsonSchema
from tests.constraint import verbatim_cases
from tests.fakes import ByteVocabulary

INDEX = VocabularyIndex(ByteVocabulary())


def compiled(schema: Any) -> CompiledConstraint:
    return CompiledConstraint(compile_program(JsonSchema(schema)), INDEX)


def bound(schema: Any, *texts: str) -> CompiledConstraint:
    constraint = compiled(schema)
    documents = {hole.source: Document(texts, words=hole.source.words) for hole in constraint.holes}
    return constraint.bind(documents)


def tokens(state: AutomatonState) -> list[int]:
    return verbatim_cases.tokens_of(state.mask())


def admits(constraint: CompiledConstraint, value: Any) -> bool:
    state = constraint.start()
    try:
        state.accept_bytes(json.dumps(value, ensure_ascii=False).encode())
    except RejectedToken:
        return False
    return state.is_complete


def verbatim(**more: Any) -> dict[str, Any]:
    return {"type": "string", "x-verbatim": True, **more}


def words(**more: Any) -> dict[str, Any]:
    return {"type": "string", "x-verbatim": "words", **more}


@pytest.mark.parametrize("seed", range(40))
def test_masks_are_those_of_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    verbatim_cases.check(verbatim_cases.case(rng), rng)


def test_a_value_is_a_piece_character_for_character() -> None:
    constraint = bound(verbatim(), 'The "cat"\nsat\ton \\ a 日本\x1f')
    for piece in ["", "The", 'he "c', 'cat"\nsat', "\t", "\\ a 日", "本\x1f"]:
        assert admits(constraint, piece)
    for other in ["the", "cat sat", "ncat", "日 本"]:
        assert not admits(constraint, other)


def test_a_piece_is_spelled_in_one_way() -> None:
    state = bound(verbatim(), "aé\x1f").start()
    for spelling in [b'"\\u0061"', b'"\\u00e9"', b'"\\u001F"', b'"\\/"']:
        with pytest.raises(RejectedToken):
            state.copy().accept_bytes(spelling)
    state.accept_bytes(b'"\xc3\xa9\\u001f"')
    assert state.is_complete


def test_by_words_a_piece_begins_and_ends_with_words() -> None:
    constraint = bound(words(), "Don't go, e\u0301te\u0301 there; 日本へ")
    for piece in ["Don", "'t go", "go,", "e\u0301te\u0301 there", "日", "本へ", ""]:
        assert admits(constraint, piece), piece
    for other in ["o", "go, ", " go", "e", "e\u0301te", "ther"]:
        assert not admits(constraint, other), other


def test_a_long_piece_by_words_fits_a_narrow_window() -> None:
    text = "extraordinary hippopotamus eats an apple"
    lengths = {len(p) for p in verbatim_cases.pieces_of([text], words=True)}
    for length in range(2, 41):
        schema = words(minLength=length, maxLength=length)
        if length not in lengths:
            with pytest.raises(UnsatisfiableSchema):
                bound(schema, text)
            continue
        assert len(json.loads(bound(schema, text).start().shortest_completion())) == length


def test_a_document_without_a_piece_is_refused_or_null() -> None:
    with pytest.raises(UnsatisfiableSchema, match="at least 4 characters"):
        bound(verbatim(minLength=4), "abc", "def")
    with pytest.raises(UnsatisfiableSchema, match="matches the pattern"):
        bound({"type": "array", "items": verbatim(pattern="[0-9]"), "minItems": 1}, "abc")
    nullable = {"anyOf": [verbatim(minLength=1), {"type": "null"}]}
    assert bound(nullable, "").start().forced() == b"null"
    assert bound(verbatim(), "").start().forced() == b'""'


def test_a_string_that_no_document_can_hold_is_refused_at_compilation() -> None:
    with pytest.raises(UnsatisfiableSchema):
        compiled(verbatim(minLength=4, maxLength=3))
    with pytest.raises(UnsatisfiableSchema):
        compiled(verbatim(pattern="^$", minLength=1))


def test_one_program_is_bound_to_many_documents() -> None:
    constraint = compiled({"type": "array", "items": verbatim(minLength=2)})
    (hole,) = constraint.holes
    first = constraint.bind({hole.source: Document(["abc"])})
    second = constraint.bind({hole.source: Document(["xyz"])})
    assert admits(first, ["ab", "bc"])
    assert not admits(first, ["xy"])
    assert admits(second, ["xy"])


def test_an_unbound_hole_is_any_string_of_its_form() -> None:
    constraint = compiled(verbatim(minLength=2, pattern="^[a-z]+$"))
    assert admits(constraint, "anything")
    assert not admits(constraint, "x")


@pytest.mark.parametrize("value", ["", 1, None, [], {"part": 1}, {"words": "yes"}, {"other": 1}])
def test_other_values_of_the_keyword_are_refused(value: Any) -> None:
    with pytest.raises(InvalidSchema, match="x-verbatim must be"):
        compiled({"type": "string", "x-verbatim": value})


def test_false_asks_for_nothing() -> None:
    assert not compiled({"type": "string", "x-verbatim": False}).holes


@pytest.mark.parametrize(
    "schema",
    [
        {"not": verbatim()},
        {"oneOf": [verbatim(), {"type": "string", "minLength": 3}]},
        {"type": "object", "propertyNames": verbatim()},
        {"allOf": [verbatim(), {"x-verbatim": "messages[0]"}]},
        {"enum": [["a"]], "items": verbatim()},
    ],
)
def test_places_where_it_cannot_be_enforced_are_refused_by_name(schema: Any) -> None:
    with pytest.raises(UnsupportedSchema) as refused:
        compiled({"type": ["array", "object", "string"], **schema})
    assert refused.value.keyword == "x-verbatim"


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        Document(["a\ud83d"])


def test_a_pattern_with_too_many_states_is_refused() -> None:
    with pytest.raises(ConstraintTooComplex, match="length bounds alone cost none"):
        compiled(verbatim(pattern="[a-z]", maxLength=5000))
    assert bound(verbatim(maxLength=5000), "abc")


def test_a_narrow_window_over_a_long_document_is_exact() -> None:
    text = "word " * 2000 + "x" * 20_000
    constraint = bound(words(minLength=8_999, maxLength=9_003), text)
    assert len(json.loads(constraint.start().shortest_completion())) == 8_999
    with pytest.raises(UnsatisfiableSchema, match="at least 9000 characters"):
        bound(words(minLength=9_000, maxLength=9_001), text)


@pytest.mark.parametrize(
    ("text", "more", "pieces", "others"),
    [
        # '!' sorts before 'a': the first positions begin pieces that are too short.
        ("a" * 600 + "!", {"minLength": 596}, [596, 600], [595, 601]),
        ("a" * 600 + "b", {"pattern": "^(a{5}|a{60}b)$"}, [5], [4, 6, 60]),
        ("a" * 900 + "b", {"maxLength": 400, "minLength": 350}, [350, 400], [349, 401]),
    ],
)
def test_live_positions_are_found_among_hundreds_of_dead_ones(
    text: str, more: dict[str, Any], pieces: list[int], others: list[int]
) -> None:
    constraint = bound(verbatim(**more), text)
    assert all(admits(constraint, "a" * count) for count in pieces)
    assert not any(admits(constraint, "a" * count) for count in others)
    assert admits(constraint, "a" * 60 + "b") is ("pattern" in more)
    state, longest = constraint.start(), max(pieces)
    state.accept_bytes(b'"')
    for count in range(longest):
        allowed = {data[0] for data in map(INDEX.token_bytes.__getitem__, tokens(state)) if data}
        assert ord("a") in allowed
        assert (ord('"') in allowed) is admits(constraint, "a" * count)
        state.accept_bytes(b"a")


@pytest.mark.parametrize("letters", ["a", "ab", "abc é\n"])
def test_positions_are_sorted_by_their_suffixes(letters: str) -> None:
    rng = random.Random(letters)
    for size in (1, 2, 9, 40, 300):
        data = "".join(rng.choice(letters) for _ in range(size)).encode() + b"\xff"
        expected = sorted(range(len(data)), key=lambda at: data[at:])
        assert suffix_order(np.frombuffer(data, np.uint8)).tolist() == expected


def test_a_value_that_calls_begin_with_is_refused_and_others_are_enforced() -> None:
    """Content that must not begin like a tool call is expanded along the beginning of a call."""

    def beside_calls(name: str) -> CompiledConstraint:
        schema = {"type": "object", "properties": {name: verbatim()}, "required": [name]}
        content = NotStarting(JsonSchema(schema, close_objects=True), ('{"name": "weather',))
        program = compile_program(Composite(content))
        return CompiledConstraint(program, INDEX)

    with pytest.raises(UnsupportedSchema, match="could be a tool call"):
        beside_calls("name")
    constraint = beside_calls("nap")
    constraint = constraint.bind({hole.source: Document(["cat"]) for hole in constraint.holes})
    assert admits(constraint, {"nap": "at"})
    assert not admits(constraint, {"nap": "dog"})


def test_several_patterns_share_one_bound() -> None:
    text = "".join(random.Random(1).choice("abc ") for _ in range(40_000))
    string = verbatim(pattern="^[a-z]{150}$")
    assert bound(string, text[:4000] + "a" * 150)
    many = {f"p{n}": verbatim(pattern=f"^[a-z]{{{100 + n}}}$") for n in range(12)}
    with pytest.raises(ConstraintTooComplex, match="patterns beside x-verbatim"):
        bound({"type": "object", "properties": many}, text + "a" * 200)


def test_what_openai_s_sdk_sends_for_a_pydantic_field() -> None:
    class Claim(BaseModel):
        quote: str = Field(json_schema_extra={"x-verbatim": True})
        word: Annotated[str, Field(json_schema_extra={"x-verbatim": "words"})] | None

    sent: Any = type_to_response_format_param(Claim)
    schema = sent["json_schema"]["schema"]
    constraint = bound(schema, "the cat")
    assert admits(constraint, {"quote": "e c", "word": None})
    assert admits(constraint, {"quote": "e c", "word": "cat"})
    assert not admits(constraint, {"quote": "e c", "word": "ca"})


def test_the_first_place_of_a_value_is_found() -> None:
    document = Document(["a é😀 cat", "", "cat dog"])
    assert document.find("cat") == (0, 5, 8)
    assert document.find("dog") == (2, 4, 7)
    assert document.find("é😀") == (0, 2, 4)
    assert document.find("") is None
    assert document.find("catdog") is None
    assert Document(["concat cat"], words=True).find("cat") == (0, 7, 10)
