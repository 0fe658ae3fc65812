"""``/openapi.json`` has every route, and requests and answers are valid by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from app.http.keys import ApiKeys
from tests.http.harness import CHAT, CONFIG, application, chat, client_of, post
from tests.serving.fakes import Bench

DOCUMENT = application(Bench()).openapi()


def operations(document: Any = DOCUMENT) -> set[tuple[str, str]]:
    return {(method, path) for path, item in document["paths"].items() for method in item}


def fits(value: Any, path: str, *, status: int | None = None) -> bool:
    """Whether a body of POST ``path`` is valid by the document; with ``status``, an answer."""
    operation = DOCUMENT["paths"][path]["post"]
    place = operation["requestBody"] if status is None else operation["responses"][str(status)]
    schema = place["content"]["application/json"]["schema"]
    validator = jsonschema.Draft202012Validator({**DOCUMENT, "$ref": "#/x", "x": schema})
    return bool(validator.is_valid(value))


def routes(app: FastAPI) -> set[tuple[str, str]]:
    routes = set()
    for context in iter_route_contexts(app.routes):
        if isinstance(context.original_route, APIRoute) and context.include_in_schema:
            path = (context.path_format or "").replace(":path", "")
            routes |= {(method.lower(), path) for method in context.methods or ()}
    return routes


def test_the_document_has_every_route_and_no_other() -> None:
    assert routes(application(Bench())) == operations()


def test_a_route_that_tells_nothing_of_itself_is_missed() -> None:
    app = application(Bench())
    app.get("/silent")(lambda: None)
    assert routes(app) - operations(app.openapi()) == {("get", "/silent")}


def test_every_reference_leads_somewhere_and_names_are_unique() -> None:
    schemas = DOCUMENT["components"]["schemas"]

    def references(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(references, value))
        if not isinstance(value, dict):
            return set()
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))

    assert references(DOCUMENT) == {f"#/components/schemas/{name}" for name in schemas}
    assert not [name for name in schemas if "__" in name], "two models have the same name"
    jsonschema.Draft202012Validator.check_schema({"$defs": schemas})
    ids = [item[method]["operationId"] for item in DOCUMENT["paths"].values() for method in item]
    assert len(set(ids)) == len(ids)


async def test_it_is_served_as_it_is() -> None:
    async with client_of(Bench()) as client:
        assert (await client.get("/openapi.json")).json() == DOCUMENT


@pytest.mark.parametrize("public", [False, True])
def test_the_document_says_which_routes_need_a_key(public: bool) -> None:
    config = replace(CONFIG, api_keys=ApiKeys(["key"]), metrics_public=public)
    document = application(Bench(), config).openapi()
    assert document["security"] == [{"key": []}]
    for method, path in operations(document):
        operation = document["paths"][path][method]
        is_open = path in ("/health", "/ready") or (public and path == "/metrics")
        assert (operation.get("security") == []) == is_open
        assert ("401" in operation["responses"]) == (not is_open)
    assert "security" not in DOCUMENT


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({}, True),
        ({"n": 2, "stop": ["a"], "logit_bias": {"5": 1}, "user": "me", "store": False}, True),
        ({"response_format": {"type": "regex", "regex": "a"}}, True),
        ({"response_format": {"type": "regex", "pattern": "a"}}, True),
        ({"response_format": {"type": "regex"}}, False),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, True),
        ({"messages": [{"role": "owner", "content": "hi"}]}, False),
        ({"messages": []}, False),
        ({"store": True}, True),
        ({"stop_regex": "a"}, False),
        ({"colour": 1}, True),
        ({"suffix": "x"}, False),
        ({"temperature": "hot"}, False),
        ({"functions": [{"name": "f"}]}, False),
    ],
)
async def test_a_body_that_fits_is_taken_and_one_that_does_not_is_refused(
    fields: dict[str, Any], taken: bool
) -> None:
    body = chat(**fields)
    assert fits(body, CHAT) == taken
    async with client_of(Bench()) as client:
        response = await client.post(CHAT, json=body)
    assert response.status_code == (200 if taken else 400), response.text
    assert fits(response.json(), CHAT, status=response.status_code)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, chat(logprobs=True, top_logprobs=2, n=2)),
        ("/v1/completions", {"model": "demo", "prompt": "hi", "logprobs": 2}),
        ("/v1/completions", {"model": "demo", "prompt": [[1, 2], [3]]}),
        ("/v1/responses", {"model": "demo", "input": "hi"}),
        ("/v1/responses", {"model": "demo", "input": [{"role": "user", "content": "hi"}]}),
        ("/v1/schemas", {"schema": {"type": "object"}}),
        ("/tokenize", {"prompt": "hi", "return_token_strs": True}),
        ("/tokenize", chat()),
        ("/detokenize", {"tokens": [104, 105]}),
    ],
)
async def test_answers_of_every_endpoint_have_the_shape_that_is_told(path: str, body: Any) -> None:
    assert fits(body, path)
    response = await post(Bench(), path, body)
    assert fits(response.json(), path, status=200), response.text
    assert not fits({**response.json(), "surplus": 1}, path, status=200) or "responses" in path
