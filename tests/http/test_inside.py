"""Requests of the server to itself, for lines of batches: no sockets, no key, lowest tier."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from app.core.request import ServiceTier
from app.http.edge import ask
from app.http.keys import ApiKeys
from tests.http.harness import CHAT, CONFIG, application, client_of
from tests.serving.fakes import Bench, until

KEYED = replace(CONFIG, api_keys=ApiKeys(["first", "second"]), priority_keys=frozenset({"key 2"}))
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}


async def test_a_line_of_a_batch_is_answered_as_over_http_and_needs_no_key() -> None:
    bench = Bench()
    async with bench.running():
        answer = await ask(
            application(bench, KEYED), CHAT, json.dumps(BODY).encode(), tenant="key 2"
        )
    body = json.loads(answer.body)
    assert answer.status == 200
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["service_tier"] == "default"
    assert answer.headers["x-request-id"].startswith("req_")
    [submitted] = bench.engine.added
    assert (submitted.tier, submitted.tenant) == (ServiceTier.BATCH, "key 2")


async def test_errors_are_answers() -> None:
    bench = Bench()
    async with bench.running():
        app = application(bench, KEYED)
        wrong = await ask(app, CHAT, b'{"model": "demo"}')
        nowhere = await ask(app, "/v1/nowhere", b"{}")
    assert wrong.status == 400
    assert json.loads(wrong.body)["error"]["param"] == "messages"
    assert nowhere.status == 404


async def test_a_cancelled_line_gives_its_place_back() -> None:
    bench = Bench()
    async with bench.running():
        bench.engine.gate.clear()
        asked = asyncio.create_task(ask(application(bench), CHAT, json.dumps(BODY).encode()))
        await until(lambda: bench.admission.live == 1)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert bench.admission.live == 0


async def test_a_client_gets_the_class_that_it_asks_for_if_it_may() -> None:
    cases = [
        ("first", "flex", "flex"),
        ("first", "priority", "default"),
        ("first", "auto", "default"),
    ]
    cases += [("second", "priority", "priority"), ("second", "default", "default")]
    bench = Bench()
    async with client_of(bench, KEYED) as client:
        for key, asked, served in cases:
            body = {**BODY, "service_tier": asked}
            answer = await client.post(CHAT, json=body, headers={"Authorization": f"Bearer {key}"})
            assert answer.json()["service_tier"] == served
        answer = await client.post(
            CHAT, json={**BODY, "service_tier": "x"}, headers={"Authorization": "Bearer first"}
        )
        assert answer.status_code == 400
    served_tiers = [each.tier.name.lower() for each in bench.engine.added]
    assert served_tiers == [served for _, _, served in cases]
