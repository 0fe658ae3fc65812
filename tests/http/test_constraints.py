"""Every field in which clients of OpenAI, vLLM, SGLang and llama.cpp set a constraint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.core.composite import Composite
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidSchema
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex
from tests.http.harness import BODIES, CHAT, COMPLETIONS, chat, error_of, post
from tests.serving.fakes import Bench

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED = JsonSchema(SCHEMA, close_objects=True)
GBNF = 'root ::= "a" | "b"'
TAGS = {
    "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}],
    "triggers": ["<f>"],
}


async def constraint(path: str = CHAT, **fields: Any) -> ConstraintSpec | None:
    bench = Bench()
    await post(bench, path, {**BODIES[path], **fields})
    return bench.compiled[0] if bench.compiled else None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, CLOSED),
        ({"structured_outputs": {"json": SCHEMA}}, CLOSED),
        ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, CLOSED),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_additional_properties": False}},
            JsonSchema(SCHEMA),
        ),
        ({"structured_outputs": {"regex": "a+"}}, Regex("a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Choice(("a", "b"))),
        ({"structured_outputs": {"grammar": GBNF}}, Grammar(GBNF)),
        ({"structured_outputs": {"json_object": True}}, JsonObject()),
        ({"structured_outputs": {"regex": "a", "json": None, "json_object": False}}, Regex("a")),
        ({"guided_json": SCHEMA}, CLOSED),
        ({"guided_regex": "a"}, Regex("a")),
        ({"guided_choice": ["a"]}, Choice(("a",))),
        ({"guided_grammar": GBNF}, Grammar(GBNF)),
        ({"regex": "a"}, Regex("a")),
        ({"ebnf": GBNF}, Grammar(GBNF, "gbnf")),
        ({"grammar": GBNF}, Grammar(GBNF)),
        ({"json_schema": SCHEMA}, CLOSED),
        ({"json_schema": json.dumps(SCHEMA)}, CLOSED),
        ({"response_format": {"type": "text"}, "regex": "a"}, Regex("a")),
        ({"response_format": None, "structured_outputs": None}, None),
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_constraint_is_understood(
    path: str, fields: dict[str, Any], expected: ConstraintSpec | None
) -> None:
    found = await constraint(path, **fields)
    if fields.get("response_format", {}) and "schema" in fields["response_format"]:
        assert isinstance(found, JsonSchema)
        assert found.schema["type"] == "object"
        assert found.close_objects
    else:
        assert found == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"structured_outputs": {"structural_tag": TAGS}},
        {"structured_outputs": {"structural_tag": json.dumps(TAGS)}},
        {"structural_tag": json.dumps({"type": "structural_tag", **TAGS})},
        {"response_format": {"type": "structural_tag", **TAGS}},
        {
            "response_format": {
                "type": "structural_tag",
                "format": {"type": "json_schema", "json_schema": SCHEMA},
            }
        },
    ],
)
async def test_structural_tags_are_understood_in_both_forms(fields: dict[str, Any]) -> None:
    assert isinstance(await constraint(**fields), Composite)


@pytest.mark.parametrize(
    ("options", "whitespace"),
    [
        ({}, "spaced"),
        ({"disable_any_whitespace": True}, "spaced"),
        ({"whitespace_pattern": ""}, "compact"),
        ({"whitespace_pattern": " ?"}, "spaced"),
        ({"whitespace_pattern": r"[\n\t ]*"}, "flexible"),
        ({"whitespace_pattern": r"[\n\t ]*", "disable_any_whitespace": True}, "spaced"),
    ],
)
async def test_white_space_options_choose_a_form_that_they_admit(
    options: dict[str, Any], whitespace: str
) -> None:
    found = await constraint(structured_outputs={"json": SCHEMA, **options})
    assert found == JsonSchema(SCHEMA, close_objects=True, whitespace=whitespace)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"regex": "a", "ebnf": GBNF}, "ebnf"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
         "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": SCHEMA, "whitespace_pattern": " +"}},
         "structured_outputs.whitespace_pattern"),
        ({"structured_outputs": {"json": SCHEMA, "whitespace_pattern": "["}},
         "structured_outputs.whitespace_pattern"),
        ({"structured_outputs": {"json": SCHEMA, "whitespace_pattern": r"((\s?){9}){9}"}},
         "structured_outputs.whitespace_pattern"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "schema_id": "schema_x"}},
         "response_format.schema_id"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "structural_tag", "format": {"type": "x"}}},
         "response_format.format.type"),
        ({"structured_outputs": {"structural_tag": {**TAGS, "triggers": ["<g>"]}}},
         "structured_outputs.structural_tag.structures[0].begin"),
    ],
)  # fmt: skip
async def test_an_invalid_constraint_field_is_named(fields: dict[str, Any], param: str) -> None:
    assert error_of(await post(Bench(), CHAT, chat(**fields), 400))["param"] == param


async def test_two_constraints_are_named_both() -> None:
    refused = await post(Bench(), CHAT, chat(regex="a", guided_choice=["a"]), 400)
    assert "guided_choice and regex" in error_of(refused)["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "regex", "regex": "("}}, "response_format"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ({"guided_grammar": "x"}, "guided_grammar"),
    ],
)
async def test_a_compile_error_names_the_field_of_the_constraint(
    fields: dict[str, Any], param: str
) -> None:
    bench = Bench()
    bench.compile_error = InvalidSchema("it is wrong")
    assert error_of(await post(bench, CHAT, chat(**fields), 400))["param"] == param
