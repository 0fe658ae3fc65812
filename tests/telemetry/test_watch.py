from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import string
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.server.composition import assemble
from app.server.settings import Settings
from app.telemetry.logs import JsonFormatter
from app.telemetry.metrics import Metrics
from app.telemetry.watch import OTHER, KnownNames, Telemetry
from tests.server.backend import backend, started
from tests.serving.fakes import FakeEngine, until
from tests.telemetry.conftest import Served

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"
BODY = {"model": "leapjson-demo", "messages": [{"role": "user", "content": "hi"}]}
KEY = {"authorization": "Bearer a-key"}
LARGE_HEAD = b"GET /" + b"a" * ((1 << 16) - 4)
"""One byte over the limit, so that the server reads all; a reset could overtake its answer."""


def client_of(
    engine: FakeEngine, metrics: Metrics, **settings: Any
) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    return started(assemble(Settings(compile_workers=1, **settings), backend(engine), metrics))


def requests_total(metrics: Metrics) -> dict[tuple[str, str, str], float]:
    """``{(endpoint, status, finish_reason): count}``."""
    families = text_string_to_metric_families(metrics.render()[0].decode())
    return {
        (each.labels["endpoint"], each.labels["status"], each.labels["finish_reason"]): each.value
        for family in families
        for each in family.samples
        if each.name == "leapjson_requests_total"
    }


async def test_every_request_counts_once_whether_it_gets_to_the_service_or_not() -> None:
    metrics = Metrics()
    async with client_of(FakeEngine(), metrics, api_keys="a-key") as client:
        await client.post(CHAT, json=BODY, headers=KEY)
        await client.post(CHAT, json=BODY | {"stream": True}, headers=KEY)
        await client.post(CHAT, json=BODY | {"n": 0}, headers=KEY)
        await client.post(CHAT, json=BODY)
        await client.post(CHAT, content=b" " * (5 << 20), headers=KEY)
        await client.get(CHAT, headers=KEY)
        await client.get("/v1/models/leapjson-demo", headers=KEY)
        await client.head("/v1/models/no/such", headers=KEY)
        await client.get("/health")
    assert requests_total(metrics) == {
        (CHAT, "200", "stop"): 2,
        (CHAT, "400", "error"): 1,
        (CHAT, "401", "error"): 1,
        (CHAT, "405", "error"): 1,
        (CHAT, "413", "error"): 1,
        ("/v1/models/{model}", "200", "stop"): 1,
        ("/v1/models/{model}", "404", "error"): 1,
        ("/health", "200", "stop"): 1,
    }


async def test_an_error_in_ollama_s_form_is_sent_and_counted() -> None:
    metrics = Metrics()
    async with client_of(FakeEngine(), metrics) as client:
        answer = await client.post("/api/chat", json=BODY)
    assert CHAT in answer.json()["error"]
    assert requests_total(metrics) == {("other", "404", "error"): 1}


async def test_a_request_that_finds_no_room_counts_and_is_logged_like_any_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    engine = FakeEngine()
    engine.gate.clear()
    with caplog.at_level("INFO", "leapjson.access"):
        async with client_of(engine, metrics, max_running=1, max_queue=0) as client:
            held = asyncio.create_task(client.post(CHAT, json=BODY))
            await until(lambda: bool(engine.added))
            refused = await client.post(CHAT, json=BODY)
            engine.gate.set()
            await held
    assert requests_total(metrics) == {(CHAT, "429", "error"): 1, (CHAT, "200", "stop"): 1}
    assert 'leapjson_admission_rejections_total{reason="queue_full"} 1.0' in (
        metrics.render()[0].decode()
    )
    line = next(vars(each) for each in caplog.records if each.name == "leapjson.access")
    assert (line["endpoint"], line["status"], line["code"]) == (CHAT, 429, "queue_full")
    assert refused.headers["x-request-id"] == "req_" + line["request_id"]


def test_what_a_connection_is_refused_for_is_counted(served: Served) -> None:
    def counted() -> dict[str, float]:
        return {
            each.labels["status"]: each.value
            for family in text_string_to_metric_families(served.metrics())
            for each in family.samples
            if each.name == "leapjson_connection_refusals_total"
        }

    before = counted()
    address = (served.client.base_url.host, served.client.base_url.port)
    for sent, status in ((b"nonsense\r\n\r\n", b"400"), (LARGE_HEAD, b"431")):
        with socket.create_connection(address, timeout=300) as connection:
            connection.sendall(sent)
            assert connection.recv(1000).split()[1] == status
    after = counted()
    assert before.keys() == after.keys() == {"400", "408", "431"}
    assert [after[each] - before[each] for each in ("400", "408", "431")] == [1, 0, 1]


async def test_labels_stay_few_whatever_clients_ask_for() -> None:
    metrics = Metrics()
    source = random.Random(6)

    def word() -> str:
        return "".join(source.choices(string.ascii_letters + "/.%{}é", k=9))

    async with client_of(FakeEngine(), metrics) as client:
        document = (await client.get("/openapi.json")).json()
        known = {*document["paths"], "/openapi.json", OTHER}
        for _ in range(150):
            path = source.choice(["", "/v1/", CHAT, "/v1/models/", "/v1/schemas/"]) + word()
            method = source.choice(["GET", "POST", "DELETE", "PUT", "TRACE", "X" + word()[:3]])
            body = BODY | {word(): word(), "model": word()}
            await client.request(method.encode("ascii", "replace").decode(), path, json=body)
        await client.post("/v1/" + word() * 1000, json={})
    counted = requests_total(metrics)
    assert sum(counted.values()) == 152
    assert {endpoint for endpoint, _, _ in counted} <= known
    assert {status for _, status, _ in counted} <= {"200", "400", "404", "405"}
    assert {reason for _, _, reason in counted} <= {"stop", "error"}
    assert len(counted) < 20


async def test_a_stream_that_fails_midway_counts_and_is_logged_as_the_error_that_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    engine = FakeEngine(lambda request: [b"x"] * 5)
    engine.finish_with = "error"
    with caplog.at_level("INFO", "leapjson.access"):
        async with client_of(engine, metrics) as client:
            response = await client.post(CHAT, json=BODY | {"stream": True})
    assert response.status_code == 200
    assert requests_total(metrics) == {(CHAT, "500", "error"): 1}
    (record,) = (each for each in caplog.records if each.name == "leapjson.access")
    fields = vars(record)
    assert (fields["status"], fields["error"], fields["levelname"]) == (
        500,
        "LeapjsonError",
        "ERROR",
    )


async def test_compile_workers_that_crash_are_counted_and_their_errors_are_not_quoted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    caplog.handler.setFormatter(JsonFormatter())
    async with client_of(FakeEngine(), metrics) as client:
        for pattern, status in (("abort", 400), ("bug", 500)):
            format_ = {"type": "regex", "pattern": pattern}
            response = await client.post(CHAT, json=BODY | {"response_format": format_})
            assert response.status_code == status
    restarts = re.findall(
        r"^leapjson_compile_worker_restarts_total (\S+)$", metrics.render()[0].decode(), re.M
    )
    assert float(restarts[0]) >= 1
    assert "a worker failed: ValueError" in caplog.text
    assert "a bug" not in caplog.text


async def test_logged_content_is_the_beginning_of_both_bodies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", "leapjson.access"):
        async with client_of(FakeEngine(), Metrics(), log_content=30) as client:
            await client.post(CHAT, json=BODY)
    (record,) = (each for each in caplog.records if each.name == "leapjson.access")
    content = vars(record)["content"]
    assert content["request"] == json.dumps(BODY, separators=(",", ":"))[:30]
    assert content["answer"].startswith('{"id":"chatcmpl-')
    assert len(content["answer"]) == 30


async def test_logged_content_has_the_body_of_a_stream(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "leapjson.access"):
        async with client_of(FakeEngine(), Metrics(), log_content=1 << 16) as client:
            answer = await client.post(CHAT, json={**BODY, "stream": True})
    (record,) = (each for each in caplog.records if each.name == "leapjson.access")
    assert vars(record)["content"]["answer"] == answer.text
    assert answer.text.endswith("data: [DONE]\n\n")


PATHS = ["/a", "/b/{id}", "/b/{id}/c", "/m/{model}", "/s/{id}/t"]
OPERATIONS: dict[str, Any] = {"X": {"properties": {"messages": {"properties": {"content": {}}}}}}


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/a", "/a"),
        ("/a/", "other"),
        ("/m/x", "/m/{model}"),
        ("/m/x/y\n", "/m/{model}"),
        ("/m/", "other"),
        ("/s/1/t", "/s/{id}/t"),
        ("/s/1/tt", "other"),
        ("/b/1", "/b/{id}"),
        ("/b/1/c", "/b/{id}/c"),
        ("", "other"),
    ],
)
def test_an_endpoint_is_a_route_or_other(path: str, endpoint: str) -> None:
    assert KnownNames(PATHS, []).endpoint(path) == endpoint


async def test_requests_of_the_page_are_counted_by_their_routes() -> None:
    metrics = Metrics()
    async with client_of(FakeEngine(), metrics, page=True) as client:
        for path in ("/", "/docs", "/page/none.js", "/none"):
            await client.get(path)
    counted = {endpoint for endpoint, _, _ in requests_total(metrics)}
    assert counted == {"/", "/docs", "/page/{file}", "other"}


def properties_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(properties := value.get("properties"), dict):
            yield from properties
        for each in value.values():
            yield from properties_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from properties_in(each)


async def test_a_log_shows_every_field_of_the_document() -> None:
    app = assemble(Settings(compile_workers=1), backend(FakeEngine()), Metrics()).app
    fields = {name for name in properties_in(app.openapi()) if "[" not in name}
    assert len(fields) > 300
    names = Telemetry(app, Metrics(), model="m", traces=None).names
    assert {name for name in fields if names.param(name) != name} == set()


@pytest.mark.parametrize(
    ("param", "shown"),
    [
        ("messages", "messages"),
        ("messages[0].content", "messages[0].content"),
        ("messages[12].private.content", "messages[12].*.content"),
        ("private", "*"),
        ("messages.555123456", "messages.*"),
        ("messages[5551234567890]", "messages*"),
        ("messages." + "content." * 99, ("messages." + "content." * 99)[:200]),
    ],
)
def test_of_a_field_a_log_shows_the_names_that_the_server_has(param: str, shown: str) -> None:
    assert KnownNames([], OPERATIONS).param(param) == shown
