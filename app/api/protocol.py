"""HTTP/1.1 as uvicorn reads it, with bounds on the part of a request that is not its body.

httptools sets none: 100 MiB of one header are gathered before anybody is asked for a key (what
CVE-2025-48956 was), and a connection that never finishes its request's head is kept for ever.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD = 1 << 16
"""Bytes of a request's line and headers, and of what stands between the bytes of its body."""

HEAD_SECONDS = 30.0
"""From the first byte of a request, or from the opening of the connection, to its last header."""

_REASON = b"the head of the request is larger than the limit of %d bytes" % LARGEST_HEAD
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\n"
    b"connection: close\r\n\r\n%b" % (len(_REASON), _REASON)
)


class BoundedHttp(HttpToolsProtocol):
    """Answers 431 and closes where more than ``LARGEST_HEAD`` bytes bring none of a body.

    The parser is given what was read at once (up to 256 KiB) before it is told how much that was:
    so much more may be gathered. Give the class to ``uvicorn.Config(http=...)``.
    """

    _gathered = 0
    """Bytes since the message began, or since the last byte of its body."""
    _deadline: asyncio.TimerHandle | None = None
    _head_seconds = HEAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._gathered += len(data)
        super().data_received(data)
        if self._gathered > LARGEST_HEAD and not self.transport.is_closing():
            self.transport.write(_REFUSAL)
            self.transport.close()

    def on_message_begin(self) -> None:
        self._gathered = 0
        self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._expect_nothing()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._gathered = 0
        super().on_body(body)

    def _expect_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._head_seconds, self._give_up)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
