from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from app.answer.formats.chat import ChatFormat
from app.answer.formats.families import HERMES, PLAIN
from app.answer.prompt import Conversation, template_input
from app.answer.schema_prompt import SchemaPrompt, schema_text
from app.answer.tools import FunctionTool

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Contact",
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "as written", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 9007199254740991},
        "required": {"type": "array", "items": {"$ref": "#/$defs/Tag"}, "uniqueItems": True},
        "kind": {"type": "string", "title": "What it is", "x-verbatim": True},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "not": {"required": ["nothing"]},
    "$defs": {
        "Tag": {"enum": ["a", "b"]},
        "Unused": {"type": "string"},
    },
}
TOLD = {
    "title": "Contact",
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "as written", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0},
        "required": {"type": "array", "items": {"$ref": "#/$defs/Tag"}},
        "kind": {"type": "string", "title": "What it is"},
    },
    "$defs": {"Tag": {"enum": ["a", "b"]}},
}
HERMES_CHAT = ChatFormat(tools=HERMES)
TOOL = FunctionTool("f", "does it", {"type": "object", "properties": {}})


def test_what_values_mean_is_told_and_what_a_mask_sees_to_is_not() -> None:
    assert schema_text(SCHEMA) == json.dumps(TOLD, separators=(",", ":"))


def test_the_name_of_the_format_stands_for_a_title_and_its_description_for_one() -> None:
    schema_prompt = json.loads(schema_text({"type": "object"}, "contact", "a person"))
    assert schema_prompt == {"title": "contact", "description": "a person", "type": "object"}
    titled = {"title": "Person", "description": "somebody", "type": "object"}
    assert json.loads(schema_text(titled, "contact", "a person")) == titled


@pytest.mark.parametrize("schema", [True, False, {}, {"$schema": "x", "required": ["a"]}])
def test_a_schema_that_says_nothing_is_not_told(schema: Any) -> None:
    assert schema_text(schema) == ""


@pytest.mark.parametrize(
    "reference", ["#tag", "other.json", "#/properties/a", "#/definitions/x/items", "#/$defs"]
)
def test_definitions_stay_where_it_is_not_plain_which_are_used(reference: str) -> None:
    schema = {"properties": {"a": {"$ref": reference}}, "$defs": {"x": {"$anchor": "tag"}}}
    assert "x" in json.loads(schema_text(schema))["$defs"]


def test_definitions_that_use_one_another_stay() -> None:
    tree = {"properties": {"below": {"$ref": "#/$defs/other~1one"}}}
    schema = {"$ref": "#/$defs/tree", "$defs": {"tree": tree, "other/one": {"$ref": "#"}}}
    assert json.loads(schema_text(schema))["$defs"] == schema["$defs"]


def messages(
    *given: dict[str, Any], format: ChatFormat = HERMES_CHAT, tools: Any = ()
) -> list[tuple[str, str]]:
    conversation = Conversation(given, tools, schema_prompt=SchemaPrompt("{}"))
    return [
        (each["role"], each["content"]) for each in template_input(conversation, format).messages
    ]


ANSWER = "Answer with JSON that follows this JSON Schema, and with nothing else:\n{}"


def test_it_is_the_system_message_or_stands_before_what_that_says() -> None:
    user = {"role": "user", "content": "Hi"}
    system = {"role": "system", "content": "It is Monday."}
    assert messages(user) == [("system", ANSWER), ("user", "Hi")]
    assert messages(system, user) == [("system", f"{ANSWER}\n\nIt is Monday."), ("user", "Hi")]


def test_where_a_template_has_no_place_for_that_it_is_first_in_the_users_first_message() -> None:
    gemma = replace(HERMES_CHAT, takes_system=False)
    again = [("user", f"{ANSWER}\n\nHi"), ("assistant", "Yes?"), ("user", "Go on")]
    given = [("user", "Hi"), *again[1:]]
    found = messages(*({"role": r, "content": c} for r, c in given), format=gemma)
    assert found == again


def test_an_answer_that_may_be_a_call_is_told_so() -> None:
    ((_, text), _) = messages({"role": "user", "content": "Hi"}, tools=[TOOL])
    assert text.startswith("Unless you call a function, answer with JSON")


@pytest.mark.parametrize("takes_system", [True, False])
def test_functions_are_told_after_it_where_the_template_knows_none(takes_system: bool) -> None:
    plain = ChatFormat(tools=PLAIN, takes_system=takes_system)
    found = messages({"role": "user", "content": "Hi"}, format=plain, tools=[TOOL])
    assert [role for role, _ in found] == (["system", "user"] if takes_system else ["user"])
    text = found[0][1]
    assert "JSON Schema" in text
    assert "You can call functions" in text


def test_what_was_left_out_leaves_the_messages_as_they_are() -> None:
    conversation = Conversation([{"role": "user", "content": "Hi"}], schema_prompt=SchemaPrompt(""))
    assert [each["role"] for each in template_input(conversation, HERMES_CHAT).messages] == ["user"]
