"""The recorder forwards exchanges unchanged and writes them to files."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.clients.recorder import recording


class _Echo(BaseHTTPRequestHandler):
    """Answers a POST with its body, in two parts and without a length."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(201)
        self.send_header("x-kind", "echo")
        self.end_headers()
        self.wfile.write(body[:5])
        self.wfile.flush()
        self.wfile.write(body[5:])

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def echo() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_exchange_passes_unchanged_and_is_written_under_its_label(
    echo: str, tmp_path: Path
) -> None:
    with (
        recording(echo, tmp_path) as recorder,
        httpx.Client(trust_env=False, timeout=300) as client,
    ):
        client.get(f"{recorder.url}/-/label?tools%3A%20required")
        answer = client.post(
            f"{recorder.url}/v1/x", json={"é": 1}, headers={"authorization": "Bearer secret"}
        )
    assert answer.status_code == 201
    assert answer.headers["x-kind"] == "echo"
    assert answer.json() == {"é": 1}
    (file,) = tmp_path.glob("*.json")
    exchange = json.loads(file.read_text())
    assert exchange["check"] == "tools: required"
    assert exchange["request"] == "POST /v1/x"
    assert exchange["body"] == exchange["answer"] == {"é": 1}
    assert "secret" not in file.read_text()
