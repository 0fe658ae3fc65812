"""No log line quotes requests or responses: a marker is in every field, and not in the log."""

from __future__ import annotations

import io
import json
import logging
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.server.composition import assemble
from app.server.settings import Settings
from app.telemetry.logs import configure_logging
from app.telemetry.metrics import Metrics
from tests.server.backend import backend, started
from tests.serving.fakes import FakeEngine
from tests.telemetry.conftest import MODEL, Served

SECRET = "sEcReT" + "41"
CHAT = "/v1/chat/completions"
PLAIN: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": f"Repeat {SECRET}"}],
    "max_tokens": 8,
}


def schema(schema: Any) -> dict[str, Any]:
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    }


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters or {}}}


CHAT_FIELDS: list[dict[str, Any]] = [
    {},
    {"stream": True},
    {"stop": [SECRET]},
    {"user": SECRET, "metadata": {SECRET: SECRET}, "safety_identifier": SECRET},
    {"model": SECRET},
    {SECRET: SECRET},
    {"messages": SECRET},
    {"messages": [SECRET]},
    {"messages": [{"role": SECRET, "content": "hi"}]},
    {"messages": [{"role": "user", "content": [{"type": SECRET}]}]},
    {"messages": [{"role": "user", "content": "hi", SECRET: 1}]},
    {"messages": [{"role": "user", "content": SECRET * 9000}]},
    {"max_tokens": SECRET},
    {"temperature": {SECRET: SECRET}},
    {"logit_bias": {SECRET: 1}},
    {"logit_bias": {"4141414141": 1}},
    {"chat_template_kwargs": {SECRET: SECRET}},
    {"response_format": {"type": SECRET}},
    {"response_format": {"type": "json_object", SECRET: SECRET}},
    {"response_format": {"type": "regex", "pattern": f"{SECRET}[a-f]{{4}}"}},
    {"response_format": {"type": "regex", "pattern": f"({SECRET}"}},
    {"response_format": {"type": "grammar", "grammar": f'start: "{SECRET}" {SECRET}'}},
    {"response_format": {"type": "choice", "choices": [SECRET, SECRET + "2"]}},
    {"response_format": {"type": "json_schema", "schema_id": SECRET}},
    {"structured_outputs": {SECRET: SECRET}},
    schema(SECRET),
    schema({"type": SECRET}),
    schema({"$ref": f"#/{SECRET}"}),
    schema({"const": SECRET}),
    schema({"enum": [SECRET], "not": {"enum": [SECRET]}}),
    schema({"type": "object", "properties": {SECRET: {"type": "integer", "minimum": 1}}}),
    schema({"type": "object", "properties": {SECRET: {"type": "string", "pattern": "(?<=a)b"}}}),
    schema({"type": "object", "properties": {SECRET: {"$dynamicRef": SECRET}}}),
    schema({"type": "string", "pattern": f"({SECRET}{{1,900}}){{1,900}}x{{1,900}}"}),
    {"tools": [tool(SECRET)]},
    {"tools": [tool(SECRET, {"type": SECRET})]},
    {"tools": [tool("f"), tool("f")], "user": SECRET},
    {"tools": [tool("f")], "tool_choice": {"type": "function", "function": {"name": SECRET}}},
]

OTHERS: list[tuple[str, str, Any]] = [
    ("POST", "/v1/completions", {"model": MODEL, "prompt": SECRET, "max_tokens": 4}),
    ("POST", "/v1/completions", {"model": MODEL, "prompt": {SECRET: SECRET}}),
    ("POST", "/v1/completions", {"model": MODEL, "prompt": "hi", "suffix": SECRET}),
    ("POST", "/v1/responses", {"model": MODEL, "input": SECRET, "max_output_tokens": 8}),
    ("POST", "/v1/responses", {"model": MODEL, "input": SECRET, "stream": True}),
    ("POST", "/v1/responses", {"model": MODEL, "input": [{"type": SECRET}]}),
    ("POST", "/v1/responses", {"model": MODEL, "input": "x", "previous_response_id": SECRET}),
    ("POST", "/tokenize", {"model": MODEL, "prompt": SECRET}),
    ("POST", "/tokenize", {"model": MODEL, SECRET: SECRET}),
    ("POST", "/detokenize", {"model": MODEL, "tokens": [SECRET]}),
    ("POST", "/v1/schemas", {"schema": {"const": SECRET}}),
    ("POST", "/v1/schemas", {"schema": {"type": SECRET}}),
    ("GET", f"/v1/schemas/{SECRET}", None),
    ("DELETE", f"/v1/schemas/{SECRET}", None),
    ("GET", f"/v1/models/{SECRET}", None),
    ("GET", f"/{SECRET}?{SECRET}={SECRET}", None),
    ("PUT", f"/v1/models?key={SECRET}", None),
    ("OPTIONS", f"/v1/{SECRET}", None),
    ("HEAD", f"/health?{SECRET}", None),
]


def test_a_marker_in_every_field_and_failing_path_is_in_no_log_line(served: Served) -> None:
    client = served.client
    responses = [client.post(CHAT, json=PLAIN | fields) for fields in CHAT_FIELDS]
    responses += [client.request(method, path, json=body) for method, path, body in OTHERS]
    for headers in (
        {"authorization": f"Bearer {SECRET}"},
        {"content-encoding": SECRET},
        {"traceparent": SECRET, "tracestate": f"a={SECRET}", "x-request-id": SECRET},
        {"origin": f"https://{SECRET}", "content-type": SECRET},
    ):
        responses.append(client.post(CHAT, json=PLAIN, headers=headers))
    for raw in (b"{" + SECRET.encode(), b'{"a": "' + SECRET.encode() * 10**6 + b'"}'):
        responses.append(client.post(CHAT, content=raw))
    odd_method(client, SECRET)
    leave_midway(client)
    assert {response.status_code for response in responses} >= {200, 400, 401, 404, 405, 413}
    assert all(response.status_code < 500 for response in responses)
    sent = [response for response in responses if SECRET in response.text]
    assert len(sent) > 15, "responses quote the marker; otherwise the test would prove little"
    lines = served.lines_of(responses)
    assert "logit_bias.*" in {line.get("param") for line in lines}, "the field, not its member"
    logged = served.log.read_text(encoding="utf-8")
    assert SECRET not in logged
    assert "4141414141" not in logged


def odd_method(client: httpx.Client, method: str) -> None:
    """Send an invalid method; the server may answer it or close the connection."""
    address = urlsplit(str(client.base_url))
    with socket.create_connection((address.hostname, address.port), timeout=300) as connection:
        connection.sendall(f"{method} /{method} HTTP/1.1\r\nhost: {method}\r\n\r\n".encode())
        connection.recv(4096)


def leave_midway(client: httpx.Client) -> None:
    body = PLAIN | {"stream": True, "max_tokens": 400, "ignore_eos": True}
    with client.stream("POST", CHAT, json=body) as response:
        next(response.iter_bytes())


def test_each_request_has_a_line_with_its_id_also_when_it_was_refused_at_the_door(
    answered: Served,
) -> None:
    responses = [
        answered.client.get("/nowhere"),
        answered.client.get("/v1/models", headers={"authorization": "Bearer no"}),
        answered.client.post(CHAT, content=b" " * (5 << 20)),
        answered.client.post(CHAT, json=PLAIN | {"top_k": "x"}),
    ]
    found = answered.lines_of(responses)
    assert [(line["endpoint"], line["status"], line.get("code")) for line in found] == [
        ("other", 404, None),
        ("/v1/models", 401, "invalid_api_key"),
        (CHAT, 413, "body_too_large"),
        (CHAT, 400, "invalid_request"),
    ]
    assert found[-1]["param"] == "top_k"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(stream, level="debug", log_format="json")
    yield stream
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


async def test_an_engine_that_dies_on_a_request_does_not_quote_it(log: io.StringIO) -> None:
    engine = FakeEngine()
    engine.crash = ValueError(SECRET)
    assembly = assemble(Settings(compile_workers=1), backend(engine), Metrics())
    async with started(assembly) as client:
        response = await client.post(CHAT, json=PLAIN)
    assert response.status_code == 503
    entries = [json.loads(line) for line in log.getvalue().splitlines()]
    died = next(entry for entry in entries if entry["level"] == "critical")
    assert died["exception"].endswith("ValueError")
    (line,) = (entry for entry in entries if entry["message"] == "request")
    assert (line["status"], line["error"]) == (503, "EngineDied")
    assert SECRET not in log.getvalue()
