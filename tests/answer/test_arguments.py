"""Arguments that are not JSON text: admitted texts are read back as valid objects."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from app.answer.arguments import JsonReader, LiteralReader, ParameterReader
from app.answer.incoming import ArgumentsReader, JsonPart
from app.constraint import compile_program
from app.core.arguments import Arguments, Parameters, Readings, json_kind, kind_of
from app.core.composite import Composite, FixedText, Series
from app.core.errors import UnsatisfiableSchema, UnsupportedSchema
from app.core.literals import Literals
from app.core.specs import JsonSchema
from tests.answer.walks import check_arguments, joined, read_arguments
from tests.constraint.walks import Walker

LINES = Parameters(
    "<parameter=", "\n</parameter>\n", "</parameter>", between=">\n", python_words=True
)
"""The notation of Qwen3-Coder."""
PAIRS = Parameters("\n<arg_key>", "</arg_value>", "</arg_value>", between="</arg_key>\n<arg_value>")
"""The notation of GLM 4.5."""
STRINGS_MARKED = Parameters(
    '<p name="',
    "</p>\n",
    "</p>",
    between='" string="false">',
    types=(("string", '" string="true">'),),
)
"""The notation of DeepSeek V3.2."""
PYTHON = Parameters(
    "<parameter=",
    "</parameter>\n",
    "</parameter>",
    between=">",
    nested=Literals(quote="'"),
    python_words=True,
)
"""The notation of Seed-OSS."""
NOTATIONS = (LINES, PAIRS, STRINGS_MARKED, PYTHON)

END = "</end>"
NESTED = 'root ::= "" | "a" root "b"'

SCHEMAS: list[dict[str, Any]] = [
    {
        "properties": {
            "city": {"type": "string", "minLength": 2, "maxLength": 9},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "flags": {"type": "array", "items": {"enum": ["a", None, True]}, "maxItems": 3},
            "on": {"type": "boolean"},
        },
        "required": ["city", "on"],
    },
    {
        "properties": {
            "either": {"type": ["string", "null", "number", "boolean"]},
            "deep": {"anyOf": [{"type": "string"}, {"type": "array", "items": {}}]},
            "any": {},
            "where": {"$ref": "#/$defs/place"},
        },
        "$defs": {
            "place": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
        },
    },
    {
        "properties": {"unit": {"enum": ["c", "f", "1", 1, None, [1, "x"]]}, "k": {"const": "é"}},
        "additionalProperties": {"type": "string", "pattern": "^[0-9]*$"},
    },
    {
        "properties": {"size": {"type": "string", "format": "date"}},
        "patternProperties": {"^n": {"type": ["integer", "string"]}},
        "additionalProperties": False,
        "maxProperties": 3,
    },
    {
        "anyOf": [
            {"properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b"]},
        ]
    },
    {
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}, "n": {"type": "string"}},
        "required": ["n"],
    },
    {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"minLength": 3}}}]},
    {"additionalProperties": True},
    {"not": {"properties": {"a": {"const": "x"}}, "required": ["a"]}, "properties": {"a": {}}},
    {"enum": [{"a": "x", "b": 1}, {"a": "</end>"}]},
]


def spec_of(schema: dict[str, Any], notation: Parameters) -> Composite:
    """The arguments, followed by ``END``."""
    json_schema = JsonSchema({"type": "object", **schema}, close_objects=True, subject="f")
    return Composite(Series((Arguments(json_schema, notation, json_schema.schema), FixedText(END))))


def read(
    schema: dict[str, Any], notation: Parameters, chunks: Sequence[str]
) -> tuple[list[JsonPart], str | None]:
    reader = ParameterReader(notation, Readings({"type": "object", **schema}))
    return read_arguments(reader, chunks)


def spelled(notation: Parameters, value: Any) -> str:
    if isinstance(value, str):
        return value
    if notation.nested is not None:
        return notation.nested.written(value)
    return json.dumps(value, ensure_ascii=False)


def written(notation: Parameters, arguments: dict[str, Any]) -> str:
    """The arguments as a chat template writes them."""
    return "".join(
        notation.before
        + name
        + notation.between_of(json_kind(value))
        + spelled(notation, value)
        + notation.after
        for name, value in arguments.items()
    )


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_text_that_is_admitted_reads_as_a_valid_object_in_every_split(
    schema: dict[str, Any], notation: Parameters
) -> None:
    walker = Walker.of(spec_of(schema, notation))
    check_arguments(walker, lambda chunks: read(schema, notation, chunks), schema, END)


@pytest.mark.parametrize("notation", NOTATIONS)
def test_the_text_of_a_template_is_admitted_and_read_back(notation: Parameters) -> None:
    schema, values = (
        SCHEMAS[0],
        {"city": "Ulm\n12", "days": 3, "flags": ["a", None, True], "on": True},
    )
    text = written(notation, values) + END
    assert Walker.of(spec_of(schema, notation)).accepts(text)
    parts, rest = read(schema, notation, [text])
    assert json.loads(joined(parts)) == values
    assert list(json.loads(joined(parts))) == list(values)
    assert rest == END


@pytest.mark.parametrize(
    "reader",
    [
        JsonReader,
        lambda: LiteralReader(Literals(quote="'")),
        *(partial(ParameterReader, notation, Readings(SCHEMAS[0])) for notation in NOTATIONS),
    ],
)
@pytest.mark.parametrize("text", ["", "{", "city=", "\n<arg_key>city</arg_key>\n<arg_value>U"])
def test_a_reader_is_freed_without_the_garbage_collector(
    reader: Callable[[], ArgumentsReader], text: str
) -> None:
    """The collector skips all objects that existed when a compiled schema was loaded."""
    made = reader()
    made.push(text, 0)
    left = weakref.ref(made)
    gc.disable()
    try:
        del made
        assert left() is None
    finally:
        gc.enable()


def test_no_arguments_are_no_text() -> None:
    assert Walker.of(spec_of({}, LINES)).accepts(END)
    assert joined(read({}, LINES, [END])[0]) == "{}"


def test_a_string_is_bare_and_keeps_its_own_rules() -> None:
    schema = {"properties": {"a": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}}}
    walker = Walker.of(spec_of(schema, LINES))
    accepted = [s for s in ("abc", "abcd", "", "AB", '"ab"', "null") if accepts(walker, s)]
    assert accepted == ["abc"]
    number = Walker.of(spec_of({"properties": {"a": {"type": "string"}}}, LINES))
    assert all(accepts(number, text) for text in ("12", "null", "[1", "a\n\nb\n", "", "</paramete"))
    assert not accepts(number, "a</parameter>b")


def test_a_string_of_a_grammar_is_bare_too() -> None:
    grammar = {"syntax": "lark", "definition": 'start: "SELECT \\"" /[a-z<]+/ "\\"\\n"'}
    schema = {"properties": {"a": {"type": "string", "x-grammar": grammar}}}
    walker = Walker.of(spec_of(schema, LINES))
    assert accepts(walker, 'SELECT "ab"\n')
    assert not accepts(walker, 'SELECT "12"\n')


def accepts(walker: Walker, value: str) -> bool:
    return walker.accepts(LINES.before + "a" + LINES.between + value + LINES.after + END)


def test_beside_other_types_a_string_may_not_look_like_one_of_them() -> None:
    schema = {"properties": {"a": {"type": ["string", "null", "integer"]}}}
    walker = Walker.of(spec_of(schema, LINES))
    looks = {"null": None, "None": None, "12": 12, "1.5": None, "true": "true", "[1]": "[1]"}
    for text, value in looks.items():
        assert accepts(walker, text) == (text != "1.5")
        if text != "1.5":
            parts, _ = read(schema, LINES, [LINES.before + "a>\n" + text + LINES.after + END])
            assert json.loads(joined(parts)) == {"a": value}


def test_where_types_are_marked_a_string_may_look_like_anything() -> None:
    schema = {"properties": {"a": {"type": ["string", "null", "integer"]}}}
    for value in ("null", "12", None, 12):
        text = written(STRINGS_MARKED, {"a": value}) + END
        assert Walker.of(spec_of(schema, STRINGS_MARKED)).accepts(text)
        assert json.loads(joined(read(schema, STRINGS_MARKED, [text])[0])) == {"a": value}


def test_a_string_comes_as_it_is_written() -> None:
    schema = {"properties": {"a": {"type": "string"}}}
    reader = ParameterReader(LINES, Readings(schema))
    seen = [joined(reader.push(chunk, 0)) for chunk in ("<parameter=a>\nHe", 'l"l', "o\n</pa", "x")]
    assert seen == ['{"a": "He', 'l\\"l', "o", "\\n</pax"]


def test_parts_lie_where_their_values_are_written() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
    text = written(LINES, {"a": "xy", "b": 12}) + END
    parts = read(schema, LINES, [text])[0]
    places = {part.text: text[part.start : part.end] for part in parts}
    assert places["xy"] == "xy"
    assert places["12"] == "12"
    assert places['{"a": '] == "<parameter=a>\n"


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"properties": {"a": {"type": "string", "x-verbatim": True}}}, "x-verbatim"),
        ({"properties": {"a": {"enum": ["x", "y"], "x-choice": "exact"}}}, "x-choice"),
        ({"properties": {"a>\nb": {"type": "string"}}}, "properties"),
        ({"properties": {"a": {"enum": ["x</parameter>"]}}}, "enum"),
        ({"minProperties": 4}, "minProperties"),
        ({"properties": {"a": {"type": "string", "x-grammar": NESTED}}}, "x-grammar"),
    ],
)
def test_a_schema_that_the_notation_cannot_express_is_refused(
    schema: dict[str, Any], keyword: str
) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        compile_program(spec_of(schema, LINES))
    assert caught.value.keyword == keyword


def test_a_function_whose_arguments_nothing_satisfies_is_refused() -> None:
    with pytest.raises(UnsatisfiableSchema):
        compile_program(spec_of({"properties": {"a": False}, "required": ["a"]}, LINES))


def test_arrays_and_objects_may_be_pythons() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": ["array", "object", "string"]}}}
    walker = Walker.of(spec_of(schema, PYTHON))
    values: dict[str, Any] = {
        """['it\\'s', "x"]""": None,
        """['it\\'s "x"', None]""": ['it\'s "x"', None],
        "{'k': [True, -2.5]}": {"k": [True, -2.5]},
        "[null]": None,
        "it's": "it's",
    }
    for text, value in values.items():
        whole = f"<parameter=a>{text}</parameter>\n{END}"
        assert walker.accepts(whole) == (value is not None)
        if value is not None:
            for chunks in ([whole], list(whole)):
                assert json.loads(joined(read(schema, PYTHON, chunks)[0])) == {"a": value}
    verbatim = {"type": "array", "items": {"type": "string", "x-verbatim": True}}
    with pytest.raises(UnsupportedSchema):
        compile_program(spec_of({"properties": {"a": verbatim}}, PYTHON))


def test_a_relaxed_schema_admits_only_what_is_read_by_the_functions_own() -> None:
    own = {"type": "object", "properties": {"a": {"type": "string"}}}
    relaxed = JsonSchema({"type": "object", "properties": {"a": {}}}, close_objects=True)
    arguments = Arguments(relaxed, LINES, own)
    walker = Walker.of(Composite(Series((arguments, FixedText(END)))))
    assert accepts(walker, "12")
    parts, _ = read(own, LINES, [LINES.before + "a>\n12" + LINES.after + END])
    assert json.loads(joined(parts)) == {"a": "12"}
    assert not accepts(walker, "a</parameter>")


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        ({"type": "string"}, {"string"}),
        ({"$ref": "#/$defs/s"}, {"string"}),
        ({"allOf": [{"type": ["string", "null"]}, {"minLength": 1}]}, {"string", "null"}),
        ({"anyOf": [{"const": 1}, {"enum": ["x"]}]}, {"string", "number"}),
        ({"$ref": "#/$defs/self"}, set(Readings({}).kinds("a"))),
        (False, set()),
    ],
)
def test_types_are_seen_through_references_and_applicators(schema: Any, kinds: set[str]) -> None:
    defs = {"s": {"type": "string"}, "self": {"$ref": "#/$defs/self"}}
    assert Readings({"properties": {"a": schema}, "$defs": defs}).kinds("a") == kinds


def test_a_word_is_one_only_where_its_type_may_stand() -> None:
    assert kind_of("True", frozenset({"string", "boolean"}), LINES.words) == "boolean"
    assert kind_of("True", frozenset({"string", "null"}), LINES.words) == "string"
    assert kind_of("True", frozenset({"string", "boolean"}), PAIRS.words) == "string"
