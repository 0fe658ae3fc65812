"""The tenant of a request, the number of a key or an address, reaches the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.http.keys import ApiKeys, tenant_of
from tests.http.harness import BODIES, CHAT, CONFIG, application, chat, client_of
from tests.serving.fakes import Bench

KEYS = ("first-secret", "second-secret", "first-secret", "third-secret")


@pytest.mark.parametrize("path", BODIES)
async def test_a_tenant_is_the_number_of_its_key_and_nothing_of_the_key(path: str) -> None:
    bench = Bench()
    async with client_of(bench, replace(CONFIG, api_keys=ApiKeys(KEYS))) as client:
        for key in KEYS:
            headers = {"authorization": f"Bearer {key}"}
            response = await client.post(path, json=BODIES[path], headers=headers)
            assert response.status_code == 200, response.text
    tenants = [request.tenant for request in bench.engine.added]
    assert tenants == ["key 1", "key 2", "key 1", "key 3"]


async def test_without_keys_a_tenant_is_an_address() -> None:
    bench = Bench()
    app = application(bench)
    async with bench.running():
        for host in ("192.0.2.7", "192.0.2.8"):
            transport = httpx.ASGITransport(app, client=(host, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                assert (await client.post(CHAT, json=chat())).status_code == 200
    assert [request.tenant for request in bench.engine.added] == ["192.0.2.7", "192.0.2.8"]


@pytest.mark.parametrize(
    ("host", "tenant"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("x" * 1000, "x" * 64),
    ],
)
def test_addresses_of_one_network_are_one_tenant(host: str, tenant: str) -> None:
    assert tenant_of({"type": "http", "client": (host, 1)}) == tenant


def test_a_client_without_an_address_has_no_name() -> None:
    assert tenant_of({"type": "http", "client": None}) == ""


@pytest.mark.parametrize(("path", "body"), [(CHAT, chat()), ("/v1/schemas", {"schema": {}})])
async def test_a_tenant_that_fills_the_queue_keeps_nobody_else_out(
    path: str, body: dict[str, Any]
) -> None:
    keys = ApiKeys(["first", "second"])
    bench = Bench(capacity=9, tenant_share=0.9)
    async with client_of(bench, replace(CONFIG, api_keys=keys)) as client:
        for _ in range(9):
            bench.held(1, "key 1")
        for key, status in (("first", 429), ("second", 200)):
            headers = {"authorization": f"Bearer {key}"}
            response = await client.post(path, json=body, headers=headers)
            assert response.status_code == status, response.text
