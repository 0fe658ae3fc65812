"""A fake Hub on this machine, with one model and the calls that a download needs."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0" * 40


@contextmanager
def running_hub(name: str, folder: Path) -> Iterator[str]:
    """Run a Hub that serves the files of ``folder`` as the model ``name``; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = self.path.partition("?")[0]
            files = {each.name: each for each in folder.iterdir()}
            if path.startswith(f"/api/models/{name}"):
                siblings = [{"rfilename": each} for each in files]
                tree = [
                    {"type": "file", "path": each, "size": file.stat().st_size, "oid": "0"}
                    for each, file in files.items()
                ]
                info: dict[str, Any] = {"id": name, "sha": COMMIT, "siblings": siblings}
                self._send(json.dumps(tree if "/tree/" in path else info).encode(), {}, body)
                return
            file = files.get(path.rpartition("/")[2])
            if "/resolve/" not in path or file is None:
                missing = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
                self._send(b"", missing, body, 404)
                return
            data = file.read_bytes()
            tag = hashlib.sha256(data).hexdigest()
            self._send(data, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT}, body)

        def _send(
            self, data: bytes, headers: dict[str, str], body: bool, status: int = 200
        ) -> None:
            self.send_response(status)
            for header, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(header, value)
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
