"""``x-grammar``: JSON strings whose text is in the language of a grammar."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from app.constraint import program
from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.compiler import Compiler
from app.constraint.constraint import CompiledConstraint
from app.constraint.program import compile_program
from app.core.constraint import ConstraintSpec, ConstraintState
from app.core.errors import (
    ConstraintTooComplex,
    InvalidSchema,
    RejectedToken,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from app.core.specs import Grammar, JsonSchema
from tests.fakes import ByteVocabulary
from tests.wide import many

INDEX = VocabularyIndex(ByteVocabulary())

SUMS = r"""
start: sum
sum: sum "+" item | item
item: /[0-9]+/ | "(" sum ")" | STRING
STRING: "\"" /[a-zü\\]*/ "\""
%ignore /[ \n]/
"""
LINES = 'root ::= ("a" | "\\n" | "\\"" | "\\\\" | "é" | [\\t/])* "."'
NESTED = 'start: "x" | "[" start "]"'


def compiled(spec: ConstraintSpec) -> CompiledConstraint:
    return CompiledConstraint(compile_program(spec), INDEX)


def admits(constraint: CompiledConstraint, text: str) -> bool:
    state = constraint.start()
    try:
        state.accept_bytes(text.encode())
    except RejectedToken:
        return False
    return state.is_complete


def may_follow(state: ConstraintState, byte: int) -> bool:
    try:
        state.copy().accept_bytes(bytes([byte]))
    except RejectedToken:
        return False
    return True


def string(definition: str, syntax: str | None = None) -> dict[str, Any]:
    asked = definition if syntax is None else {"syntax": syntax, "definition": definition}
    return {"type": "string", "x-grammar": asked}


@pytest.mark.parametrize(
    ("grammar", "letters"),
    [(SUMS, '1(+)"\\ü \n'), (LINES, 'a\n"\\é\t/.'), (NESTED, "x[]")],
    ids=["sums", "lines", "nested"],
)
def test_a_string_is_in_the_language_where_its_text_is_in_the_grammar(
    grammar: str, letters: str
) -> None:
    plain, inside = compiled(Grammar(grammar)), compiled(JsonSchema(string(grammar)))
    draw, admitted = random.Random(7), 0
    for _ in range(many(4_000, 4)):
        text = "".join(draw.choices(letters, k=draw.randint(0, 6)))
        expected = admits(plain, text)
        admitted += expected
        assert admits(inside, json.dumps(text, ensure_ascii=False)) == expected, text
    assert admitted > many(40, 4)


def test_what_is_forced_inside_a_grammar_is_a_leap() -> None:
    state = compiled(JsonSchema(string('start: "SELECT " /[a-z]+/ " FROM\\n" /[a-z]+/'))).start()
    state.accept_bytes(b'"SELECT ab ')
    assert state.forced() == rb"FROM\n"


def test_masks_are_those_that_the_language_has() -> None:
    constraint = Compiler(ByteVocabulary()).compile(JsonSchema(string(SUMS)))
    draw = random.Random(3)
    state = constraint.start()
    for _ in range(60):
        allowed = [byte for byte in range(256) if may_follow(state, byte)]
        words = state.mask()
        assert [token for token in range(256) if words[token // 32] >> token % 32 & 1] == allowed
        if not allowed:
            break
        state.accept_bytes(bytes([draw.choice(allowed)]))


def test_regular_expressions_match_from_end_to_end() -> None:
    constraint = compiled(JsonSchema(string('a+"b', "regex")))
    assert admits(constraint, json.dumps('aa"b'))
    assert not admits(constraint, json.dumps('xaa"b'))


def test_a_grammar_is_allowed_beside_other_values() -> None:
    schema = {"anyOf": [string(NESTED), {"type": "integer"}], "description": "nested"}
    constraint = compiled(JsonSchema({"type": "array", "items": schema}))
    assert admits(constraint, '["[x]", 3]')
    assert not admits(constraint, '["[x"]')


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({**string(NESTED), "minLength": 2}, "/x-grammar"),
        ({**string(NESTED), "x-verbatim": True}, "/x-grammar"),
        ({**string(NESTED), "enum": ["x"]}, "/x-grammar"),
        ({"type": "object", "propertyNames": string(NESTED)}, "/propertyNames/x-grammar"),
        ({"not": string(NESTED)}, "/not/x-grammar"),
        ({"oneOf": [string(NESTED), {"const": "y"}]}, "/oneOf/0/x-grammar"),
        ({"type": "array", "uniqueItems": True, "items": string(NESTED)}, "/items/x-grammar"),
        (string("start: %json {}"), "/x-grammar"),
    ],
)
def test_x_grammar_is_refused_where_it_cannot_be_enforced(
    schema: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(UnsupportedSchema) as refused:
        compiled(JsonSchema(schema))
    assert (refused.value.keyword, refused.value.pointer) == ("x-grammar", pointer)


def test_unique_free_strings_beside_a_grammar_are_refused() -> None:
    free = {"type": "array", "uniqueItems": True, "items": {"type": "string"}}
    schema = {"type": "object", "properties": {"a": free, "b": string(NESTED)}}
    with pytest.raises(UnsupportedSchema, match="x-grammar"):
        compiled(JsonSchema(schema))


@pytest.mark.parametrize(
    ("definition", "syntax", "says"),
    [
        ("start: missing", None, "line 1, column 8: missing is not defined"),
        ("start: (", "lark", "line 1"),
        ("[a", "regex", "x-grammar"),
        ("start: 'a'", "ebnf", "the syntax of a grammar must be"),
    ],
)
def test_a_wrong_grammar_is_refused_with_its_place(
    definition: str, syntax: str | None, says: str
) -> None:
    with pytest.raises(InvalidSchema, match=says) as refused:
        compiled(JsonSchema(string(definition, syntax)))
    assert refused.value.pointer == "/x-grammar"


def test_a_grammar_without_a_finite_text_is_unsatisfiable() -> None:
    with pytest.raises(UnsatisfiableSchema):
        compiled(JsonSchema(string('start: "a" start')))


@pytest.mark.parametrize("value", [3, {"syntax": "lark"}, {"syntax": "lark", "definition": 1}])
def test_other_values_of_the_keyword_are_refused(value: Any) -> None:
    with pytest.raises(InvalidSchema, match="x-grammar must be"):
        compiled(JsonSchema({"type": "string", "x-grammar": value}))


def test_a_grammar_is_allowed_in_recursive_schemas() -> None:
    node = {
        "type": "object",
        "properties": {"text": string(NESTED), "inner": {"$ref": "#/$defs/node"}},
        "required": ["text"],
    }
    constraint = compiled(JsonSchema({"$ref": "#/$defs/node", "$defs": {"node": node}}))
    assert admits(constraint, '{"text": "[x]", "inner": {"text": "[[x]]"}}')
    assert not admits(constraint, '{"text": "[x]", "inner": {"text": "[x"}}')


def test_a_grammar_that_nests_too_deeply_is_refused() -> None:
    rules = [f'r{number}: r{number + 1} "b" | "a" r0?' for number in range(200)]
    grammar = "\n".join(["start: r0", *rules, 'r200: "c" r0?'])
    with pytest.raises(ConstraintTooComplex, match="nested deeper"):
        compiled(JsonSchema(string(grammar)))


def test_the_depth_of_all_grammars_is_checked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(program, "check_grammars", lambda pool: looked.append(len(pool)))
    texts = {f"p{number}": string(f'start: "a{number}" start? | "b"') for number in range(50)}
    compile_program(JsonSchema({"type": "object", "properties": texts}))
    assert len(looked) == 1
