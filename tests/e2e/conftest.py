"""A server of the demo model in float32, for all tests that want no other settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadtest.server import Server
from tests.servers import running_server

WATCH = """
import pathlib
import sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("outlines", "outlines_core", "diskcache"):
            pathlib.Path(__file__).with_name("imported").write_text(name)

sys.meta_path.insert(0, Watch())
pathlib.Path(__file__).with_name("watching").touch()
"""
"""Python runs it first in the server and in its compile workers."""


@pytest.fixture(scope="session")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder where the server and its compile workers record imports: see ``WATCH``."""
    folder = tmp_path_factory.mktemp("imports")
    (folder / "sitecustomize.py").write_text(WATCH)
    return folder


@pytest.fixture(scope="session")
def server(imports: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("server") / "log"
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(imports), prepend=os.pathsep)
            server = running_server(None, log, {"DTYPE": "float32"})
            started = running.enter_context(server)
        yield started
