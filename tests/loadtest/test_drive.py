"""Rounds against a fake server: order and concurrency of requests, failed connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from loadtest.connection import Connection, NoAnswerError
from loadtest.drive import Closed, Load, Open, Prepared, drive, prepared
from loadtest.measure import run_blocking
from loadtest.requests import Request
from tests.loadtest.fake_server import Body, FakeServer, Reply, serving, text


def numbered(count: int) -> list[Prepared]:
    return [
        prepared(Request(f"task {number}", [], None, 8), {"number": number})
        for number in range(count)
    ]


def echo(body: Body) -> Reply:
    return text("number ", str(body["number"]))


def connecting(fake: FakeServer) -> Callable[[], Connection]:
    return lambda: Connection(fake.url)


@pytest.mark.parametrize("load", [Closed(1), Closed(3), Closed(20), Open(500.0)])
def test_every_request_is_sent_once_and_answers_keep_their_order(load: Load) -> None:
    with serving(FakeServer(echo)) as fake:
        result = run_blocking(connecting(fake), load, numbered(10), 0)
    assert [answer.text for answer in result.answers] == [f"number {n}" for n in range(10)]
    assert [answer.task for answer in result.answers] == [f"task {n}" for n in range(10)]
    assert sorted(body["number"] for body in fake.bodies) == list(range(10))


def test_a_closed_loop_has_as_many_requests_in_flight_as_clients() -> None:
    with serving(FakeServer(echo, waits_for=4)) as fake:
        result = run_blocking(connecting(fake), Closed(4), numbered(20), 0)
    assert fake.most_in_flight == 4
    assert all(answer.outcome == "valid" for answer in result.answers)


def test_an_open_loop_sends_whether_or_not_earlier_requests_are_answered() -> None:
    with serving(FakeServer(echo, waits_for=6)) as fake:
        result = run_blocking(connecting(fake), Open(1000.0), numbered(6), 0)
    assert fake.most_in_flight == 6
    assert all(answer.outcome == "valid" for answer in result.answers)


def test_a_round_lasts_from_its_first_request_to_its_last_answer() -> None:
    with serving(FakeServer(echo)) as fake:
        result = run_blocking(connecting(fake), Closed(1), numbered(5), 0)
    assert sum(answer.seconds for answer in result.answers) <= result.seconds
    for answer in result.answers:
        assert answer.first is not None
        assert answer.first + sum(answer.gaps) <= answer.seconds


def test_connections_that_the_server_closes_are_opened_again() -> None:
    with serving(FakeServer(echo, keep_alive=False)) as fake:
        result = run_blocking(connecting(fake), Closed(2), numbered(6), 0)
    assert [answer.outcome for answer in result.answers] == ["valid"] * 6


def test_a_server_that_is_not_there_fails_every_request_and_says_why() -> None:
    with serving(FakeServer(echo)) as fake:
        pass
    result = run_blocking(connecting(fake), Closed(2), numbered(3), 0)
    assert [answer.outcome for answer in result.answers] == ["failed"] * 3
    assert all(answer.detail for answer in result.answers)


@asynccontextmanager
async def raw_server(*replies: bytes | None) -> AsyncIterator[str]:
    """Sends the next of ``replies`` to each connection, for None waits for EOF, and closes it."""
    waiting = iter(replies)
    handlers = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.append(task)
        await reader.read(1)
        reply = next(waiting)
        if reply is None:
            await reader.read()
        else:
            writer.write(reply)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*handlers)


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with raw_server(b"HTTP/1.0 200 OK\r\n\r\ndata: 1\n\n") as url:
        exchange = await Connection(url).post("/", b"{}", 5)
    assert (exchange.status, exchange.body) == (200, b"data: 1\n\n")


async def test_invalid_http_and_a_closed_connection_are_no_answers() -> None:
    async with raw_server(b"nonsense\r\n\r\n", b"") as url:
        for _ in range(2):
            with pytest.raises(NoAnswerError):
                await Connection(url).post("/", b"{}", 5)


async def test_a_server_that_never_answers_is_given_up() -> None:
    async with raw_server(None) as url:
        with pytest.raises(NoAnswerError, match="no answer within"):
            await Connection(url).post("/", b"{}", 0.2)


async def test_an_idle_connection_that_was_closed_is_opened_again_for_the_next_request() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    async with raw_server(answer, answer) as url:
        connection = Connection(url)
        for _ in range(2):
            assert (await connection.post("/", b"{}", 5)).body == b"ok"
        connection.close()


async def test_drive_runs_in_the_callers_own_event_loop_as_well() -> None:
    with serving(FakeServer(echo)) as fake:
        result = await drive(connecting(fake), Closed(2), numbered(4))
    assert len(result.answers) == 4
