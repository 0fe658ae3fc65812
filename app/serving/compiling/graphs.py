"""Pictures of registered schemas, made by the compile workers and kept by last use."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from app.core.errors import ConstraintTooComplex
from app.core.graphs import GraphOptions, GraphSpec
from app.serving.admission import Ticket
from app.serving.compiling.schema_registry import RegisteredSchema

Draw = Callable[[GraphSpec, str], Awaitable[bytes]]
"""From a graph and the tenant that asks to its picture as JSON; raises ``ConstraintError``."""

_Key = tuple[str, GraphOptions]


class Graphs:
    """Draws the graphs of schemas. Event loop's thread only; bounded by ``max_bytes``."""

    def __init__(self, *, draw: Draw, max_bytes: int = 16 << 20) -> None:
        self._draw = draw
        self._max_bytes = max_bytes
        self._pictures: OrderedDict[_Key, bytes] = OrderedDict()
        # One at a time: the other compile workers are for the schemas of answers.
        self._drawing = asyncio.Semaphore(1)
        self._running: set[asyncio.Task[bytes]] = set()
        self.nbytes = 0

    async def picture(
        self, registered: RegisteredSchema, options: GraphOptions, ticket: Ticket
    ) -> bytes:
        """The picture as JSON; where none can be drawn, ``error`` says why.

        Raises ``Unavailable`` and ``DeadlineExceeded``.
        """
        key = registered.id, options
        known = self._pictures.get(key)
        if known is not None:
            self._pictures.move_to_end(key)
            return known
        async with ticket.deadline().holds("the graph was not drawn"):
            await self._drawing.acquire()
            # Shielded: a cancelled job costs a worker that all share.
            task = asyncio.create_task(self._drawn(key, registered, ticket.tenant))
            self._running.add(task)
            task.add_done_callback(self._ended)
            return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel the drawing that still runs."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _drawn(self, key: _Key, registered: RegisteredSchema, tenant: str) -> bytes:
        try:
            picture = await self._draw(GraphSpec(registered.spec, key[1]), tenant)
        except ConstraintTooComplex as error:
            # The schema can be used: that there is no picture is told in its place.
            problem = {"error": {"message": str(error), "code": error.code}}
            picture = json.dumps(problem).encode()
        self._keep(key, picture)
        return picture

    def _keep(self, key: _Key, picture: bytes) -> None:
        self.nbytes += len(picture) - len(self._pictures.pop(key, b""))
        self._pictures[key] = picture
        while self.nbytes > self._max_bytes:
            _, oldest = self._pictures.popitem(last=False)
            self.nbytes -= len(oldest)

    def _ended(self, task: asyncio.Task[bytes]) -> None:
        self._running.discard(task)
        self._drawing.release()
        if not task.cancelled():
            task.exception()  # retrieved, also when the client has left
