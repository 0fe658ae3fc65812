"""Sends a round of requests: closed loop (clients wait for answers) or open loop (arrivals)."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadtest.answers import Answer, failed, read_answer
from loadtest.connection import Connection, Exchange, NoAnswerError
from loadtest.requests import Request

PATH = "/v1/chat/completions"
TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed loop: each client sends its next request when the last one is answered."""

    clients: int

    def __str__(self) -> str:
        return f"{self.clients} client{'s' if self.clients > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Open:
    """An open loop: Poisson arrivals at ``rate`` requests per second, regardless of answers."""

    rate: float

    def __str__(self) -> str:
        return f"{self.rate:g}/s"


Load = Closed | Open


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request and its serialised body, made before the measurement."""

    request: Request
    body: bytes


@dataclass(frozen=True, slots=True)
class Round:
    """The answers to one list of requests, and the seconds from the first request's start to the
    last one's end."""

    answers: Sequence[Answer]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Sent:
    request: Request
    due: float
    exchange: Exchange | NoAnswerError
    ended: float

    def read(self) -> Answer:
        if isinstance(self.exchange, NoAnswerError):
            return failed(self.request, self.ended - self.due, str(self.exchange))
        return read_answer(self.request, self.due, self.exchange)


def prepared(request: Request, fields: dict[str, object]) -> Prepared:
    return Prepared(request, json.dumps(fields).encode())


async def drive(
    connect: Callable[[], Connection], load: Load, requests: Sequence[Prepared], seed: int = 0
) -> Round:
    """Send all ``requests`` under ``load``; answers are in the order of the requests.

    ``seed`` determines the arrivals. Answers are parsed and checked after the last has arrived.
    """
    match load:
        case Closed(clients):
            sent = await _closed(connect, clients, requests)
        case Open(rate):
            sent = await _open(connect, rate, requests, random.Random(seed))
    seconds = max(each.ended for each in sent) - min(each.due for each in sent)
    return Round([each.read() for each in sent], seconds)


async def _closed(
    connect: Callable[[], Connection], clients: int, requests: Sequence[Prepared]
) -> list[_Sent]:
    waiting = iter(enumerate(requests))
    sent: dict[int, _Sent] = {}

    async def client() -> None:
        connection = connect()
        try:
            for number, each in waiting:
                sent[number] = await _send(connection, each, None)
        finally:
            connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return [sent[number] for number in range(len(requests))]


async def _open(
    connect: Callable[[], Connection],
    rate: float,
    requests: Sequence[Prepared],
    rng: random.Random,
) -> list[_Sent]:
    idle: list[Connection] = []
    start = time.perf_counter()

    async def arrival(each: Prepared, due: float) -> _Sent:
        connection = idle.pop() if idle else connect()
        try:
            return await _send(connection, each, due)
        finally:
            idle.append(connection)

    tasks = []
    due = start
    for each in requests:
        await asyncio.sleep(due - time.perf_counter())
        tasks.append(asyncio.create_task(arrival(each, due)))
        due += rng.expovariate(rate)
    sent = await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()
    return list(sent)


async def _send(connection: Connection, each: Prepared, due: float | None) -> _Sent:
    """Send one request and wait for its answer; ``due`` None: it is due now."""
    start = time.perf_counter() if due is None else due
    try:
        exchange = await connection.post(PATH, each.body, TIMEOUT)
    except NoAnswerError as error:
        return _Sent(each.request, start, error, time.perf_counter())
    return _Sent(each.request, exchange.sent if due is None else due, exchange, exchange.ended)
