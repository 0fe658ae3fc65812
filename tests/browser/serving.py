"""A server of the demo model for scripts that are not tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.server import running_server


@contextmanager
def page_url(url: str | None) -> Iterator[str]:
    """The address of a server: ``url``, or that of one which runs during the block."""
    if url is not None:
        yield url
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(None, Path(folder) / "log", {}) as server,
    ):
        yield server.url
