"""A server of the demo vision model that has answered requests, with its metrics and its log."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers import running_server

MODEL = "leapjson-demo"
KEY = "a-key"
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "card.png"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
}


@dataclass(frozen=True, slots=True)
class Served:
    """A running server, and a client with its key."""

    client: httpx.Client
    log: Path

    def metrics(self) -> str:
        return self.client.get("/metrics").text

    def log_lines(self) -> list[dict[str, Any]]:
        """All complete lines of the log except the greeting; each must be JSON."""
        whole, _, _ = self.log.read_text(encoding="utf-8").rpartition("\n")
        lines = whole.splitlines()
        return [json.loads(line) for line in lines if not line.startswith("Leapjson serves")]

    def lines_of(self, responses: Sequence[httpx.Response]) -> list[dict[str, Any]]:
        """The log line of each request; waits for lines that are written after the answer."""
        ids = [each.headers["x-request-id"].removeprefix("req_") for each in responses]
        deadline = time.monotonic() + 300
        while True:
            lines = self.log_lines()
            found = {line["request_id"]: line for line in lines if line["message"] == "request"}
            if found.keys() >= set(ids):
                return [found[each] for each in ids]
            assert time.monotonic() < deadline, "a request has no line in the log"
            time.sleep(0.01)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("telemetry") / "log"
    settings = {
        "MODEL": "demo-vision",
        "SERVED_MODEL_NAME": MODEL,
        "MAX_BODY_BYTES": str(4 << 20),
        "DTYPE": "float32",
        "API_KEYS": KEY,
        "METRICS_PUBLIC": "true",
        "LOG_LEVEL": "debug",
        "MAX_QUEUE": "0",
        "MAX_RUNNING": "8",
        "COMPILE_WORKERS": "1",
        "IMAGE_WORKERS": "1",
    }
    with (
        running_server(None, log, settings) as server,
        httpx.Client(
            base_url=server.url, headers={"authorization": f"Bearer {KEY}"}, timeout=300
        ) as client,
    ):
        yield Served(client, log)


@pytest.fixture(scope="session")
def answered(served: Served) -> Served:
    """``served`` after requests of each kind, so that metrics that appear on use exist."""
    url = "data:image/png;base64," + base64.b64encode(PICTURE.read_bytes()).decode()
    seen: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "Read this card."}, seen]}]
    body: dict[str, Any] = {"model": MODEL, "messages": messages, "max_tokens": 60}
    format_ = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    chat = "/v1/chat/completions"
    for fields in ({}, {"response_format": format_}, {"response_format": format_, "stream": True}):
        response = served.client.post(chat, json=body | fields)
        assert response.status_code == 200, response.text
    bad = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "nothing"}}}
    assert served.client.post(chat, json=body | {"response_format": bad}).status_code == 400
    long = {"n": 8, "stream": True, "ignore_eos": True, "max_tokens": 1800}
    with served.client.stream("POST", chat, json=body | long) as every_place:
        parts = every_place.iter_raw()  # kept: deleting it would close the connection
        assert next(parts)  # its 14,400 tokens take seconds from here
        assert served.client.post(chat, json=body).status_code == 429
    assert served.client.get("/nowhere").status_code == 404
    assert [served.client.get(path).status_code for path in ("/health", "/metrics")] == [200, 200]
    return served
