"""Every keyword has a row in each table of keywords: a keyword without one would be ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.constraint.language.expressions import INFINITE
from app.constraint.program import compile_program
from app.constraint.schema.edits import OURS
from app.constraint.schema.keywords import _SHAPES, FOLLOWED
from app.constraint.schema.logic.negation import _NEGATIONS
from app.core.errors import InvalidSchema, UnsupportedSchema
from app.core.specs import JsonSchema
from app.explain.keywords import _ENFORCED

KEYWORDS = {each for each in FOLLOWED if isinstance(each, str)}
"""All keywords that constrain a value by themselves."""
REFERENCES = {"$ref", "$dynamicRef", "$recursiveRef"}
"""Their constraints and negations are those of the schemas that they refer to."""
BESIDE_ANOTHER = {"then", "else", "minContains", "maxContains"}
"""They only constrain a value together with ``if`` or ``contains``, and are negated with it."""
ANY_VALUE = {"const", "x-choice"}
IN_NO_NEGATION = {"additionalItems"}
"""Keyword of older drafts; read, and negated, together with ``items``."""


def test_each_keyword_has_a_shape() -> None:
    assert _SHAPES.keys() == KEYWORDS - REFERENCES - ANY_VALUE | BESIDE_ANOTHER


def test_each_keyword_has_a_negation() -> None:
    assert _NEGATIONS.keys() == KEYWORDS - REFERENCES - IN_NO_NEGATION


def test_each_keyword_is_explained() -> None:
    assert _ENFORCED.keys() >= KEYWORDS | BESIDE_ANOTHER | OURS


@pytest.mark.parametrize("keyword", sorted(_SHAPES))
def test_a_value_of_another_shape_is_refused_by_its_keyword(keyword: str) -> None:
    schema: dict[str, Any] = {keyword: 1.5 if keyword in ("items", "type") else None}
    with pytest.raises(InvalidSchema) as caught:
        compile_program(JsonSchema(schema))
    assert caught.value.pointer == f"/{keyword}"


WEAK: dict[str, Any] = {
    "maxLength": 1, "minLength": 9, "maximum": 1, "minimum": 9, "exclusiveMaximum": 1,
    "exclusiveMinimum": 9, "multipleOf": 7, "pattern": "^a$", "format": "date", "enum": ["a"],
    "const": "a", "type": "null", "minItems": 9, "maxItems": 1, "uniqueItems": True,
    "items": {"type": "null"}, "prefixItems": [{"type": "null"}], "contains": {"type": "null"},
    "required": ["a"], "minProperties": 9, "maxProperties": 1, "properties": {"a": False},
    "patternProperties": {"^a": False}, "additionalProperties": False,
    "propertyNames": {"maxLength": 1}, "dependentRequired": {"a": ["b"]},
    "dependentSchemas": {"a": False}, "dependencies": {"a": ["b"]}, "not": {"type": "string"},
    "allOf": [{"type": "null"}], "anyOf": [{"type": "null"}], "oneOf": [{"type": "null"}],
    "if": {"type": "string"}, "x-verbatim": True,
    "x-grammar": {"syntax": "regex", "definition": "a"},
    "unevaluatedItems": False, "unevaluatedProperties": False,
}  # fmt: skip
"""For each keyword, a value with which some JSON value is invalid."""
REFUSED = {"uniqueItems", "x-verbatim", "x-grammar", "unevaluatedItems", "unevaluatedProperties"}


@pytest.mark.parametrize("keyword", sorted(_NEGATIONS))
def test_a_negated_keyword_is_enforced_or_refused(keyword: str) -> None:
    schema = {keyword: WEAK[keyword]} | ({"then": False} if keyword == "if" else {})
    if keyword in REFUSED:
        with pytest.raises(UnsupportedSchema) as caught:
            compile_program(JsonSchema({"not": schema}))
        assert caught.value.keyword == keyword
    else:
        program = compile_program(JsonSchema({"not": schema}))
        assert program.derivatives.length(program.root) < INFINITE


def test_our_own_keywords_are_listed() -> None:
    page = Path("docs/keywords.md").read_text()
    assert all(f"`{keyword}`" in page for keyword in OURS)
