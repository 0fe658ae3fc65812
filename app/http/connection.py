"""A client's connection, with the limits that uvicorn leaves to a reverse proxy.

uvicorn limits neither the size of a request's head, nor the time a request takes to arrive, nor
the time an answer may stay unread in memory: each lets one client hold a file descriptor, or
memory, for ever.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.http.errors import error_object

logger = logging.getLogger(__name__)

_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
_CHUNKED = b"transfer-encoding: chunked\r\n"
_STEP = 1 << 16
"""Bytes that a client has to send, or to read, to get more time."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection, in seconds and bytes."""

    head_bytes: int = 1 << 16
    """Request line, headers, trailers and chunk framing; may be exceeded by one read."""
    head_seconds: float = 20.0
    """From the connection, or from a head's first byte, to the head's end."""
    body_seconds: float = 60.0
    """From a request's first byte to the body's end; 1 s more for each 64 KiB that has come."""
    unread_seconds: float = 60.0
    """Time in which a client has to read 64 KiB of an unread answer."""
    check_seconds: float = 5.0
    """Interval between checks of these limits, which may be exceeded by that much."""


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's connection, closed when it exceeds one of ``limits``.

    A request without an answer yet gets 408 or 431. An answer that is not read is dropped, and its
    work is cancelled as for any client that disconnects.
    """

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()

    @staticmethod
    def on_refusal(status: int) -> None:
        """Called when a connection is closed with status 400, 408 or 431; for subclasses."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_bytes = 0
        self._body_bytes = 0
        self._in_body = False
        self._unanswered: list[RequestResponseCycle] = []
        """Pipelined requests before the latest one."""
        self._arriving_since: float | None = self.loop.time()
        self._unread = 0
        self._unread_since = 0.0
        self._checks = self.loop.call_later(self.limits.check_seconds, self._check_again)

    def connection_lost(self, exc: Exception | None) -> None:
        self._checks.cancel()
        for cycle in self._unanswered:  # uvicorn disconnects the last request alone
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._arriving_since is None:
            self._arriving_since = self.loop.time()
        if not self._in_body and self._head_bytes == 0:
            data = _without_upgrade(data)
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > self.limits.head_bytes and not self.transport.is_closing():
            self._refuse(431, f"the headers are larger than {self.limits.head_bytes} bytes")

    def on_message_begin(self) -> None:
        self._arriving_since = self.loop.time()
        self._body_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_body = True
        if self._answering:
            self._unanswered.append(self.cycle)
        else:
            self._unanswered.clear()
        super().on_headers_complete()
        plain = self.parser.get_http_version() == "1.0"
        writer = HeadWithBody(self.transport, self.loop, plain=plain)
        self.cycle.transport = writer  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._in_body = False
        self._arriving_since = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "not an HTTP request")

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _check_again(self) -> None:
        self._checks = self.loop.call_later(self.limits.check_seconds, self._check_again)
        self.check(self.loop.time())

    def check(self, now: float) -> None:
        """Close the connection if it exceeds a limit at ``now`` (event loop's clock)."""
        if not self.transport.is_closing():
            self._check_arrival(now)
        self._check_unread(now)

    def _check_arrival(self, now: float) -> None:
        since = self._arriving_since
        if since is None:
            return
        if self.flow.read_paused or (self._answering and not self._in_body):
            self._arriving_since = now  # it waits for us to answer the previous request
            return
        if not self._in_body:
            if now - since >= self.limits.head_seconds and self._head_bytes == 0:
                self.transport.close()  # nothing was sent, so no answer is expected
            elif now - since >= self.limits.head_seconds:
                self._refuse(408, f"no request arrived within {self.limits.head_seconds:g} s")
        elif now - since >= self.limits.body_seconds + self._body_bytes / _STEP:
            self._refuse(408, "the request body arrived too slowly; send it at once")

    def _check_unread(self, now: float) -> None:
        """Checks only while nothing is added: the buffer then shrinks, or the client is stuck."""
        written = self.flow.write_paused or self.transport.is_closing() or not self._answering
        size = self.transport.get_write_buffer_size() if written else 0
        if size == 0 or self._unread == 0 or size <= self._unread - _STEP:
            self._unread, self._unread_since = size, now
        elif now - self._unread_since >= self.limits.unread_seconds:
            logger.info("the client did not read its answer", extra={"bytes": size})
            self.transport.abort()

    def _refuse(self, status: int, message: str) -> None:
        """Send an error, unless another answer has started, and close."""
        started = self._answering and (self.cycle.response_started or bool(self.pipeline))
        if not started:
            self.transport.write(_response(status, message))
        if self._answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self.on_refusal(status)


class HeadWithBody:
    """Transport of a request cycle that joins an answer's head with a body that follows at once.

    uvicorn writes them separately; a write costs the event loop some 40 us, and wakes the client.
    A head without a body is written in the event loop's next iteration.

    ``plain``: the answer is for HTTP/1.0, which has no chunks (RFC 9112, section 7). uvicorn writes
    them all the same, each in one call: they are unwrapped, and closing ends the body.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, *, plain: bool = False
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._plain = plain
        self._unwraps = False
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._unwraps:
            data = _unchunked(data)
        if not self._held and data.startswith(b"HTTP/1.1 "):
            if self._plain and _CHUNKED in data:
                data = data.replace(_CHUNKED, b"", 1)
                self._unwraps = True
            self._held = data
            self._loop.call_soon(self._flush)
        else:
            held, self._held = self._held, b""
            self._transport.write(held + data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._held and not self._transport.is_closing():
            self.write(b"")


def _unchunked(data: bytes) -> bytes:
    """The contents of the complete chunks in ``data``."""
    contents = []
    while data:
        size, _, rest = data.partition(b"\r\n")
        contents.append(rest[: int(size, 16)])
        data = rest[int(size, 16) + 2 :]
    return b"".join(contents)


def _without_upgrade(data: bytes) -> bytes:
    """``data``, the beginning of a request, without its ``Upgrade`` header.

    A server may ignore it (RFC 9110, section 7.8). Java's HTTP client sends it with every request,
    and httptools would take the body for the other protocol and drop it.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end or _UPGRADE.search(head) is None:
        return data
    return _UPGRADE.sub(b"", head) + end + rest


def _response(status: int, message: str) -> bytes:
    body = json.dumps(error_object(message)).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
