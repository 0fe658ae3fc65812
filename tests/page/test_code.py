"""Programs of the code tab request exactly the schema on screen."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import openai
import pytest

from tests.page.toolchain import need_packages, node

STRING = {"type": "string"}
PART = {"$ref": "#/$defs/Part"}
PAIR = {"minItems": 2, "maxItems": 2}
DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}


def record(properties: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]} | others


EXPRESSIBLE: dict[str, Any] = {
    "flat": record({"name": STRING | {"maxLength": 9}, "age": DIGIT, "ok": {"type": "boolean"}}),
    "numbers": record(
        {
            "above": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1.5},
            "step": {"type": "integer", "minimum": -8, "maximum": 8, "multipleOf": 2},
            "cents": {"type": "number", "minimum": 0, "multipleOf": 0.01},
        }
    ),
    "strings": record(
        {
            "plain": STRING | {"pattern": "^[A-Z]{2}\\d+$"},
            "ahead": STRING | {"pattern": "^(?!x)[a-z]+$"},
            "day": STRING | {"format": "date"},
            "quote": STRING | {"x-verbatim": True, "minLength": 1},
        }
    ),
    "choices": record(
        {
            "one": {"const": 'a"b'},
            "some": {"enum": ["x", "y"]},
            "numbers": {"enum": [1, 2]},
            "mixed": {"enum": ["x", 1, None, True]},
        }
    ),
    "nullable": record(
        {"a": {"type": ["string", "null"]}, "b": {"anyOf": [DIGIT, {"type": "null"}]}}
    ),
    "names": record(
        dict.fromkeys(
            ["class", "schema", "two words", "_under", "list", "str", "model_x", "a-b", "a b"],
            DIGIT,
        )
    ),
    "nested": record(
        {
            "items": {"type": "array", "minItems": 1, "maxItems": 3, "items": record({"n": DIGIT})},
            "either": {"anyOf": [record({"a": DIGIT}), record({"b": STRING})]},
            "grid": {"type": "array", "items": {"type": "array", "items": DIGIT}},
        }
    ),
    "referred": record(
        {"one": PART, "many": {"type": "array", "items": PART}},
        **{"$defs": {"Part": record({"n": DIGIT})}},
    ),
    "words": record({"a": STRING | {"description": 'Say "yes" \\ or\n"no"'}}, description='End "'),
}
"""Schemas that Pydantic and Zod models express completely."""

LOOSE: dict[str, Any] = {
    "optional": record({"a": STRING, "b": DIGIT}) | {"required": ["a"]},
    "condition": record({"a": DIGIT}, **{"if": {"properties": {"a": {"const": 1}}}, "then": True}),
    "list": {"type": "array", "items": DIGIT},
    "quotes": record({"a": {"enum": [1.5, '"""', "\\"]}}),
    "overlap": record({"a": {"oneOf": [STRING, {"enum": ["x"]}]}}),
}
"""Schemas that programs send as JSON, because a model would express another schema."""

NODE_ONLY: dict[str, Any] = {
    "unique": record({"a": {"type": "array", "items": DIGIT, "uniqueItems": True}}),
    "pair": record({"a": {"type": "array", "prefixItems": [DIGIT, STRING]} | PAIR}),
    "map": record({"a": {"type": "object", "additionalProperties": DIGIT}}),
}
"""Schemas that become models in Python, and are sent as JSON from TypeScript."""

HUGE = record({"a": {"type": "integer", "maximum": 2**60}})

PICTURES = {"a b.png": bytes(range(256)) * 9, "it's.jpg": b"\xff\xd8"}
"""Image files that programs read, with arbitrary bytes."""

NODE = {"$ref": "#/$defs/Node"}
RECURSIVE = record(
    {"tree": NODE},
    **{"$defs": {"Node": record({"n": DIGIT, "next": {"type": "array", "items": NODE}})}},
)


@cache
def programs() -> dict[str, Any]:
    need_packages()
    with tempfile.TemporaryDirectory() as folder:
        schemas = Path(folder) / "schemas.json"
        asked = EXPRESSIBLE | LOOSE | NODE_ONLY | {"recursive": RECURSIVE, "huge": HUGE}
        for name, content in PICTURES.items():
            (Path(folder) / name).write_bytes(content)
        schemas.write_text(json.dumps({name: json.dumps(asked[name], indent=2) for name in asked}))
        written: dict[str, Any] = json.loads(
            node(Path(__file__).parent / "models.mjs", schemas, folder)
        )
    return written


def sent_by_python(code: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the program; returns the body of its request."""
    bodies: list[dict[str, Any]] = []

    def catch(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(400, json={"error": {"message": "caught"}})

    real = openai.OpenAI
    client = httpx2.Client(transport=httpx2.MockTransport(catch))
    monkeypatch.setattr(openai, "OpenAI", lambda **given: real(**given, http_client=client))
    program = ModuleType("program")
    monkeypatch.setitem(sys.modules, "program", program)  # pydantic looks names up here
    with pytest.raises(openai.BadRequestError, match="caught"):
        exec(compile(code, "program.py", "exec"), program.__dict__)
    return bodies[0]


def plain(schema: Any, root: Any = None) -> Any:
    """Normalized ``schema``: no names or references, and one spelling of equal keywords."""
    root = schema if root is None else root
    if isinstance(schema, list):
        return [plain(each, root) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = root
        for step in schema["$ref"].removeprefix("#").split("/")[1:]:
            target = target[step]
        return plain(target, root)
    if len(schema.get("allOf", ())) == 1:
        rest = {keyword: value for keyword, value in schema.items() if keyword != "allOf"}
        return plain(schema["allOf"][0] | rest, root)
    left_out = {"title", "$defs", "definitions", "$schema", "additionalProperties"}
    if isinstance(schema.get("additionalProperties"), dict):
        left_out -= {"additionalProperties"}
    found = {k: plain(v, root) for k, v in schema.items() if k not in left_out}
    if isinstance(found.get("properties"), dict):
        found["properties"] = {
            key: plain(value, root) for key, value in schema["properties"].items()
        }
        found["required"] = sorted(found.get("required", ()))
    if "const" in found:
        found["enum"] = [found.pop("const")]
    if "enum" in found:
        found.pop("type", None)
    if isinstance(types := found.get("type"), list):
        rest = {keyword: value for keyword, value in found.items() if keyword != "type"}
        return {
            "anyOf": [
                {"type": "null"} if each == "null" else rest | {"type": each} for each in types
            ]
        }
    if found.get("minimum") == -(2**53 - 1):  # Zod adds these bounds to every integer
        del found["minimum"]
    if found.get("maximum") == 2**53 - 1:
        del found["maximum"]
    return found


def schema_in(body: dict[str, Any]) -> Any:
    return body["response_format"]["json_schema"]["schema"]


@pytest.mark.parametrize("name", [*EXPRESSIBLE, *NODE_ONLY])
def test_the_pydantic_model_says_what_the_schema_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = programs()[name]["python"]
    assert (program["note"], "chat.completions.parse(" in program["code"]) == ("", True)
    body = sent_by_python(program["code"], monkeypatch)
    assert plain(schema_in(body)) == plain((EXPRESSIBLE | NODE_ONLY)[name])


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_the_zod_schema_says_what_the_schema_says(name: str) -> None:
    program = programs()[name]
    assert program["typescript"]["note"] == ""
    assert "chat.completions.parse(" in program["typescript"]["code"]
    assert plain(schema_in(program["sent"])) == plain(EXPRESSIBLE[name])


@pytest.mark.parametrize("name", [*LOOSE])
def test_a_schema_that_models_do_not_say_is_sent_itself_from_python(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = programs()[name]["python"]
    assert program["note"].startswith("The schema itself is sent")
    assert schema_in(sent_by_python(program["code"], monkeypatch)) == LOOSE[name]


@pytest.mark.parametrize("name", [*LOOSE, *NODE_ONLY])
def test_a_schema_that_models_do_not_say_is_sent_itself_from_typescript(name: str) -> None:
    program = programs()[name]
    assert program["typescript"]["note"].startswith("The schema itself is sent")
    assert json.loads(json.dumps(schema_in(program["sent"]))) == (LOOSE | NODE_ONLY)[name]


def test_numbers_keep_their_digits_where_the_language_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = programs()["huge"]
    assert schema_in(sent_by_python(program["python"]["code"], monkeypatch)) == HUGE
    assert "rounds" in program["typescript"]["note"]


def test_a_model_may_be_recursive(monkeypatch: pytest.MonkeyPatch) -> None:
    program = programs()["recursive"]
    for body in (sent_by_python(program["python"]["code"], monkeypatch), program["sent"]):
        schema = schema_in(body)
        places = schema.get("$defs") or schema["definitions"]
        [name] = [key for key in places if "next" in places[key]["properties"]]
        items = places[name]["properties"]["next"]["items"]
        assert items["$ref"].endswith(name)


def test_prompts_and_settings_come_through_every_program(monkeypatch: pytest.MonkeyPatch) -> None:
    program = programs()["flat"]
    script = "curl() { cat; }\n" + program["curl"]["code"]
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    by_curl = json.loads(ran.stdout)
    by_python = sent_by_python(program["python"]["code"], monkeypatch)
    for body in (by_curl, by_python, program["sent"]):
        assert body["messages"] == [{"role": "user", "content": 'It\'s "x"\\\n$(y) `z` é'}]
        assert (body["model"], body["temperature"], body["seed"]) == ("m", 0, 7)
    assert schema_in(by_curl) == EXPRESSIBLE["flat"]


def test_programs_read_pictures_from_their_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, content in PICTURES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    program = programs()["pictures"]
    # Like curl's ``-d @-``, which drops the line breaks of its input.
    script = "curl() { tr -d '\\r\\n'; }\n" + program["curl"]["code"]
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    by_python = sent_by_python(program["python"]["code"], monkeypatch)
    urls = [
        f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
        for kind, content in zip(("png", "jpeg"), PICTURES.values(), strict=True)
    ]
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    said = [{"role": "user", "content": [*parts, {"type": "text", "text": "What is it?"}]}]
    for body in (json.loads(ran.stdout), by_python, program["sent"]):
        assert body["messages"] == said
