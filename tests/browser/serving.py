"""A server of the demo model for what is no test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.server import running_server


@contextmanager
def page_url(url: str | None) -> Iterator[str]:
    """The address of a server: ``url``, or one that runs while the block does."""
    if url is not None:
        yield url
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(None, Path(folder) / "log", {}) as server,
    ):
        yield server.url
