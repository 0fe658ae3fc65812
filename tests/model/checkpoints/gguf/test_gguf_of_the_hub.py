"""``owner/name-GGUF:Q4_K_M`` selects the right GGUF file, with all its parts, from a fake Hub."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

_COMMIT = "1234567890" * 4
_REPOSITORIES = {
    "owner/tiny-GGUF": [
        "README.md",
        "mmproj-tiny-Q4_K_M.gguf",
        "tiny-IQ4_K_M.gguf",
        "tiny-Q4_K_M.gguf",
        "tiny-Q4_K_S.gguf",
        "tiny-UD-Q4_K_M.gguf",
        "tiny.Q8_0.gguf",
        "BF16/tiny-BF16-00001-of-00002.gguf",
        "BF16/tiny-BF16-00002-of-00002.gguf",
    ],
    "owner/two": ["two-f16.gguf", "two-q8_0.gguf"],
    "owner/none-GGUF": ["model.safetensors"],
}
_WORK = """
import json, sys
from app.core.errors import UnsupportedModel
from app.model.checkpoints.gguf.hub import file_on_disk
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = file_on_disk(name)
    except UnsupportedModel as error:
        found[name] = "refused: " + str(error)
print(json.dumps(found))
"""


class FakeHub(BaseHTTPRequestHandler):
    """The two calls of a client: the list of a repository's files, and one of the files."""

    fetched: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        place = urlsplit(self.path).path.strip("/")
        if place.startswith("api/models/"):
            repository = "/".join(place.split("/")[2:4])
            if repository not in _REPOSITORIES:
                self._answer(401, b"{}")
                return
            files = [
                {"type": "file", "path": name, "size": len(name), "oid": "0" * 40}
                for name in _REPOSITORIES[repository]
            ]
            self._answer(200, json.dumps(files).encode())
            return
        owner, name, _resolve, _revision, file = place.split("/", 4)
        if file not in _REPOSITORIES[f"{owner}/{name}"]:
            self._answer(404, b"", **{"X-Error-Code": "EntryNotFound"})
            return
        etag = hashlib.sha1(file.encode()).hexdigest()
        if self.command == "GET":
            self.fetched.append(file)
        self._answer(200, file.encode(), **{"ETag": f'"{etag}"', "X-Repo-Commit": _COMMIT})

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def files_of(endpoint: str, home: Path, *names: str) -> dict[str, str]:
    """The file, or the refusal, of each of ``names``, looked up by a separate process.

    The Hub's client reads its settings at import. Without an ``endpoint`` it is offline.
    """
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    hub_settings = {"HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    hub_settings |= {"HF_ENDPOINT": endpoint} if endpoint else {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _WORK, *names],
        env={**kept, **hub_settings, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_right_file_is_fetched_with_all_its_parts_and_found_again_without_the_hub(
    hub: str, tmp_path: Path
) -> None:
    expected = {
        "owner/tiny-GGUF:Q4_K_M": "tiny-Q4_K_M.gguf",
        "hf.co/owner/tiny-GGUF:q4_k_s": "tiny-Q4_K_S.gguf",
        "owner/tiny-GGUF:UD-Q4_K_M": "tiny-UD-Q4_K_M.gguf",
        "https://huggingface.co/owner/tiny-GGUF:Q8_0": "tiny.Q8_0.gguf",
        "owner/tiny-GGUF": "tiny-Q4_K_M.gguf",
        "owner/tiny-GGUF:BF16": "BF16/tiny-BF16-00001-of-00002.gguf",
        "owner/two:two-f16.gguf": "two-f16.gguf",
    }
    refused = {
        "owner/tiny-GGUF:Q5_K_M": "cannot find Q5_K_M in owner/tiny-GGUF: its GGUF files are BF16",
        "owner/none-GGUF": "cannot find a GGUF file in owner/none-GGUF: its GGUF files are none",
        "owner/gone-GGUF:Q4_0": "cannot find Q4_0 in owner/gone-GGUF: error from the Hub",
        "owner/two:other.gguf": "cannot find other.gguf in owner/two",
    }
    found = files_of(hub, tmp_path, *expected, *refused)
    for name, file in expected.items():
        assert found[name].endswith(f"snapshots/{_COMMIT}/{file}"), name
        assert Path(found[name]).read_text() == file
    for name, reason in refused.items():
        assert found[name].startswith(f"refused: {reason}"), found[name]
    second = "BF16/tiny-BF16-00002-of-00002.gguf"
    assert FakeHub.fetched.count(second) == 1
    assert not any("mmproj" in file or "IQ4" in file for file in FakeHub.fetched)
    again = files_of("", tmp_path, *expected)
    assert again == {name: found[name] for name in expected}
