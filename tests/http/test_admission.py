"""The ticket of a request, from before its routing until its end."""

from __future__ import annotations

import contextlib

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from app.http.edge import Edge
from app.serving.admission import Admission, Ticket
from tests.http.harness import CHAT, CONFIG, chat, client_of
from tests.serving.fakes import Bench


@pytest.mark.parametrize("raises", [False, True])
async def test_a_ticket_leaves_when_its_call_ends_whatever_happened(raises: bool) -> None:
    admission = Admission(1, clock=lambda: 0.0)
    tickets: list[Ticket] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ticket: Ticket = scope["state"]["ticket"]
        ticket.take(1)
        tickets.append(ticket)
        if raises:
            raise RuntimeError
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    transport = httpx.ASGITransport(Edge(app, CONFIG, admission, frozenset({CHAT})))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for _ in range(2):
            with contextlib.suppress(RuntimeError):
                await client.post(CHAT)
            assert admission.live == 0
    assert [ticket.left for ticket in tickets] == [True, True]
    assert tickets[0].tenant == "127.0.0.1"


async def test_an_answer_that_has_ended_holds_no_place_while_it_is_read() -> None:
    bench = Bench(capacity=1)
    async with client_of(bench) as client:
        for path, body in ((CHAT, chat(stream=True)), ("/v1/schemas", {"schema": {}})):
            assert (await client.post(path, json=body)).status_code == 200
            assert bench.admission.live == 0
    assert bench.observer.rejections == []
