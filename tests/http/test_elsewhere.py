"""Answers to clients of other servers: paths and headers of other APIs, CORS preflights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from tests.http.harness import CONFIG, application, client_of, post
from tests.serving.fakes import Bench

ANTHROPIC = {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/embeddings", ["no embeddings", "embedding model"]),
        ("/embed", ["no embeddings"]),
        ("/rerank", ["reranking model"]),
        ("/v2/rerank", ["reranking model"]),
        ("/v1/score", ["reranking model"]),
        ("/classify", ["enum"]),
        ("/v1/moderations", ["enum"]),
        ("/v1/audio/speech", ["no speech"]),
        ("/v1/images/generations", ["generates no images"]),
        ("/generate", ["POST /v1/completions"]),
        ("/completion", ["POST /v1/completions"]),
        ("/v1/complete", ["POST /v1/messages"]),
        ("/v1/threads/t1/runs", ["POST /v1/responses", "previous_response_id"]),
        ("/v1/vector_stores", ["has files for batches only"]),
    ],
)
async def test_a_path_of_another_server_is_a_404_that_says_what_this_one_is_for(
    path: str, words: list[str]
) -> None:
    answer = await post(Bench(), path, {"input": "hi"}, 404)
    message = answer.json()["error"]["message"]
    for word in (f"POST {path}", "generates text and JSON (POST /v1/chat/completions)", *words):
        assert word in message


@pytest.mark.parametrize(
    ("method", "path", "here"),
    [
        ("POST", "/api/chat", "POST /v1/chat/completions"),
        ("POST", "/api/generate", "POST /v1/completions"),
        ("GET", "/api/tags", "GET /v1/models"),
        ("POST", "/api/show", "GET /v1/models"),
        ("GET", "/api/version", "GET /version"),
        ("POST", "/api/pull", "POST /v1/chat/completions"),
        ("POST", "/api/embed", "no embeddings"),
    ],
)
async def test_ollama_s_clients_read_where_to_ask_instead(
    method: str, path: str, here: str
) -> None:
    async with client_of(Bench()) as client:
        answer = await client.request(method, path)
    assert answer.status_code == 404
    message = answer.json()["error"]
    assert isinstance(message, str), "Ollama's clients expect a string"
    assert here in message


async def test_models_have_anthropic_s_form_for_its_clients() -> None:
    document = application(Bench()).openapi()
    async with client_of(Bench()) as client:
        listed = (await client.get("/v1/models", headers=ANTHROPIC)).json()
        one = (await client.get("/v1/models/demo", headers=ANTHROPIC)).json()
        plain = (await client.get("/v1/models")).json()
        unknown = await client.get("/v1/models/other", headers=ANTHROPIC)
    assert listed["data"] == [one]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("demo", "demo", False)
    assert one == {
        "type": "model",
        "id": "demo",
        "display_name": "demo",
        "created_at": "2023-11-14T22:13:20Z",
        "lifecycle": "active",
        "max_input_tokens": 1000,
        "max_tokens": 1000,
    }
    assert plain["object"] == "list"
    assert (unknown.status_code, unknown.json()["type"]) == (404, "error")
    for answer in (listed, plain):
        schema = document["paths"]["/v1/models"]["get"]["responses"]["200"]
        found = schema["content"]["application/json"]["schema"]
        jsonschema.validate(answer, {**document, "$ref": "#/x", "x": found})


PREFLIGHT = {
    "origin": "http://app.example",
    "access-control-request-method": "POST",
    "access-control-request-headers": "content-type",
}


async def test_a_preflight_is_told_which_setting_turns_cors_on() -> None:
    async with client_of(Bench()) as client:
        answer = await client.options("/v1/chat/completions", headers=PREFLIGHT)
        plain = await client.get("/v1/models", headers={"origin": "http://app.example"})
        no_page = await client.options("/v1/chat/completions")
    assert answer.status_code == 400
    assert "LEAPJSON_CORS_ORIGINS" in answer.json()["error"]["message"]
    assert "access-control-allow-origin" not in answer.headers
    assert not [name for name in plain.headers if name.startswith("access-control")]
    assert no_page.status_code == 405


async def test_a_preflight_into_a_private_network_is_answered() -> None:
    config: Any = replace(CONFIG, cors_origins=("http://app.example",))
    headers = {**PREFLIGHT, "access-control-request-private-network": "true"}
    async with client_of(Bench(), config) as client:
        answer = await client.options("/v1/chat/completions", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-private-network"] == "true"
    assert answer.headers["access-control-allow-origin"] == "http://app.example"
