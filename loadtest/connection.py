"""HTTP client for load generation: one request at a time, with the arrival time of every piece.

The client must use little CPU time, since it may share a machine with the server: a piece takes
some 15 us here (with uvloop) and some 100 us in httpx, which would slow down servers that stream
small pieces. The parser is httptools, as in uvicorn.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools


class NoAnswerError(Exception):
    """The connection failed before the answer was complete."""


@dataclass(slots=True)
class Exchange:
    """The answer to a request. Times are ``time.perf_counter`` seconds."""

    sent: float
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """Names in lower case."""
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    """Pieces of the body with their arrival times."""
    ended: float = 0.0

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)


class _Protocol(asyncio.Protocol):
    """Parses one answer at a time into the pending exchange."""

    def __init__(self) -> None:
        self.transport: asyncio.WriteTransport | None = None
        self._exchange: Exchange | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._done: asyncio.Future[Exchange] | None = None
        self._in_body = False
        self.answering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)  # uvloop's is not a subclass

    def expect(self, exchange: Exchange) -> asyncio.Future[Exchange]:
        self._exchange, self.answering = exchange, False
        self._parser = httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        return self._done

    def data_received(self, data: bytes) -> None:
        self.answering = True
        if self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"not HTTP: {error}")

    def on_body(self, piece: bytes) -> None:
        assert self._exchange is not None
        self._exchange.pieces.append((time.perf_counter(), piece))

    def on_message_complete(self) -> None:
        assert self._exchange is not None
        assert self._parser is not None
        assert self._done is not None
        self._in_body = False
        self._exchange.ended = time.perf_counter()
        self._exchange.status = self._parser.get_status_code()
        if not self._parser.should_keep_alive() and self.transport is not None:
            self.transport.close()
        if not self._done.done():
            self._done.set_result(self._exchange)

    def on_header(self, name: bytes, value: bytes) -> None:
        assert self._exchange is not None
        self._exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._in_body = True

    def connection_lost(self, error: Exception | None) -> None:
        if error is None and self._in_body:
            self.on_message_complete()  # without a length, the connection's end ends the body
        self._fail(f"the connection was closed: {error or 'by the server'}")

    def _fail(self, why: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(NoAnswerError(why))


class Connection:
    """One HTTP/1.1 connection to ``url``, opened on first use and reopened after it was lost."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None, url
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        lines = {"host": parts.netloc, "content-type": "application/json", **(headers or {})}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._protocol: _Protocol | None = None

    async def post(self, path: str, body: bytes, seconds: float) -> Exchange:
        """Send and wait for the complete answer. Raises ``NoAnswerError``, also after ``seconds``.

        ``Exchange.sent`` is set when the connection is open. If a reused connection is closed
        before any response data, the request is sent again: servers close idle connections.
        """
        try:
            async with asyncio.timeout(seconds):
                kept = self._protocol is not None
                protocol = await self._connected()
                try:
                    return await self._exchange(protocol, path, body)
                except NoAnswerError:
                    if not kept or protocol.answering:
                        raise
                    return await self._exchange(await self._connected(), path, body)
        except NoAnswerError:
            self.close()
            raise
        except (OSError, TimeoutError) as error:
            self.close()
            raise NoAnswerError(str(error) or f"no answer within {seconds:g} s") from error

    async def _exchange(self, protocol: _Protocol, path: str, body: bytes) -> Exchange:
        assert protocol.transport is not None
        exchange = Exchange(time.perf_counter())
        done = protocol.expect(exchange)
        start = f"POST {self._prefix}{path} HTTP/1.1\r\n{self._head}"
        protocol.transport.write(f"{start}content-length: {len(body)}\r\n\r\n".encode())
        protocol.transport.write(body)
        return await done

    def close(self) -> None:
        if self._protocol is not None and self._protocol.transport is not None:
            self._protocol.transport.close()
        self._protocol = None

    async def _connected(self) -> _Protocol:
        protocol = self._protocol
        if protocol is None or protocol.transport is None or protocol.transport.is_closing():
            loop = asyncio.get_running_loop()
            _, protocol = await loop.create_connection(
                _Protocol, self._host, self._port, ssl=self._tls
            )
            self._protocol = protocol
        return protocol
