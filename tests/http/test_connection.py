"""Limits of a connection, in bytes and seconds: raw bytes against a real server."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from uvicorn.server import ServerState

from app.http.connection import BoundedConnection, ConnectionLimits, HeadWithBody
from tests.http.harness import CHAT, application, chat, listening
from tests.serving.fakes import Bench, FakeEngine, until

PATIENT = ConnectionLimits(check_seconds=0.01)
BODY = json.dumps(chat()).encode()
HEAD = b"POST %s HTTP/1.1\r\nhost: test\r\n" % CHAT.encode()
WHOLE = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
END = b"connection: close\r\n"


@asynccontextmanager
async def server(
    limits: ConnectionLimits,
    bench: Bench | None = None,
    made: list[BoundedConnection] | None = None,
) -> AsyncIterator[Any]:
    """Yields a function that connects to a server with ``limits``; its ends go to ``made``."""

    class Connection(BoundedConnection):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if made is not None:
                made.append(self)

    Connection.limits = limits
    bench = bench or Bench()

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writers.append(writer)
        return reader, writer

    writers: list[asyncio.StreamWriter] = []
    async with bench.running(), listening(application(bench), Connection) as url:
        address = urlsplit(url)
        try:
            async with asyncio.timeout(300):
                yield connect
        finally:
            for writer in writers:
                writer.transport.abort()
            await asyncio.sleep(0)


def later() -> float:
    """A time at which every limit is exceeded."""
    return asyncio.get_running_loop().time() + 1000


async def status(reader: asyncio.StreamReader) -> int:
    """Status of the only answer before the server closes the connection; 0: no answer."""
    answer = await reader.read()
    return int(answer.split(b" ", 2)[1]) if answer else 0


async def test_a_connection_that_never_asks_is_closed() -> None:
    async with server(ConnectionLimits(head_seconds=0.05, check_seconds=0.01)) as connect:
        reader, _ = await connect()
        assert await status(reader) == 0


async def test_a_head_that_does_not_end_is_answered_with_408() -> None:
    made: list[BoundedConnection] = []
    async with server(PATIENT, made=made) as connect:
        reader, writer = await connect()
        writer.write(HEAD)
        await until(lambda: made and made[0]._head_bytes)
        made[0].check(later())
        assert await status(reader) == 408


async def test_a_body_that_does_not_end_is_answered_with_408() -> None:
    async with server(ConnectionLimits(body_seconds=0.05, check_seconds=0.01)) as connect:
        reader, writer = await connect()
        writer.write(WHOLE[:-1])
        assert await status(reader) == 408


async def test_a_body_of_many_bytes_is_given_more_time() -> None:
    async with server(ConnectionLimits(body_seconds=0, check_seconds=0.01)) as connect:
        reader, writer = await connect()
        padded = BODY[:-1] + b" " * 10_000 + b"}"
        writer.write(HEAD + END + b"content-length: %d\r\n\r\n" % len(padded) + padded)
        assert await status(reader) == 200


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"GET /", b"a" * 1000),
        (HEAD, b"x: %b\r\n" % (b"a" * 1000)),
        (HEAD + b"x: ", b"a" * 1000),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n1;", b"a" * 1000),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"x: %b\r\n" % (b"a" * 1000)),
    ],
    ids=["path", "headers", "header", "chunk extension", "trailers"],
)
async def test_the_bytes_around_a_body_are_limited(start: bytes, more: bytes) -> None:
    async with server(ConnectionLimits(head_bytes=50_000)) as connect:
        reader, writer = await connect()
        writer.write(start)
        for _ in range(2_000):  # 2 MB: the server must have closed long before
            writer.write(more)
            try:
                await asyncio.wait_for(writer.drain(), 300)
            except ConnectionError:
                break
        with_answer = await asyncio.gather(status(reader), return_exceptions=True)
        # A reset may overtake the answer, because the server closed without reading everything.
        assert with_answer[0] == 431 or isinstance(with_answer[0], ConnectionError)


async def test_many_requests_on_one_connection_do_not_add_up() -> None:
    async with server(ConnectionLimits(head_bytes=300)) as connect:
        reader, writer = await connect()
        for _ in range(20):
            writer.write(WHOLE)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)


async def test_an_answer_may_take_longer_than_its_request() -> None:
    bench = Bench(FakeEngine())
    bench.engine.gate.clear()
    made: list[BoundedConnection] = []
    async with server(PATIENT, bench, made) as connect:
        reader, writer = await connect()
        # Some clients send an extra CRLF after a body (RFC 9112, section 2.2).
        writer.write(WHOLE.replace(b"host: test\r\n", b"host: test\r\n" + END) + b"\r\n")
        await until(lambda: bench.engine.added)
        made[0].check(later())
        bench.engine.gate.set()
        assert await status(reader) == 200


def unread_client(address: tuple[str, int]) -> socket.socket:
    """A client socket with a small receive buffer; it reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.connect(address)
    return client


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_nobody_reads_is_dropped(stream: bool) -> None:
    lost: list[BoundedConnection] = []

    class Connection(BoundedConnection):
        limits = ConnectionLimits(unread_seconds=0.05, check_seconds=0.01)

        def connection_lost(self, exc: Exception | None) -> None:
            lost.append(self)
            super().connection_lost(exc)

    # More than the kernel buffers for a connection: a stream waits, a whole answer is written.
    bench = Bench(FakeEngine(lambda request: [b"x" * 1_000_000] * 20))
    async with bench.running(), listening(application(bench), Connection) as url:
        address = urlsplit(url)
        client = unread_client((str(address.hostname), address.port or 0))
        body = json.dumps(chat(stream=stream)).encode()
        request = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
        await asyncio.get_running_loop().sock_sendall(client, request)
        await until(lambda: lost)
        client.close()
    assert bench.admission.live == 0


class ScriptedTransport(asyncio.Transport):
    """Reports the number of unsent bytes that the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent = 0
        self.aborted = False

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("unsent", "dropped"),
    [
        ([500_000, 400_000, 300_000, 200_000], False),  # more than 64 KiB read in each 40 s
        ([500_000, 499_000, 498_000, 497_000], True),  # too little read
        ([500_000, 500_000, 0, 500_000], False),  # everything read in between
        ([30_000, 30_000, 30_000, 30_000], True),  # a short remainder has to be read, too
    ],
)
async def test_an_answer_is_dropped_that_is_not_read_for_a_minute(
    unsent: list[int], dropped: bool
) -> None:
    config = uvicorn.Config(application(Bench()), ws="none", log_config=None)
    connection = BoundedConnection(config, ServerState(), {})
    transport = ScriptedTransport()
    connection.connection_made(transport)
    connection.pause_writing()
    for number, size in enumerate(unsent):
        transport.unsent = size
        connection.check(1000 + 40.0 * number)
    assert transport.aborted is dropped
    connection.connection_lost(None)


NONSENSE = b"\x00\x01 nonsense\r\n\r\n"


async def test_a_request_that_is_not_http_gets_400_in_the_envelope() -> None:
    async with server(PATIENT) as connect:
        reader, writer = await connect()
        writer.write(NONSENSE)
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}


async def test_nonsense_behind_a_request_does_not_get_into_its_answer() -> None:
    bench = Bench(FakeEngine())
    bench.engine.pause_at = 1
    async with server(PATIENT, bench) as connect:
        reader, writer = await connect()
        body = json.dumps(chat(stream=True)).encode()
        writer.write(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        await reader.readuntil(b"Hel")
        writer.write(NONSENSE)
        rest = await reader.read()
    assert b"HTTP/1.1 400" not in rest


async def test_a_client_that_asks_twice_at_once_and_leaves_is_noticed() -> None:
    bench = Bench(FakeEngine(lambda request: [b"piece"] * 900))
    bench.engine.pause_at = 1
    async with server(PATIENT, bench) as connect:
        reader, writer = await connect()
        body = json.dumps(chat(stream=True)).encode()
        request = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
        writer.write(request + request)
        await reader.readuntil(b"piece")
        writer.transport.abort()
        # Reading is paused, so that only a write detects the disconnect. Pieces come one by one:
        # otherwise the answer could be complete before the operating system reports it.
        for pieces in range(2, 800):
            if bench.observer.requests:
                break
            bench.engine.pause_at = pieces
            bench.engine.gate.set()
            await asyncio.sleep(0.005)
        await until(lambda: bench.observer.requests)
        assert [stats.status for stats in bench.observer.requests] == [499]


async def test_a_request_that_offers_another_protocol_is_answered_in_this_one() -> None:
    async with server(PATIENT) as connect:
        reader, writer = await connect()
        # Java's HTTP client sends this with each request.
        offer = b"connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\n"
        settings = b"http2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
        writer.write(WHOLE.replace(b"host: test\r\n", b"host: test\r\n" + offer + settings))
        assert await status(reader) == 200


class Recorder(asyncio.Transport):
    """Records each write, and ``None`` when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes | None] = []

    def write(self, data: Any) -> None:
        self.calls.append(bytes(data))

    def close(self) -> None:
        self.calls.append(None)

    def is_closing(self) -> bool:
        return None in self.calls


ANSWER = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize("body", [b"{}", b""])
async def test_an_answers_head_is_written_together_with_its_body(body: bytes) -> None:
    wire = Recorder()
    transport = HeadWithBody(wire, asyncio.get_running_loop())
    transport.write(ANSWER)
    transport.write(body)
    transport.write(b"more")
    await asyncio.sleep(0)
    assert wire.calls == [ANSWER + body, b"more"]


async def test_a_head_does_not_wait_for_a_body_that_comes_later() -> None:
    wire = Recorder()
    transport = HeadWithBody(wire, asyncio.get_running_loop())
    for head in (b"HTTP/1.1 100 Continue\r\n\r\n", ANSWER):
        transport.write(head)
        await asyncio.sleep(0)
    transport.write(b"{}")
    assert wire.calls == [b"HTTP/1.1 100 Continue\r\n\r\n", ANSWER, b"{}"]


async def test_a_held_head_is_sent_before_the_connection_closes() -> None:
    wire = Recorder()
    transport = HeadWithBody(wire, asyncio.get_running_loop())
    transport.write(ANSWER)
    transport.close()
    await asyncio.sleep(0)
    assert wire.calls == [ANSWER, None]
