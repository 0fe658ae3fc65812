"""Work that ends when its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

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
