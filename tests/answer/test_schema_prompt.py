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
IN_THE_PROMPT = {
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


def test_only_keywords_that_guide_the_content_are_in_the_prompt() -> None:
    assert schema_text(SCHEMA) == json.dumps(IN_THE_PROMPT, separators=(",", ":"))


def test_name_and_description_of_the_format_replace_missing_ones() -> None:
    schema_prompt = json.loads(schema_text({"type": "object"}, "contact", "a person"))
    assert schema_prompt == {"title": "contact", "description": "a person", "type": "object"}
    titled = {"title": "Person", "description": "somebody", "type": "object"}
    assert json.loads(schema_text(titled, "contact", "a person")) == titled


@pytest.mark.parametrize("schema", [True, False, {}, {"$schema": "x", "required": ["a"]}])
def test_a_schema_without_information_is_left_out(schema: Any) -> None:
    assert schema_text(schema) == ""


@pytest.mark.parametrize(
    "reference", ["#tag", "other.json", "#/properties/a", "#/definitions/x/items", "#/$defs"]
)
def test_definitions_stay_if_it_is_unclear_which_are_used(reference: str) -> None:
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


def test_the_schema_comes_first_in_the_system_message() -> None:
    user = {"role": "user", "content": "Hi"}
    system = {"role": "system", "content": "It is Monday."}
    assert messages(user) == [("system", ANSWER), ("user", "Hi")]
    assert messages(system, user) == [("system", f"{ANSWER}\n\nIt is Monday."), ("user", "Hi")]


def test_the_schema_is_in_the_first_user_message_if_there_is_no_system_role() -> None:
    gemma = replace(HERMES_CHAT, takes_system=False)
    again = [("user", f"{ANSWER}\n\nHi"), ("assistant", "Yes?"), ("user", "Go on")]
    given = [("user", "Hi"), *again[1:]]
    found = messages(*({"role": r, "content": c} for r, c in given), format=gemma)
    assert found == again


def test_the_instructions_mention_calls_if_there_are_tools() -> None:
    ((_, text), _) = messages({"role": "user", "content": "Hi"}, tools=[TOOL])
    assert text.startswith("Unless you call a function, answer with JSON")


@pytest.mark.parametrize("takes_system", [True, False])
def test_functions_follow_the_schema_if_the_template_lists_none(takes_system: bool) -> None:
    plain = ChatFormat(tools=PLAIN, takes_system=takes_system)
    found = messages({"role": "user", "content": "Hi"}, format=plain, tools=[TOOL])
    assert [role for role, _ in found] == (["system", "user"] if takes_system else ["user"])
    text = found[0][1]
    assert "JSON Schema" in text
    assert "You can call functions" in text


def test_an_empty_schema_text_leaves_the_messages_unchanged() -> None:
    conversation = Conversation([{"role": "user", "content": "Hi"}], schema_prompt=SchemaPrompt(""))
    assert [each["role"] for each in template_input(conversation, HERMES_CHAT).messages] == ["user"]
