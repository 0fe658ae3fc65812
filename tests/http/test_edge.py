"""The body of a stream bypasses the ASGI layers between ``Edge`` and the route."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.types import Message, Receive, Scope, Send

from app.http.edge import Edge
from app.http.endpoint import EventStream
from app.serving.admission import Admission
from tests.http.harness import CONFIG


async def test_a_streams_body_passes_no_layer_inside_of_the_headers() -> None:
    passed: list[str] = []
    sent: list[Message] = []

    async def events() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"data: %d\n\n" % number

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            passed.append(message["type"])
            await send(message)

        await EventStream(events(), close=lambda: None)(scope, receive, counted)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    edge = Edge(inner, CONFIG, Admission(1, clock=lambda: 0.0), frozenset())
    await edge({"type": "http", "method": "GET", "path": "/", "headers": []}, receive, send)
    assert passed == ["http.response.start"]
    assert b"x-request-id" in dict(sent[0]["headers"])
    body = b"".join(message["body"] for message in sent[1:])
    assert body == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
    assert [message["more_body"] for message in sent[1:]] == [True, True, True, False]
