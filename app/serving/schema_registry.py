"""Schemas that were compiled ahead, by ids that follow from what they say."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from app.core.constraint import JsonSchema
from app.core.errors import (
    ConstraintTooComplex,
    Draining,
    InvalidRequest,
    QueueFull,
    UnknownSchema,
)
from app.core.events import RequestObserver
from app.serving.admission import Admission
from app.serving.constraints import ConstraintCache

Explain = Callable[[JsonSchema], Awaitable[bytes]]
"""From a schema to a report on it, as JSON; raises ``ConstraintError``. It may be costly."""

_PARSED = 32
"""Bytes of memory for a byte of a schema's JSON, once it is parsed: of ``{"":{}}`` in CPython."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema under its id."""

    id: str
    created: int
    """When it was registered first, in seconds since the epoch."""
    name: str | None
    """What the latest registration called it."""
    spec: JsonSchema
    explanation: bytes
    """The report on it, as JSON."""
    nbytes: int


class SchemaRegistry:
    """Compiles schemas ahead and keeps what requests need to name them. Event loop's thread only.

    Bounded by ``max_bytes`` and ``max_schemas``; the least recently used goes first. An id is a
    hash of the schema and of how its answers are written, so that it is the same on every replica
    and after a restart; what was forgotten is registered again under the same id.
    """

    def __init__(
        self,
        *,
        constraints: ConstraintCache,
        explain: Explain,
        admission: Admission,
        observer: RequestObserver,
        wall_clock: Callable[[], float],
        max_bytes: int,
        max_schemas: int = 1024,
    ) -> None:
        self._constraints = constraints
        self._explain = explain
        self._admission = admission
        self._observer = observer
        self._wall_clock = wall_clock
        self._max_bytes = max_bytes
        self._max_schemas = max_schemas
        self._schemas: OrderedDict[str, RegisteredSchema] = OrderedDict()
        # One at a time: the other compile workers are for the schemas of answers.
        self._explaining = asyncio.Semaphore(1)
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._schemas)

    async def register(
        self, spec: JsonSchema, name: str | None = None, *, tenant: str = ""
    ) -> RegisteredSchema:
        """Compile ``spec``, explain it and keep it under its id.

        Takes a place in the queue like an answer. Raises ``ConstraintError`` as a request with
        this schema would, ``InvalidRequest`` if it is too large to be kept, and ``Unavailable``.
        """
        key = spec.cache_key().encode()
        size = _PARSED * len(key)
        if size > self._max_bytes:
            raise InvalidRequest(
                "this schema is too large to be kept under an id; send it with each request",
                param="schema",
            )
        try:
            ticket = self._admission.admit(1, tenant)
        except (QueueFull, Draining) as error:
            self._observer.observe_rejection(error.code)
            raise
        try:
            await self._constraints.get(spec, tenant)
            return await self._explained(_id(key), spec, name, size)
        finally:
            ticket.release()

    def find(self, schema_id: str) -> RegisteredSchema:
        """Raises ``UnknownSchema``. Counts as a use."""
        if schema_id not in self._schemas:
            raise UnknownSchema(
                f"no schema is kept under the id {schema_id[:64]!r}; register it again with "
                "POST /v1/schemas, which gives it the same id"
            )
        self._schemas.move_to_end(schema_id)
        return self._schemas[schema_id]

    def schema(self, schema_id: str) -> JsonSchema:
        """The schema of a request that names it by its id. Raises ``UnknownSchema``."""
        return self.find(schema_id).spec

    async def _explained(
        self, schema_id: str, spec: JsonSchema, name: str | None, size: int
    ) -> RegisteredSchema:
        async with self._explaining:
            if schema_id in self._schemas:
                return self._keep(replace(self._schemas[schema_id], name=name))
            try:
                explanation = await self._explain(spec)
            except ConstraintTooComplex as error:
                # It compiles, which is what requests need: that there is no report is reported.
                problem = {"error": {"message": str(error), "code": error.code}}
                explanation = json.dumps(problem).encode()
            created = int(self._wall_clock())
            nbytes = size + len(explanation)
            return self._keep(RegisteredSchema(schema_id, created, name, spec, explanation, nbytes))

    def _keep(self, registered: RegisteredSchema) -> RegisteredSchema:
        known = self._schemas.pop(registered.id, None)
        self.nbytes += registered.nbytes - (known.nbytes if known else 0)
        self._schemas[registered.id] = registered
        while len(self._schemas) > 1 and (
            self.nbytes > self._max_bytes or len(self._schemas) > self._max_schemas
        ):
            _, oldest = self._schemas.popitem(last=False)
            self.nbytes -= oldest.nbytes
        return registered


def _id(key: bytes) -> str:
    return "schema_" + hashlib.blake2b(key, digest_size=16).hexdigest()
