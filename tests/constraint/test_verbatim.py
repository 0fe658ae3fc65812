"""Strings that are pieces of a document."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.constraint import CompiledConstraint
from app.constraint.pieces.document import Document
from app.constraint.program import compile_program
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


def test_what_no_document_could_hold_is_refused_when_it_is_compiled() -> None:
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


def test_unbound_it_is_any_string_of_its_form() -> None:
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
    with pytest.raises(ConstraintTooComplex, match="lengths alone cost none"):
        compiled(verbatim(pattern="[a-z]", maxLength=5000))
    assert bound(verbatim(maxLength=5000), "abc")


def test_a_narrow_window_over_a_long_document_is_refused_when_it_is_bound() -> None:
    text = "word " * 2000 + "x" * 20_000
    with pytest.raises(ConstraintTooComplex, match="over a document"):
        bound(words(minLength=9_000, maxLength=9_001), text)
