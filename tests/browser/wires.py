"""A proxy between the page and a server that holds an answer in the middle."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from urllib.parse import urlsplit

_STREAM = b"text/event-stream"
_PASSED = 40_000
"""Bytes of a stream that pass before it is held."""


class Wire:
    """Forwards connections to ``url``; of an event stream only the beginning, and then nothing
    until the server is gone."""

    def __init__(self, server: str) -> None:
        target = urlsplit(server)
        self._target = (target.hostname or "", target.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(self._target) as far:
            threading.Thread(target=_ask, args=(near, far), daemon=True).start()
            told, streamed = 0, False
            while data := far.recv(1 << 16):
                streamed = streamed or _STREAM in data
                passed = data[: max(0, _PASSED - told)] if streamed else data
                told += len(passed) if streamed else 0
                near.sendall(passed)
            near.shutdown(
                socket.SHUT_RDWR
            )  # another thread reads from it, so closing is not enough


def _ask(near: socket.socket, far: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := near.recv(1 << 16):
            far.sendall(data)
