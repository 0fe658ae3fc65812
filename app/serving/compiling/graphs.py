"""Pictures of registered schemas, and walks over them, made by the compile workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from app.core.errors import ConstraintTooComplex
from app.core.graphs import GraphOptions, GraphSpec, WalkSpec
from app.core.lru import Lru
from app.serving.admission import Ticket
from app.serving.compiling.schema_registry import RegisteredSchema
from app.serving.tasks import Turns

Draw = Callable[[GraphSpec, str], Coroutine[Any, Any, bytes]]
"""From a graph and the tenant that asks to its picture as JSON; raises ``ConstraintError``."""
Walk = Callable[[WalkSpec, str], Coroutine[Any, Any, bytes]]
"""The same for a walk; raises ``RequestError``."""

_Key = tuple[str, GraphOptions]


class Graphs:
    """Draws the graphs of schemas and walks over them. Event loop's thread only.

    Pictures are kept by last use, up to ``max_bytes``. One job runs at a time, so that the
    other compile workers are left to the schemas of answers; tenants take turns.
    """

    def __init__(self, *, draw: Draw, walk: Walk, max_bytes: int = 16 << 20) -> None:
        self._draw = draw
        self._walk = walk
        self._pictures: Lru[_Key, bytes] = Lru(max_bytes, len)
        self._turns = Turns()
        self.tasks = self._turns.tasks

    async def picture(
        self, registered: RegisteredSchema, options: GraphOptions, ticket: Ticket
    ) -> bytes:
        """The picture as JSON; where none can be drawn, ``error`` with the reason.

        Raises ``Unavailable`` and ``DeadlineExceeded``.
        """
        key = registered.id, options
        known = self._pictures.get(key)
        if known is not None:
            return known
        asked = GraphSpec(registered.spec, options)
        async with ticket.deadline().holds("the graph had not been drawn"):
            try:
                picture = await self._turns.run(
                    ticket.tenant, partial(self._draw, asked, ticket.tenant)
                )
            except ConstraintTooComplex as error:
                # The schema can be used: the reason why there is no picture stands in its place.
                problem = {"error": {"message": str(error), "code": error.code}}
                picture = json.dumps(problem).encode()
        self._pictures.keep(key, picture)
        return picture

    async def walk(
        self,
        registered: RegisteredSchema,
        options: GraphOptions,
        text: str,
        state: str | None,
        ticket: Ticket,
    ) -> bytes:
        """The walk of ``text`` over a picture, as JSON; on from ``state`` where that is given.

        Raises ``RequestError``, ``Unavailable`` and ``DeadlineExceeded``.
        """
        asked = WalkSpec(GraphSpec(registered.spec, options), text, state)
        async with ticket.deadline().holds("the text had not been checked"):
            return await self._turns.run(ticket.tenant, partial(self._walk, asked, ticket.tenant))
