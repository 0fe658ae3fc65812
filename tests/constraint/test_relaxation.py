from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from app.constraint.limits import Limits
from app.constraint.program import compile_program
from app.constraint.satisfaction import satisfied
from app.constraint.schema.edits import edited
from app.core.arguments import Arguments, Parameters
from app.core.composite import Composite, Either, Series
from app.core.constraint import Relaxation, Written
from app.core.errors import ConstraintError, InvalidSchema, UnsatisfiableSchema, UnsupportedSchema
from app.core.specs import JsonSchema
from tests.conformance.random_schemas import random_schema
from tests.conformance.relaxing import left_out, spoiled, widened
from tests.conformance.suite import DRAFTS
from tests.conformance.verdicts import Verdict, judge
from tests.constraint.walks import Walker
from tests.wide import many
from tools import datasets

REPEATED = r"^(a|b)\1$"
"""A pattern that no automaton can recognise."""
NEGATED = {"type": "array", "unevaluatedItems": True}
"""A schema whose negation cannot be enforced."""


def relaxations(schema: Any) -> list[tuple[str, str]]:
    program = compile_program(JsonSchema(schema, relax=True))
    return [(each.pointer, each.keyword) for each in program.relaxed]


def language(schema: Any, *, close: bool = False) -> Walker:
    return Walker.of(JsonSchema(widened(schema)[0], close_objects=close))


def test_what_can_be_enforced_is_not_relaxed() -> None:
    assert relaxations({"type": "string", "pattern": "^a+$"}) == []


def test_a_keyword_is_dropped_at_its_place_alone() -> None:
    text = {"type": "string", "pattern": REPEATED, "maxLength": 2}
    schema = {"properties": {"a": text, "b": {"type": "integer"}}, "required": ["a"]}
    assert relaxations(schema) == [("/properties/a/pattern", "pattern")]
    walker = language(schema)
    assert walker.accepts('{"a": "xy", "b": 1}')
    assert not walker.accepts('{"a": "xyz", "b": 1}')
    assert not walker.accepts('{"a": "xy", "b": "1"}')


@pytest.mark.parametrize(
    ("schema", "places", "value"),
    [
        ({"not": NEGATED}, [("/not", "not")], "[1]"),
        ({"if": NEGATED, "then": {"maxItems": 2}}, [("/if", "if")], "[1, 2, 3]"),
        ({"oneOf": [NEGATED, {"type": "array"}]}, [("/oneOf", "oneOf")], "[1]"),
        (
            {"type": "array", "contains": NEGATED, "maxContains": 1},
            [("/maxContains", "maxContains")],
            "[[1], [2]]",
        ),
        (
            {"not": {"allOf": [{"$ref": "#/$defs/n"}]}, "$defs": {"n": NEGATED}},
            [("/not", "not")],
            "[1]",
        ),
        ({"not": {"not": {"pattern": REPEATED}}}, [("/not/not/pattern", "pattern")], '"ab"'),
        (
            {"properties": {"a": {"not": NEGATED}, "b": {"not": {"pattern": REPEATED}}}},
            [("/properties/a/not", "not"), ("/properties/b/not", "not")],
            '{"a": [1], "b": "aa"}',
        ),
    ],
)
def test_a_keyword_below_a_negation_drops_the_negation(
    schema: Any, places: list[tuple[str, str]], value: str
) -> None:
    """``value`` is invalid, but only because of the dropped keyword."""
    assert relaxations(schema) == places
    assert not Draft202012Validator(schema).is_valid(json.loads(value))
    assert language(schema).accepts(value)


def test_negations_that_contain_each_other_are_dropped_together() -> None:
    tree = {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}
    a = {"properties": {"x": {"not": {"$ref": "#/$defs/b"}}, "p": {"pattern": REPEATED}}}
    b = {"properties": {"x": {"not": {"$ref": "#/$defs/a"}}}}
    places = relaxations({**tree, "$defs": {"a": a, "b": b}})
    assert {("/$defs/a/properties/x/not", "not"), ("/$defs/b/properties/x/not", "not")} <= {*places}
    assert ("", "") not in places


def test_an_external_reference_accepts_anything_even_in_a_closed_object() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "allOf": [{"$ref": "http://elsewhere.example/x"}],
        "unevaluatedProperties": False,
    }
    assert relaxations(schema) == [("/allOf/0/$ref", "$ref")]
    walker = language(schema, close=True)
    assert walker.accepts('{"a": 1, "more": [2]}')
    assert not walker.accepts('{"a": "1"}')


def test_names_that_a_dropped_pattern_meant_are_admitted() -> None:
    schema = {"patternProperties": {REPEATED: True}, "additionalProperties": False}
    assert relaxations(schema) == [("/patternProperties", "patternProperties")]
    assert language(schema).accepts('{"aa": 1}')


def test_a_pointer_is_that_of_the_schema_as_it_was_sent() -> None:
    text = {"type": "string", "pattern": REPEATED}
    schema = {"oneOf": [{"type": ["array", "string"], **NEGATED}, {"type": "array"}, text]}
    schema["oneOf"][0] = {"unevaluatedItems": True, "type": ["array", "null"]}
    assert relaxations(schema) == [("/oneOf", "oneOf"), ("/oneOf/2/pattern", "pattern")]


def test_the_costliest_keyword_of_a_too_complex_schema_is_dropped() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "pattern": "^((ab?){9,9999}c?){9,9999}$", "maxLength": 3},
            "b": {"type": "integer"},
        },
        "required": ["a", "b"],
    }
    assert relaxations(schema) == [("/properties/a/pattern", "pattern")]
    walker = language(schema)
    assert walker.accepts('{"a": "x", "b": 1}')
    assert not walker.accepts('{"a": "xyzz", "b": 1}')
    assert not walker.accepts('{"a": 1, "b": 1}')


def test_some_of_the_conditions_that_multiply_are_dropped_and_siblings_stay() -> None:
    """A condition on the types of each pair of five properties."""
    names = [f"p{number}" for number in range(5)]
    kinds = [
        {
            "if": {"properties": {a: {"type": "string"}, b: {"type": "string"}}},
            "then": {"minProperties": number % 4},
            "else": {"maxProperties": 4 - number % 3},
        }
        for number, (a, b) in enumerate(itertools.combinations(names, 2))
    ]
    schema = {
        "type": "object",
        "properties": {name: {"type": ["string", "integer"]} for name in names},
        "required": ["p0"],
        "additionalProperties": False,
        "allOf": kinds,
    }
    limits = Limits(branch_steps=2_000)
    found = compile_program(JsonSchema(schema, relax=True), limits).relaxed
    assert {each.keyword for each in found} == {"if"}
    assert len(found) < len(kinds)
    left = edited(schema, *((each.place, each.keyword) for each in found))
    walker = Walker.of(JsonSchema(left))
    assert walker.accepts('{"p0": 1, "p1": "x"}')
    assert not walker.accepts('{"p0": 1, "p12": 1}')
    assert not walker.accepts('{"p1": 1}')
    assert not walker.accepts('{"p0": null}')


def test_very_many_places_are_relaxed_as_one() -> None:
    text = {"type": "string", "pattern": REPEATED}
    schema = {"type": "object", "properties": {f"p{n}": text for n in range(60)}}
    places = relaxations(schema)
    assert len(places) == 49
    assert places[-1] == ("", "")
    assert language(schema).accepts('{"p59": 1}')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "strnig"}}},
        {"type": "string", "minLength": -1},
        {"$ref": "#/$defs/lost"},
    ],
)
def test_a_mistake_is_refused_all_the_same(schema: Any) -> None:
    with pytest.raises(InvalidSchema):
        compile_program(JsonSchema(schema, relax=True))


def test_a_pattern_of_another_dialect_is_no_mistake() -> None:
    assert relaxations({"type": "string", "pattern": r"(?P<year>\d{4})(?(year)-|)"}) == [
        ("/pattern", "pattern")
    ]


def test_extensions_of_ours_are_never_dropped() -> None:
    verbatim = {"type": "string", "x-verbatim": True}
    with pytest.raises(UnsupportedSchema):
        compile_program(JsonSchema({"not": verbatim}, relax=True))


@pytest.mark.parametrize(
    ("schema", "place", "accepted", "rejected"),
    [
        (
            {"type": "array", "items": {"type": "string"}, "enum": ["a", "b"]},
            ("/enum", "enum"),
            '["a"]',
            "[1]",
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "patternProperties": {"^x": False},
                "required": ["a", "x"],
            },
            ("/required/1", "required"),
            '{"a": 1}',
            "{}",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"],
             "additionalProperties": False},
            ("/additionalProperties", "additionalProperties"),
            '{"a": "x", "b": 1}',
            '{"a": "x"}',
        ),
        (
            {"type": "object", "required": ["a"],
             "properties": {"a": {"minLength": 3, "maxLength": 1, "type": "string"}}},
            ("/properties/a/maxLength", "maxLength"),
            '{"a": "xyz"}',
            '{"a": "xy"}',
        ),
        (
            {"type": "object", "required": ["n"], "properties": {"n": {"$ref": "#"}}},
            ("/required/0", "required"),
            "{}",
            '{"n": 1}',
        ),
        ({"oneOf": [{"type": "string"}, {"type": "string"}]}, ("/oneOf", "oneOf"), '"a"', "1"),
    ],
)  # fmt: skip
def test_a_contradiction_is_left_out_at_its_place(
    schema: Any, place: tuple[str, str], accepted: str, rejected: str
) -> None:
    assert relaxations(schema) == [place]
    walker = language(schema)
    assert walker.accepts(accepted)
    assert not walker.accepts(rejected)


def test_a_function_that_nothing_satisfies_leaves_the_others_as_they_are() -> None:
    """A real function of BFCL has ``enum`` beside ``items``."""

    def parameters(name: str, *, strict: bool) -> JsonSchema:
        lists = {"type": "array", "items": {"type": "string"}, "enum": ["a", "b"]}
        schema = {"type": "object", "properties": {"x": lists}, "required": ["x"]}
        return JsonSchema(schema, True, subject=f"the function {name!r}", relax=not strict)

    good = JsonSchema({"type": "object"}, subject="the function 'g'")
    program = compile_program(Composite(Either((good, parameters("f", strict=False)))))
    assert [(each.subject, each.pointer) for each in program.relaxed] == [
        ("the function 'f'", "/properties/x/enum")
    ]
    assert satisfied(
        Written(parameters("f", strict=False).schema, program.relaxed, ('{"x": ["a"]}',))
    ) == [False]
    with pytest.raises(UnsatisfiableSchema, match="the function 'f': no value") as caught:
        compile_program(Composite(Either((good, parameters("f", strict=True)))))
    assert caught.value.pointer == "/properties/x"


@pytest.mark.parametrize("strict", [False, True])
def test_an_error_about_a_function_names_it(strict: bool) -> None:
    good = JsonSchema({"type": "object"}, relax=True, subject="the function 'g'")
    bad = {"type": "object", "properties": {"a": {"type": "strnig"}}}
    spec = JsonSchema(bad, relax=not strict, subject="the function 'f'")
    with pytest.raises(InvalidSchema, match="the function 'f': type must be") as caught:
        compile_program(Composite(Either((good, spec))))
    assert caught.value.pointer == "/properties/a/type"


def test_of_several_schemas_those_are_relaxed_that_may_be() -> None:
    bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": REPEATED}}}
    loose = JsonSchema(bad, relax=True, subject="the parameters of the function 'f'")
    good = JsonSchema({"type": "integer"}, subject="the parameters of the function 'g'")
    program = compile_program(Composite(Either((good, loose))))
    assert [(each.subject, each.pointer) for each in program.relaxed] == [
        (loose.subject, "/properties/a/pattern")
    ]
    strict = JsonSchema(bad, subject=loose.subject)
    with pytest.raises(UnsupportedSchema):
        compile_program(Composite(Either((good, strict))))


def test_arguments_of_another_notation_are_relaxed_in_it() -> None:
    schema = JsonSchema(
        {
            "type": "object",
            "properties": {
                "a": {"type": "string", "pattern": REPEATED},
                "b": {"type": ["boolean", "string"], "enum": [True, "true"]},
                "c": {"const": "true", "type": ["boolean", "string"]},
            },
            "required": ["a"],
        },
        close_objects=True,
        relax=True,
    )
    notation = Parameters(before="<p=", between=">", after="</p>", stop="</p>")
    program = compile_program(Composite(Series((Arguments(schema, notation, schema.schema),))))
    assert [each.pointer for each in program.relaxed] == ["/properties/a/pattern"]


def test_a_schema_that_may_be_relaxed_is_another_one_to_the_cache() -> None:
    assert JsonSchema({}, relax=True).cache_key() != JsonSchema({}).cache_key()


def test_a_relaxed_schema_admits_all_that_the_schema_does() -> None:
    """``make fuzz`` tries more schemas."""
    valid = 0
    for seed in range(many(100, 3)):
        rng = random.Random(seed)
        schema = spoiled(random_schema(rng), rng)
        lacking, more = left_out(schema, rng, tries=20)
        assert lacking == [], seed
        valid += more
    assert valid > many(200, 5)


@pytest.mark.parametrize("draft", ["draft7", "draft2020-12"])
def test_refused_cases_of_the_official_suite_compile_and_admit_what_is_valid(draft: str) -> None:
    suite = datasets.official_suite(datasets.SUITE)[draft]
    cases = [case for name in suite if not name.startswith("optional/") for case in suite[name]]
    tried = 0
    for case in cases:
        if not isinstance(case["schema"], dict):
            continue
        schema = {"$schema": DRAFTS[draft], **case["schema"]}
        try:
            compile_program(JsonSchema(schema))
            continue
        except UnsatisfiableSchema:
            continue
        except ConstraintError:
            wider, found = widened(schema)
        assert found
        if any(each.keyword == "$schema" for each in found):
            continue  # a custom dialect, which may assert nothing
        walker = Walker.of(JsonSchema(wider))
        for test in case["tests"]:
            if test["valid"]:
                verdict = judge(wider, test["data"], valid=True, walker=walker)
                assert verdict is not Verdict.WRONG, (case["description"], test["description"])
                tried += 1
    assert tried >= (12 if draft == "draft7" else 40)


def test_recursive_schemas_that_maskbench_has_are_relaxed_where_they_negate() -> None:
    name = "Handwritten---testwp98"
    (case,) = [case for case in datasets.maskbench() if case["id"] == name]
    referent = case["schema"]["definitions"]["___utils_reference_json"]["properties"]["referent"]
    del referent["dependencies"]
    referent["unevaluatedProperties"] = True  # its negation cannot be enforced
    places = relaxations(case["schema"])
    assert {keyword for _, keyword in places} == {"oneOf"}


def written(schema: Any, *texts: str) -> list[bool | None]:
    return satisfied(Written(schema, widened(schema)[1], texts), Limits())


def test_answers_are_validated_against_the_original_schema() -> None:
    text = {"type": "string", "pattern": REPEATED}
    one = {"type": "object", "properties": {"a": text}}
    assert written(one, '{"a": "aa"}') == [True]
    assert written(one, '{"a": "ab"}') == [False]
    assert written(one, '{"a": "aa"}', '{"a": "ab"}') == [False]
    assert written(one, '{"a": "a') == [None]
    two = {"type": "object", "properties": {"a": text, "b": {"not": NEGATED}}}
    assert written(two, '{"a": "aa", "b": 1}') == [True, True]
    assert written(two, '{"a": "ab", "b": 1}') == [False, True]
    assert written(two, '{"a": "aa", "b": [1]}') == [True, False]


def test_answers_are_validated_where_a_keyword_inside_a_one_of_is_relaxed() -> None:
    short = {"pattern": REPEATED, "maxLength": 2}
    schema = {"type": "string", "oneOf": [short, {"maxLength": 1}]}
    found = widened(schema)[1]
    assert [each.pointer for each in found] == ["/oneOf", "/oneOf/0/pattern"]
    assert "anyOf" not in found[1].reason
    assert written(schema, '"aa"') == [True, True]
    assert written(schema, '"ab"') == [True, False]


def test_a_one_of_beside_an_any_of_leaves_the_pointers_of_the_latter() -> None:
    text = {"properties": {"a": {"pattern": REPEATED}}}
    schema = {"oneOf": [{"not": NEGATED}, {"type": "object"}], "anyOf": [text, {"type": "null"}]}
    assert ("/anyOf/0/properties/a/pattern", "pattern") in relaxations(schema)
    assert written(schema, '{"a": 1}', "1") == [False, True]


def test_each_name_that_is_no_longer_required_is_named_by_its_place_as_sent() -> None:
    schema = {"type": "object", "properties": {"a": False, "b": False}, "required": ["a", "b"]}
    assert relaxations(schema) == [("/required/0", "required"), ("/required/1", "required")]


def test_a_member_called_required_is_no_list_of_names() -> None:
    empty = {"type": "object", "required": ["a", "b"], "enum": [{"a": 1}, {"b": 1}]}
    lists = {"type": "array", "minItems": 1, "items": empty}
    schema = {"type": "object", "properties": {"required": lists}, "required": ["required"]}
    assert relaxations(schema) == [("/properties/required/items/required", "required")]


def test_validating_an_answer_fetches_nothing() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}
    assert written(schema, '{"a": 1}') == [None]


def test_satisfaction_of_a_keyword_with_several_readings_is_unknown() -> None:
    formats = {"oneOf": [{"format": "date"}, {"format": "date-time"}]}
    schema = {"properties": {"a": {"type": "string", **formats}, "b": {"pattern": REPEATED}}}
    found = compile_program(JsonSchema(schema, relax=True)).relaxed
    assert [each.keyword for each in found] == ["pattern", "format"]
    text = '{"a": "2020-01-01", "b": "%s"}'
    assert satisfied(Written(schema, found, (text % "aa",)), Limits()) == [True, None]
    assert satisfied(Written(schema, found, (text % "ab",)), Limits()) == [False, None]


def test_a_pattern_that_takes_for_ever_leaves_it_unknown() -> None:
    schema = {"type": "string", "pattern": r"^(a+)+\1$"}
    relaxed = (Relaxation("/pattern", "pattern", "", ""),)
    assert satisfied(Written(schema, relaxed, ('"' + "a" * 60 + 'b"',))) == [None]


def test_edits_leave_the_schema_as_it_is() -> None:
    schema = {"properties": {"a": {"pattern": REPEATED}}}
    assert edited(schema, ("/properties/a", "pattern")) == {"properties": {"a": {}}}
    assert schema == {"properties": {"a": {"pattern": REPEATED}}}


def test_contradictions_beyond_a_number_or_a_time_relax_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.constraint.relaxation._SECONDS", 0.1)
    properties = {f"p{n}": {"type": "string", "enum": [n]} for n in range(55)}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    found = relaxations(schema)
    assert len(found) <= 49
    assert found[-1] == ("", "")


def test_a_note_on_what_is_left_points_into_the_schema_that_was_sent() -> None:
    repeats = {"type": ["array", "string"], "not": {"type": "array", "uniqueItems": True}}
    schema = {"oneOf": [{"type": "array", "unevaluatedItems": False}, repeats]}
    notes = [
        each for each in compile_program(JsonSchema(schema, relax=True)).relaxed if each.inexact
    ]
    assert [note.pointer for note in notes] == ["/oneOf/1/not/uniqueItems"]
