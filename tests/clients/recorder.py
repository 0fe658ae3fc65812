"""A proxy that records the requests of clients and the answers of the server."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

PER_HOP = {"connection", "content-length", "keep-alive", "transfer-encoding", "authorization"}
LABEL = "/-/label?"


class Recorder(ThreadingHTTPServer):
    """Writes each exchange to a JSON file in ``folder``, with the label that was set last."""

    daemon_threads = True

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(server).netloc
        self.folder = folder
        self.label = ""
        self._count = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def write(self, exchange: dict[str, Any]) -> None:
        with self._lock:
            self._count += 1
            path = self.folder / f"{self._count:03}.json"
        path.write_text(json.dumps({"check": self.label} | exchange, indent=1, ensure_ascii=False))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def do_GET(self) -> None:
        if self.path.startswith(LABEL):
            self.server.label = unquote(self.path.removeprefix(LABEL))
            self._answer(200, {}, close=False)
            return
        self._pass_on(b"")

    def do_POST(self) -> None:
        self._pass_on(self.rfile.read(int(self.headers.get("content-length", 0))))

    def do_DELETE(self) -> None:
        self._pass_on(b"")

    def _pass_on(self, body: bytes) -> None:
        headers = {k: v for k, v in self.headers.items() if k.lower() not in PER_HOP}
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=300)
        answer, began, status = b"", time.monotonic(), 0
        try:
            upstream.request(self.command, self.path, body or None, headers)
            response = upstream.getresponse()
            status = response.status
            sent = {k: v for k, v in response.getheaders() if k.lower() not in PER_HOP}
            self._answer(response.status, sent, close=True)
            while data := response.read1(65536):
                answer += data
                self.wfile.write(data)
                self.wfile.flush()
        except BrokenPipeError:
            answer += b" ... the client left"
        finally:
            upstream.close()
        self.server.write(
            {
                "request": f"{self.command} {self.path}",
                "headers": headers,
                "body": _read(body),
                "status": status,
                "answer": _read(answer),
                "seconds": round(time.monotonic() - began, 3),
            }
        )

    def _answer(self, status: int, headers: dict[str, str], *, close: bool) -> None:
        """Send status and headers. A body of unknown length ends with the connection."""
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header(*(("connection", "close") if close else ("content-length", "0")))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the exchanges are the log."""


def _read(body: bytes) -> Any:
    text = body.decode(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text.splitlines()


@contextmanager
def recording(server: str, folder: Path) -> Iterator[Recorder]:
    """A recorder in front of ``server`` while the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    with Recorder(server, folder) as recorder:
        threading.Thread(target=recorder.serve_forever, daemon=True).start()
        yield recorder
        recorder.shutdown()
