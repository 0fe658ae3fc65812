"""Answers that end with their client; server-sent events (HTML standard, section 9.2)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")


class ClientLeft(Exception):
    """The connection closed before the work was done; nobody reads the answer."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; if the client leaves first, ``work`` is cancelled: ``ClientLeft``.

    ``receive`` is the request's ASGI channel, with the body read already: what it says next is
    that the client has left.
    """
    task = asyncio.ensure_future(work)
    listener = asyncio.ensure_future(_until_disconnect(receive))
    try:
        await asyncio.wait({task, listener}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        await _cancel(task)
        await _cancel(listener)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(task: asyncio.Future[Any]) -> None:
    """Cancel and wait, so that what the task cleans up is clean when this returns."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # retrieved: the caller has raised it already, or nobody is left to see


class EventStream(Response):
    """Sends what ``events`` yields, each item in one write, as it comes; empty ones are left out.

    A slow client makes ``events`` wait and nobody else. ``close`` is called once in the end,
    whether the stream was read to its end, the client left or nothing was sent at all.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes],
        close: Callable[[], None],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        own = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(headers={**own, **(headers or {})})
        # The length of an empty body, which the base class has counted, is not this body's.
        del self.headers["content-length"]
        self._events = events
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with contextlib.suppress(ClientLeft):
                # Past the layers that look at the head alone: see ``app.http.edge``.
                body: Send = scope.get("state", {}).get("send_body", send)
                await while_connected(receive, self._write(send, body))
        finally:
            self._close()

    async def _write(self, send_head: Send, send_body: Send) -> None:
        await send_head(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        async for event in self._events:
            if not event:
                continue
            await send_body({"type": "http.response.body", "body": event, "more_body": True})
        await send_body({"type": "http.response.body", "body": b"", "more_body": False})
