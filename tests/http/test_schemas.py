"""``/v1/schemas``: schemas are compiled ahead, explained, and used by their id in requests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.__main__ import main
from app.constraint.program import compile_program
from app.core.constraint import Constraint, ConstraintSpec
from app.core.errors import ConstraintTooComplex, UnsupportedSchema
from app.core.graphs import GraphOptions, GraphSpec, WalkSpec
from app.core.specs import Choice, Grammar, JsonSchema, Regex
from app.explain.picture import draw_graph, walk_graph
from app.http.schemas import GraphObject, WalkObject
from app.server.composition import assemble
from app.server.settings import Settings
from app.serving.compiling.schema_registry import SchemaRegistry
from app.serving.compiling.schema_store import SchemaStore
from app.store.store import open_schema_store
from app.telemetry.metrics import Metrics
from tests.constraint.walks import Walker
from tests.http.harness import CHAT, CONFIG, chat, client_of, post
from tests.server.backend import compiling, started
from tests.serving.fakes import GRAPH, WALK, Bench, FakeEngine

PATH = "/v1/schemas"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def with_id(schema_id: Any, **fields: Any) -> dict[str, Any]:
    return chat(response_format={"type": "json_schema", "schema_id": schema_id, **fields})


async def test_a_schema_is_compiled_ahead_and_named_by_its_id() -> None:
    bench = Bench()
    async with client_of(bench) as client:
        made = (await client.post(PATH, json={"schema": SCHEMA, "name": "thing"})).json()
        assert bench.compiled == [JsonSchema(SCHEMA, close_objects=True)]
        answer = await client.post(CHAT, json=with_id(made["id"]))
        assert answer.status_code == 200, answer.text
        same = {"name": "x", "schema": SCHEMA, "strict": True}
        response_format = {"type": "json_schema", "json_schema": same}
        await client.post(CHAT, json=chat(response_format=response_format))
        assert len(bench.compiled) == 1
        found = (await client.get(f"{PATH}/{made['id']}")).json()
    assert made == found
    assert made == {
        "id": made["id"],
        "object": "schema",
        "created": 1700000001,
        "type": "json_schema",
        "name": "thing",
        "strict": True,
        "whitespace": "spaced",
        "schema": SCHEMA,
        "explain": {"whole": True},
    }


async def test_the_documents_that_a_schema_refers_to_are_sent_along() -> None:
    person = {"$id": "https://e.org/person", "properties": {"of": {"$ref": "city"}}}
    city = {"$id": "https://e.org/city", "type": "string", "maxLength": 3}
    schema = {"$id": "https://e.org/root", "$ref": "person", "$defs": {"x": True}}
    bench = Bench()
    async with client_of(bench) as client:

        async def asked(**body: Any) -> httpx.Response:
            return await client.post(PATH, json=body)

        made = await asked(schema=schema, documents=[person, city])
        assert made.status_code == 200, made.text
        again = await asked(documents=[{"type": "string"}], schema=schema)
        assert again.json()["error"]["param"] == "documents[0]"
        again = await asked(documents=[city, city], schema=schema)
        assert again.json()["error"]["param"] == "documents[1]"
        assert (await asked(documents=[city], schema=True)).status_code == 400
        inside = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        again = await asked(documents=[city], response_format=inside)
        assert again.json()["error"]["param"] == "documents"
    (spec,) = bench.compiled
    assert isinstance(spec, JsonSchema)
    assert made.json()["schema"] == spec.schema
    walker = Walker.of(spec)
    assert walker.accepts('{"of": "abc"}')
    assert not walker.accepts('{"of": "abcd"}')


async def test_both_forms_of_one_schema_have_one_id() -> None:
    async with client_of(Bench()) as client:

        async def made(**body: Any) -> str:
            response = await client.post(PATH, json=body)
            assert response.status_code == 200, response.text
            found: str = response.json()["id"]
            return found

        def response_format(**fields: Any) -> dict[str, Any]:
            return {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, **fields}}

        plain = await made(schema=SCHEMA)
        assert await made(schema=SCHEMA, strict=True, name="x", description="y") == plain
        assert await made(response_format=response_format()) == plain
        loose = await made(schema=SCHEMA, strict=False)
        assert await made(response_format=response_format(strict=False)) == loose != plain
        compact = await made(schema=SCHEMA, whitespace="compact")
        form = {**response_format(), "whitespace": "compact"}
        assert await made(response_format=form) == compact != plain
        again = {"type": "json_schema", "schema_id": compact}
        assert await made(response_format=again) == compact
        assert await made(schema=True) != await made(schema=False)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "schema"),
        ({"schema": SCHEMA, "response_format": {"type": "text"}}, "schema"),
        ({"response_format": {"type": "text"}}, "response_format.type"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        (
            {
                "response_format": {
                    "type": "structural_tag",
                    "format": {"type": "regex", "pattern": "a"},
                }
            },
            "response_format.type",
        ),
        (
            {"response_format": {"type": "regex", "regex": "a"}, "on_unsupported": "relax"},
            "on_unsupported",
        ),
        ({"schema": SCHEMA, "graph": "yes"}, "graph"),
        ({"schema": SCHEMA, "graph": {"max_states": 1}}, "graph.max_states"),
        ({"schema": SCHEMA, "graph": {"max_states": 2001}}, "graph.max_states"),
        ({"schema": SCHEMA, "graph": {"open": "/a"}}, "graph.open"),
        (
            {"response_format": {"type": "json_object", "schema": SCHEMA}, "strict": False},
            "strict",
        ),
        ({"schema": SCHEMA, "strict": "yes"}, "strict"),
        ({"schema": SCHEMA, "whitespace": "wide"}, "whitespace"),
        ({"schema": SCHEMA, "name": "a b"}, "name"),
    ],
)
async def test_the_error_names_the_field_of_a_bad_registration(body: Any, param: str) -> None:
    response = await post(Bench(), PATH, body, 400)
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("field", ["schema", "response_format"])
async def test_a_schema_that_cannot_be_used_is_refused_as_in_a_request(field: str) -> None:
    bench = Bench()
    bench.compile_error = UnsupportedSchema("uniqueItems", "/properties/a")
    response_format = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    async with client_of(bench) as client:
        body = {"schema": SCHEMA} if field == "schema" else {"response_format": response_format}
        refused = (await client.post(PATH, json=body)).json()["error"]
        asked = (await client.post(CHAT, json=chat(response_format=response_format))).json()
    assert refused == {**asked["error"], "param": field}
    assert refused["code"] == "unsupported_schema"


async def test_an_id_that_is_not_known_is_a_400_in_a_request_and_a_404_in_a_path() -> None:
    async with client_of(Bench()) as client:
        asked = await client.post(CHAT, json=with_id("schema_0"))
        found = await client.get(f"{PATH}/schema_0")
        version = {"anthropic-version": "2023-06-01"}
        anthropic = await client.get(f"{PATH}/schema_0", headers=version)
        mistyped = await client.post(CHAT, json=with_id(5))
        whitespace = (await client.post(PATH, json={"schema": SCHEMA})).json()["id"]
        other = await client.post(CHAT, json=with_id(whitespace, whitespace="compact"))
    assert (asked.status_code, found.status_code) == (400, 404)
    assert asked.json()["error"]["param"] == "response_format.schema_id"
    assert "POST /v1/schemas" in asked.json()["error"]["message"]
    assert found.json()["error"]["code"] == "schema_not_found"
    assert (anthropic.status_code, anthropic.json()["error"]["type"]) == (404, "not_found_error")
    assert mistyped.status_code == 400
    assert other.json()["error"]["param"] == "response_format.whitespace"


async def test_the_assembled_server_explains_as_the_command_line_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA), encoding="utf-8")
    assert main(["explain", "--schema", str(file), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assembly = assemble(Settings(compile_workers=1), compiling(FakeEngine()), Metrics())
    async with started(assembly) as client:
        made = await client.post(PATH, json={"schema": SCHEMA, "graph": True})
        assert made.status_code == 200, made.text
        assert made.json()["explain"] == {**printed, "whole": True}
        ways = [(each["choice"], each["leap"]) for each in made.json()["graph"]["ways"]]
        assert ("", '{"a":·') in ways
        text = '{"a": 12}'
        walked = await client.post(f"{PATH}/{made.json()['id']}/walk", json={"text": text})
        assert walked.json()["complete"], walked.text
        assert [text[each["start"] : each["end"]] for each in walked.json()["steps"]] == [
            '{"a": ',
            "12}",
        ]
        lost = {"text": text, "state": "9999.0.0"}
        refused = await client.post(f"{PATH}/{made.json()['id']}/walk", json=lost)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "state")
        model = {"model": "leapjson-demo"}
        answer = await client.post(CHAT, json=with_id(made.json()["id"]) | model)
        assert answer.status_code == 200


async def test_a_graph_is_drawn_where_it_is_asked_for_and_once_for_the_same_options() -> None:
    bench = Bench()
    async with client_of(bench) as client:
        plain = await client.post(PATH, json={"schema": SCHEMA})
        drawn = await client.post(PATH, json={"schema": SCHEMA, "graph": True})
        await client.post(PATH, json={"schema": SCHEMA, "graph": {}})
        await client.post(PATH, json={"schema": SCHEMA, "graph": {"open": ["/b", "/a", "/b"]}})
        await client.post(PATH, json={"schema": SCHEMA, "graph": {"open": ["/a", "/b"]}})
    assert "graph" not in plain.json()
    assert drawn.json() == {**plain.json(), "graph": GRAPH}
    asked = JsonSchema(SCHEMA, close_objects=True)
    assert bench.drawn == [
        GraphSpec(asked, GraphOptions()),
        GraphSpec(asked, GraphOptions(open=("/a", "/b"))),
    ]


async def test_a_schema_that_cannot_be_drawn_can_be_registered_all_the_same() -> None:
    bench = Bench()
    bench.draw_error = ConstraintTooComplex("time: more than 5 s")
    made = await post(bench, PATH, {"schema": SCHEMA, "graph": True})
    assert made.json()["graph"]["error"]["code"] == "schema_too_complex"
    assert "more than 5 s" in made.json()["graph"]["error"]["message"]


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"type": "regex", "pattern": "[ab]+"}, Regex("[ab]+")),
        ({"type": "choice", "choices": ["a", "b"]}, Choice(("a", "b"))),
        ({"type": "grammar", "grammar": 'start: "a"'}, Grammar('start: "a"')),
    ],
)
async def test_other_constraints_have_an_id_and_a_graph_but_no_report(
    asked: dict[str, Any], kind: Any
) -> None:
    bench = Bench()
    async with client_of(bench) as client:
        made = (await client.post(PATH, json={"response_format": asked, "graph": True})).json()
        found = await client.get(f"{PATH}/{made['id']}")
        named = await client.post(CHAT, json=with_id(made["id"]))
    assert (made["type"], made["explain"], made["schema"]) == (asked["type"], None, None)
    assert (bench.compiled, [each.spec for each in bench.drawn]) == ([kind], [kind])
    assert found.json() == {name: made[name] for name in made if name != "graph"}
    assert named.status_code == 400
    assert named.json()["error"]["param"] == "response_format.schema_id"
    assert asked["type"] in named.json()["error"]["message"]


async def test_a_text_is_walked_over_the_picture_that_was_drawn() -> None:
    bench = Bench()
    async with client_of(bench) as client:
        made = (await client.post(PATH, json={"schema": SCHEMA, "graph": True})).json()
        path = f"{PATH}/{made['id']}/walk"
        first = await client.post(path, json={"text": '{"a', "graph": True})
        options = {"open": ["/a"], "max_states": 7}
        body = {"text": '{"a"', "state": "0.0.0", "graph": options}
        second = await client.post(path, json=body)
    assert first.json() == second.json() == WALK
    spec = JsonSchema(SCHEMA, close_objects=True)
    assert bench.walked == [
        WalkSpec(GraphSpec(spec, GraphOptions()), '{"a', None),
        WalkSpec(GraphSpec(spec, GraphOptions(("/a",), 7)), '{"a"', "0.0.0"),
    ]


async def test_a_walk_over_no_schema_is_a_404_and_what_is_wrong_with_one_is_named() -> None:
    async with client_of(Bench(), replace(CONFIG, max_body_bytes=1 << 20)) as client:
        made = (await client.post(PATH, json={"schema": SCHEMA})).json()
        path = f"{PATH}/{made['id']}/walk"
        unknown = await client.post(f"{PATH}/schema_0/walk", json={"text": ""})
        missing = await client.post(path, json={})
        long = await client.post(path, json={"text": "x" * 200_001})
        other = await client.post(path, json={"text": "", "graph": [400]})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "schema_not_found")
    assert (missing.status_code, missing.json()["error"]["param"]) == (400, "text")
    assert (long.status_code, long.json()["error"]["param"]) == (400, "text")
    assert (other.status_code, other.json()["error"]["param"]) == (400, "graph")


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ({"schema": {"properties": {"a/b": {"type": 5}}}}, {"pointer": "/properties/a~1b/type"}),
        ({"schema": 5}, {"pointer": ""}),
        (
            {"schema": {"properties": {"a": {"pattern": "a(b"}}}},
            {"pointer": "/properties/a/pattern", "position": 1},
        ),
        (
            {"schema": {"properties": {"a": {"$ref": "https://example.com/s.json"}}}},
            {"pointer": "/properties/a/$ref"},
        ),
        ({"response_format": {"type": "regex", "pattern": "ab)"}}, {"position": 2}),
        (
            {"response_format": {"type": "grammar", "grammar": 'start: "a"\n     | b ??'}},
            {"line": 2, "column": 11},
        ),
        (
            {"schema": {"x-grammar": {"syntax": "lark", "definition": 'start: "a"\n | ]'}}},
            {"pointer": "/x-grammar", "line": 2, "column": 4},
        ),
    ],
)
async def test_a_refusal_says_where_it_is_about(
    asked: dict[str, Any], place: dict[str, Any]
) -> None:
    async def compile(spec: ConstraintSpec, *_: object) -> Constraint:
        compile_program(spec)
        raise AssertionError("it should be refused")

    named = {"name": "n", "schema": asked.get("schema")}
    format = asked.get("response_format") or {"type": "json_schema", "json_schema": named}
    async with client_of(Bench(compile=compile)) as client:
        made = (await client.post(PATH, json=asked)).json()["error"]
        said = (await client.post(CHAT, json=chat(response_format=format))).json()["error"]
    for error in (made, said):
        assert error["code"] in ("invalid_schema", "unsupported_schema"), error
        found = {name: error[name] for name in error.keys() - {"message", "type", "param", "code"}}
        assert found == place, error


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("most", [3, 400])
def test_a_picture_and_a_walk_are_what_the_document_of_the_api_says(most: int, drawn: bool) -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string"}, "c": {"enum": ["x", "y"]}}}
    schema = {"type": "object", "properties": {"a": inner, "n": {"$ref": "#"}}}
    asked = GraphSpec(JsonSchema(schema, close_objects=True), GraphOptions((), most, drawn))
    picture = GraphObject.model_validate_json(draw_graph(asked), strict=True)
    assert picture.whole == (most == 400)
    states = {state.id for state in picture.states}
    assert {way.source for way in picture.ways} <= states
    assert {way.target for way in picture.ways} <= states | {None}
    shown = [way for box in picture.boxes for way in box.ways]
    assert sorted(shown) == sorted(way.id for way in picture.ways)
    walk = walk_graph(WalkSpec(asked, '{"a": {"c": "x"}}', None))
    found = WalkObject.model_validate_json(walk, strict=True)
    assert found.complete == (most == 400)
    assert {step.way for step in found.steps} <= set(shown)


async def test_an_id_that_another_replica_gave_is_found_in_the_store(tmp_path: Path) -> None:
    store = open_schema_store(str(tmp_path))
    first, second = Bench(), Bench()
    for bench in (first, second):
        bench.schemas = SchemaRegistry(
            constraints=bench.constraints,
            explain=bench._explain,
            wall_clock=lambda: 5.0,
            max_bytes=1 << 20,
            store=SchemaStore(store, {}, 1 << 20),
        )
    made = (await post(first, PATH, {"schema": SCHEMA})).json()
    async with client_of(second) as client:
        answer = await client.post(CHAT, json=with_id(made["id"]))
        assert answer.status_code == 200, answer.text
        assert second.compiled == [JsonSchema(SCHEMA, close_objects=True)]
        assert (await client.get(f"{PATH}/{made['id']}")).json() == made
        walk = await client.post(f"{PATH}/{made['id']}/walk", json={"text": "{"})
        assert walk.status_code == 200, walk.text
        unknown = await client.post(CHAT, json=with_id("schema_0"))
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (400, "schema_not_found")
    await store.close()
