"""Arguments as literals of other notations: admitted texts are read back as valid objects."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Any

import pytest

from app.answer.arguments import LiteralReader
from app.answer.incoming import JsonPart
from app.constraint import compile_program
from app.core.arguments import Arguments
from app.core.composite import Composite, FixedText, Series
from app.core.errors import UnsupportedSchema
from app.core.literals import Literals
from app.core.specs import JsonSchema
from tests.answer.test_arguments import NESTED, SCHEMAS
from tests.answer.walks import check_arguments, joined, read_arguments
from tests.constraint.walks import Walker

PYTHON = Literals()
SINGLE = Literals(quote="'")
"""The notation of LFM2.5."""
GEMMA = Literals(
    equals=":",
    comma=",",
    end="}",
    quote='<|"|>',
    escaped=False,
    words=("None", "false", "true"),
    colon=":",
    bare_names=True,
    sorted_names=True,
)
NOTATIONS = (PYTHON, SINGLE, GEMMA)

UNIQUE = {"a": {"type": "array", "uniqueItems": True, "items": {"type": "string"}}}
COUNTED = {"a": {"type": "object", "minProperties": 2, "additionalProperties": {"type": "null"}}}
MORE_SCHEMAS: list[dict[str, Any]] = [
    *SCHEMAS,
    {"properties": {"a": {"type": "string", "pattern": "^['\"\\\\a-c]*$"}}, "required": ["a"]},
    {"properties": {"a": {"type": "string", "not": {"enum": ["it's", '"', ""]}}}},
    {"properties": UNIQUE, "required": ["a"]},
    {"properties": COUNTED, "required": ["a"]},
]


def spec_of(schema: dict[str, Any], notation: Literals) -> Composite:
    """The arguments, followed by their end and ``END``."""
    json_schema = JsonSchema({"type": "object", **schema}, close_objects=True, subject="f")
    arguments = Arguments(json_schema, notation, json_schema.schema)
    return Composite(Series((arguments, FixedText(notation.end + "END"))))


def read(notation: Literals, chunks: Sequence[str]) -> tuple[list[JsonPart], str | None]:
    return read_arguments(LiteralReader(notation), chunks)


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("schema", MORE_SCHEMAS)
def test_every_text_that_is_admitted_reads_as_a_valid_object_in_every_split(
    schema: dict[str, Any], notation: Literals
) -> None:
    walker = Walker.of(spec_of(schema, notation))
    check_arguments(walker, lambda chunks: read(notation, chunks), schema, notation.end + "END")


VALUES: dict[str, Any] = {
    "text": 'it\'s "so" \\ <b>\n\té\u00a0😀 \\n',
    "words": ["null", "True", None, True, False, ""],
    "numbers": [0, -1, 2.5, 1e22, 12345678901234567890],
    "nested": {"k": {"deep": [[], {}, [{"x": "y"}]]}, "m": "'"},
    "nothing": None,
}
ANYTHING: dict[str, Any] = {"properties": {name: {} for name in VALUES}}


@pytest.mark.parametrize("notation", NOTATIONS)
def test_written_arguments_are_admitted_and_read_back(notation: Literals) -> None:
    text = notation.arguments(VALUES) + notation.end + "END"
    assert Walker.of(spec_of(ANYTHING, notation)).accepts(text)
    for chunks in ([text], list(text), *([text[:at], text[at:]] for at in range(len(text)))):
        parts, rest = read(notation, chunks)
        assert json.loads(joined(parts)) == VALUES
        assert rest == notation.end + "END"


@pytest.mark.parametrize("notation", [PYTHON, SINGLE])
def test_python_reads_the_same_values(notation: Literals) -> None:
    call = ast.parse(f"f({notation.arguments(VALUES)})", mode="eval").body
    assert isinstance(call, ast.Call)
    assert {each.arg: ast.literal_eval(each.value) for each in call.keywords} == VALUES


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        (PYTHON, 'text="a", words=[None, True], nested={"k": 1}'),
        (SINGLE, "text='it\\'s \"so\"', words=[None, True], nested={'k': 1}"),
        (GEMMA, 'nested:{k:1},text:<|"|>it\'s "so"\n<|"|>,words:[None,true]'),
    ],
)
def test_a_value_has_the_models_own_spelling(notation: Literals, text: str) -> None:
    walker = Walker.of(spec_of(ANYTHING, notation))
    assert walker.accepts(text + notation.end + "END")
    for wrong in (text.replace("None", "null"), text.replace("rue", "RUE"), text.replace(",", ";")):
        assert not walker.accepts(wrong + notation.end + "END")


def test_a_string_without_escapes_does_not_hold_its_quote() -> None:
    schema = {"properties": {"a": {"enum": ['x<|"|>y', "z"]}, "b": {"type": "string"}}}
    walker = Walker.of(spec_of(schema, GEMMA))
    assert walker.accepts('a:<|"|>z<|"|>,b:<|"|><|"|<|"|>}END')
    assert not walker.accepts('a:<|"|>x<|"|>y<|"|>}END')
    assert not walker.accepts('b:<|"|>x<|"|>y<|"|>}END')


def test_a_string_of_a_grammar_has_the_notations_escapes() -> None:
    schema = {"properties": {"a": {"type": "string", "x-grammar": 'root ::= "\'\\"" [\'x]+'}}}
    for notation in NOTATIONS:
        walker, end = Walker.of(spec_of(schema, notation)), notation.end + "END"
        assert walker.accepts(notation.arguments({"a": "'\"x'x"}) + end)
        assert not walker.accepts(notation.arguments({"a": "'\""}) + end)


def test_no_arguments_are_no_text() -> None:
    assert Walker.of(spec_of({}, PYTHON)).accepts(")END")
    assert joined(read(PYTHON, [")"])[0]) == "{}"


def test_parts_lie_where_their_values_are_written() -> None:
    text = SINGLE.arguments({"a": "xy", "b": [12, None]}) + ")"
    places = {part.text: text[part.start : part.end] for part in read(SINGLE, [text])[0]}
    assert places["xy"] == "xy"
    assert places["12"] == "12"
    assert places["null"] == "None"
    assert places['{"a": '] == "a="


@pytest.mark.parametrize(
    ("notation", "properties", "keyword"),
    [
        (PYTHON, {"a": {"type": "string", "x-verbatim": True}}, "x-verbatim"),
        (GEMMA, {"a": {"type": "string", "x-grammar": NESTED}}, "x-grammar"),
        (PYTHON, {"a": {"enum": ["x", "y"], "x-choice": "exact"}}, "x-choice"),
        (PYTHON, {"a=b": {"type": "string"}}, "properties"),
        (GEMMA, {"a": {"type": "object", "properties": {"b:c": {}}}}, "properties"),
        (GEMMA, {"a": {"enum": ['x<|"|>']}}, "enum"),
    ],
)
def test_a_schema_that_the_notation_cannot_express_is_refused(
    notation: Literals, properties: dict[str, Any], keyword: str
) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        compile_program(spec_of({"properties": properties}, notation))
    assert caught.value.keyword == keyword
