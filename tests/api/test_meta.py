from __future__ import annotations

from tests.api.harness import client_of
from tests.serving.fakes import Bench


async def test_the_served_model_is_listed_and_found() -> None:
    async with client_of(Bench()) as client:
        listed = (await client.get("/v1/models")).json()
        found = (await client.get("/v1/models/demo")).json()
    assert listed == {"object": "list", "data": [found]}
    assert (found["id"], found["object"], found["created"]) == ("demo", "model", 1700000000)


async def test_version_and_metrics() -> None:
    async with client_of(Bench()) as client:
        assert (await client.get("/version")).json() == {"version": "1.2.3"}
        response = await client.get("/metrics")
    assert response.text == "a_metric 1\n"
    assert response.headers["content-type"].startswith("text/plain")


async def test_request_ids_differ() -> None:
    async with client_of(Bench()) as client:
        ids = {(await client.get("/version")).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3
