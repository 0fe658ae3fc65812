"""A server with the parts of OpenAI's API that the load test uses, and scripted answers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from loadtest.server import free_port

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """A scripted answer: a chunk for each of ``deltas``, then the end and the usage."""

    deltas: Sequence[dict[str, Any]] = ()
    finish_reason: str | None = "stop"
    usage: dict[str, Any] | None = None
    status: int = 200
    error: dict[str, Any] | None = None
    """Sent in the stream after the deltas."""


def text(*pieces: str, finish_reason: str = "stop", **details: int) -> Reply:
    """An answer in these pieces, one token each, with ``details`` of its usage."""
    usage = {"completion_tokens": len(pieces), "completion_tokens_details": details}
    return Reply([{"content": piece} for piece in pieces], finish_reason, usage)


@dataclass(slots=True)
class FakeServer:
    """Records requests; answers none before ``waits_for`` requests are in flight."""

    reply: Callable[[Body], Reply]
    waits_for: int = 1
    keep_alive: bool = True
    bodies: list[Body] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    """``Authorization`` headers of the requests."""
    in_flight: int = 0
    most_in_flight: int = 0
    passes: int = 0
    url: str = ""
    _enough: asyncio.Event = field(default_factory=asyncio.Event)

    def app(self) -> FastAPI:
        app = FastAPI()
        app.get("/v1/models")(lambda: {"object": "list", "data": [{"id": "fake"}]})
        app.get("/metrics")(self._metrics)
        app.post("/v1/chat/completions")(self._complete)
        return app

    def _metrics(self) -> Response:
        return Response(
            "# TYPE leapjson_forward_passes_total counter\n"
            f"leapjson_forward_passes_total {self.passes}\n",
            media_type="text/plain; version=0.0.4",
        )

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if key := request.headers.get("authorization"):
            self.keys.add(key)
        reply = self.reply(body)
        headers = {} if self.keep_alive else {"connection": "close"}
        if reply.status != 200:
            content = json.dumps({"error": {"message": "no"}})
            return Response(content, reply.status, headers)
        return StreamingResponse(
            self._stream(reply), media_type="text/event-stream", headers=headers
        )

    async def _stream(self, reply: Reply) -> AsyncIterator[str]:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        if self.in_flight >= self.waits_for:
            self._enough.set()
        await self._enough.wait()
        try:
            yield _chunk({"delta": {"role": "assistant", "content": ""}})
            for delta in reply.deltas:
                self.passes += 1
                await asyncio.sleep(0)
                yield _chunk({"delta": delta})
            if reply.error is not None:
                yield f"data: {json.dumps({'error': reply.error})}\n\n"
            if reply.finish_reason is not None:
                yield _chunk({"delta": {}, "finish_reason": reply.finish_reason})
            if reply.usage is not None:
                yield f"data: {json.dumps({'choices': [], 'usage': reply.usage})}\n\n"
            yield "data: [DONE]\n\n"
        finally:
            self.in_flight -= 1


def _chunk(choice: dict[str, Any]) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, **choice}]})}\n\n"


@contextmanager
def serving(fake: FakeServer) -> Iterator[FakeServer]:
    """Runs ``fake`` in its own thread during the block."""
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(fake.app(), port=port, log_level="warning", ws="none", lifespan="off")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the fake did not start"
        thread.join(0.01)
    fake.url = f"http://127.0.0.1:{port}"
    try:
        yield fake
    finally:
        server.should_exit = True
        thread.join()
