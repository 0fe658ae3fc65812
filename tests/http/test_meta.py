"""Models, version and metrics; headers, methods, errors and CORS of all routes."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from app.http.keys import ApiKeys
from tests.http.harness import CHAT, CONFIG, application, chat, client_of
from tests.serving.fakes import Bench, FakeEngine

PAGE = "https://page.example"


async def test_the_served_model_is_listed_and_found() -> None:
    async with client_of(Bench()) as client:
        listed = (await client.get("/v1/models")).json()
        found = (await client.get("/v1/models/demo")).json()
        missing = await client.get("/v1/models/other")
    assert listed == {"object": "list", "data": [found]}
    assert (found["id"], found["object"], found["created"]) == ("demo", "model", 1700000000)
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_version_and_metrics() -> None:
    async with client_of(Bench()) as client:
        assert (await client.get("/version")).json() == {
            "version": "1.2.3",
            "products": "torch",
        }
        response = await client.get("/metrics")
    assert response.text == "a_metric 1\n"
    assert response.headers["content-type"].startswith("text/plain")


async def test_request_ids_differ_and_a_clients_own_is_not_taken() -> None:
    async with client_of(Bench()) as client:
        ids = {
            (await client.get("/version", headers={"x-request-id": "mine"})).headers["x-request-id"]
            for _ in range(3)
        }
    assert len(ids) == 3
    assert all(each.startswith("req_") for each in ids)


async def test_every_answer_says_how_long_it_took_to_start() -> None:
    async with client_of(Bench()) as client:
        for path in ("/version", "/nowhere"):
            elapsed = (await client.get(path)).headers["openai-processing-ms"]
            assert 0 <= int(elapsed) < 60_000
        streamed = await client.post(CHAT, json=chat(stream=True))
    assert int(streamed.headers["openai-processing-ms"]) >= 0


async def test_head_is_get_without_the_body() -> None:
    async with client_of(Bench()) as client:
        for path in ("/v1/models", "/v1/models/demo", "/v1/models/other", "/health", "/nowhere"):
            got, head = await client.get(path), await client.head(path)
            assert (head.status_code, head.content) == (got.status_code, b"")
            assert head.headers["content-length"] == got.headers["content-length"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "POST"),
        ("HEAD", CHAT, "POST"),
        ("OPTIONS", CHAT, "POST"),
        ("DELETE", "/v1/models", "HEAD, GET"),
        ("POST", "/v1/models/demo", "HEAD, GET, DELETE"),
        ("GET", "/v1/schemas", "POST"),
        ("POST", "/v1/schemas/x", "HEAD, GET"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(method: str, path: str, allowed: str) -> None:
    async with client_of(Bench()) as client:
        response = await client.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)


async def test_an_unplanned_error_is_a_500_with_an_id_and_cors_and_without_its_text() -> None:
    bench = Bench()
    app = application(bench, replace(CONFIG, cors_origins=("*",)))

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("what happened inside")

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.get("/broken", headers={"origin": PAGE})
    assert response.status_code == 500
    assert response.headers["x-request-id"].startswith("req_")
    assert response.headers["access-control-allow-origin"] == "*"
    assert "inside" not in response.text


async def test_a_page_of_an_allowed_origin_may_ask_and_read_the_headers() -> None:
    config = replace(CONFIG, cors_origins=(PAGE,), api_keys=ApiKeys(["key"]))
    bench = Bench(FakeEngine(), capacity=2)
    async with client_of(bench, config) as client:
        preflight = await client.options(
            CHAT,
            headers={
                "origin": PAGE,
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization,content-type,x-stainless-os",
            },
        )
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == PAGE
        assert "x-stainless-os" in preflight.headers["access-control-allow-headers"]
        assert preflight.headers["x-request-id"].startswith("req_")
        key = {"authorization": "Bearer key", "origin": PAGE}
        bench.held(1)
        for body, headers, status in (
            (chat(), key, 200),
            (chat(stream=True), key, 200),
            (chat(n=99), key, 400),
            (chat(n=2), key, 429),  # with ``held``, one more than the capacity
            (chat(), {"origin": PAGE}, 401),
        ):
            response = await client.post(CHAT, json=body, headers=headers)
            assert response.status_code == status
            assert response.headers["access-control-allow-origin"] == PAGE
            assert "x-request-id" in response.headers["access-control-expose-headers"]
            assert len(response.headers.get_list("x-request-id")) == 1


async def test_pages_of_other_origins_may_not_ask() -> None:
    preflight = {"origin": "https://other.example", "access-control-request-method": "POST"}
    for origins in ((PAGE,), ()):
        async with client_of(Bench(), replace(CONFIG, cors_origins=origins)) as client:
            asked = await client.options(CHAT, headers=preflight)
            answered = await client.get("/v1/models", headers={"origin": "https://other.example"})
        assert asked.json()["error"]["type"] == "invalid_request_error"
        assert (asked.status_code, "vary" in asked.headers) == (400, True)
        for response in (asked, answered):
            assert "access-control-allow-origin" not in response.headers
