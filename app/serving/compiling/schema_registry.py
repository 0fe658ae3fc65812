"""Schemas that were compiled ahead, by ids that follow from their content."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, replace
from functools import partial

from app.core.constraint import ConstraintSpec
from app.core.errors import ConstraintTooComplex, InvalidRequest, UnknownSchema
from app.core.lru import Lru
from app.core.specs import Choice, Grammar, JsonSchema, Regex
from app.serving.admission import Ticket
from app.serving.compiling.cache import ConstraintCache
from app.serving.compiling.schema_store import LONGEST_WAIT, SchemaStore
from app.serving.tasks import Turns, in_thread_if_large
from app.store.rows import SCHEMA

logger = logging.getLogger(__name__)

Explain = Callable[[JsonSchema, str], Awaitable[bytes]]
"""From a schema and the tenant that asks to a report as JSON; raises ``ConstraintError``."""

_PARSED = 33
"""Memory per byte of JSON text: the text itself, and at worst ``{"":{}}`` parsed by CPython."""
_KINDS = {each.kind: each for each in (JsonSchema, Regex, Choice, Grammar)}


def _id_of(key: bytes) -> str:
    """``key``: the cache key of the specification."""
    return f"schema_{hashlib.blake2b(key, digest_size=16).hexdigest()}"


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema under its id."""

    id: str
    created: int
    """When it was registered first, in seconds since the epoch."""
    name: str | None
    """What the latest registration called it."""
    spec: ConstraintSpec
    explanation: bytes
    """The report on it, as JSON; ``null`` where it is no JSON Schema."""
    nbytes: int


class SchemaRegistry:
    """Compiles schemas ahead and keeps what requests need to name them.

    Used on the event loop's thread, except for ``find`` and ``schema``: a large body is parsed,
    and the ids in it are looked up, on another one.

    Bounded by ``max_bytes`` and ``max_schemas``; the least recently used goes first. An id is a
    hash of the schema and of how its answers are written, so that it is the same on every replica
    and after a restart; what was forgotten is registered again under the same id.
    """

    def __init__(
        self,
        *,
        constraints: ConstraintCache,
        explain: Explain,
        wall_clock: Callable[[], float],
        max_bytes: int,
        max_schemas: int = 1024,
        store: SchemaStore | None = None,
    ) -> None:
        """``store``: where other replicas find what was registered here."""
        self._constraints = constraints
        self._explain = explain
        self._wall_clock = wall_clock
        self._max_bytes = max_bytes
        self._schemas: Lru[str, RegisteredSchema] = Lru(
            max_bytes, lambda schema: schema.nbytes, most=max_schemas
        )
        self._lock = threading.Lock()
        """Held while ``_schemas`` changes, always briefly."""
        # One at a time: the other compile workers are for the schemas of answers.
        self._explaining = Turns()
        self.tasks = self._explaining.tasks
        self._store = store

    async def register(
        self, spec: ConstraintSpec, name: str | None, ticket: Ticket
    ) -> RegisteredSchema:
        """Compile ``spec``, explain it and keep it under its id.

        Takes a place in the queue like an answer. Raises ``ConstraintError`` as a request with
        this schema would, ``InvalidRequest`` if it is too large to be kept, ``Unavailable`` and
        ``DeadlineExceeded``. If the call is cancelled, what a compile worker has begun goes on.
        """
        key = await in_thread_if_large(
            ticket.size, ticket.tenant, lambda: spec.cache_key().encode()
        )
        if _PARSED * len(key) > self._max_bytes:
            raise InvalidRequest(
                "the schema is too large to be registered; send it with each request",
                param="schema",
            )
        ticket.take(1)
        async with ticket.deadline().holds("the schema had not been compiled"):
            await self._constraints.get(spec, ticket.tenant, ticket.tier, size=ticket.size)
            work = partial(self._explained, key, spec, name, ticket.tenant)
            return await self._explaining.run(ticket.tenant, work)

    def find(self, schema_id: str) -> RegisteredSchema:
        """Raises ``UnknownSchema``. Counts as a use. Any thread may call it."""
        with self._lock:
            registered = self._schemas.get(schema_id)
        if registered is not None:
            return registered
        raise UnknownSchema(
            f"there is no schema {schema_id[:64]!r}; register it again with POST /v1/schemas, "
            "which returns the same id",
            schema_id,
        )

    def schema(self, schema_id: str) -> JsonSchema:
        """The schema of a request that names it by its id: see ``find``."""
        spec = self.find(schema_id).spec
        if isinstance(spec, JsonSchema):
            return spec
        raise UnknownSchema(
            f"{schema_id} is the id of a {spec.kind}, not of a JSON Schema; send the {spec.kind} "
            "itself with each request"
        )

    async def fetch(self, schema_id: str) -> bool:
        """Whether ``find`` knows the schema now; an unknown one is read from the store."""
        with self._lock:
            known = self._schemas.get(schema_id)
        if known is not None or self._store is None:
            return known is not None
        body = await self._store.find(SCHEMA, schema_id)
        if body is None:
            return False
        try:  # on a thread: it may be large
            registered = await asyncio.to_thread(self._read, schema_id, body)
        except (ValueError, TypeError, LookupError) as error:
            logger.warning("the store's row %s is corrupt: %s", schema_id, error)
            return False
        self._keep(registered)
        return True

    def _read(self, schema_id: str, body: bytes) -> RegisteredSchema:
        kind, parts, created, name, explanation = json.loads(body)
        spec = _KINDS[kind](**parts)
        key = spec.cache_key().encode()
        registered = self._registered(key, spec, created, name, explanation.encode())
        if registered.id != schema_id:
            raise ValueError(f"its content has the id {registered.id}")
        return registered

    async def _explained(
        self, key: bytes, spec: ConstraintSpec, name: str | None, tenant: str
    ) -> RegisteredSchema:
        schema_id = _id_of(key)
        with self._lock:
            known = self._schemas.get(schema_id)
        if known is not None:
            return self._keep(replace(known, name=name))
        try:
            explanation = b"null"
            if isinstance(spec, JsonSchema):
                explanation = await self._explain(spec, tenant)
        except ConstraintTooComplex as error:
            # The schema compiles, which is enough for requests; only its report is missing.
            problem = {"error": {"message": str(error), "code": error.code}}
            explanation = json.dumps(problem).encode()
        registered = self._registered(key, spec, int(self._wall_clock()), name, explanation)
        # Before the id is returned, if the store is not slow: another replica may get it next.
        if self._store is not None:
            parts = {each.name: getattr(spec, each.name) for each in fields(spec) if each.init}
            row = [spec.kind, parts, registered.created, name, explanation.decode()]
            body = (await asyncio.to_thread(json.dumps, row)).encode()
            kept = self._store.keep(SCHEMA, tenant, registered.id, body)
            await asyncio.wait([kept], timeout=LONGEST_WAIT)
        return self._keep(registered)

    def _registered(
        self, key: bytes, spec: ConstraintSpec, created: int, name: str | None, explanation: bytes
    ) -> RegisteredSchema:
        nbytes = _PARSED * len(key) + len(explanation)
        nbytes = min(nbytes, self._max_bytes)  # so that it is kept, perhaps alone
        return RegisteredSchema(_id_of(key), created, name, spec, explanation, nbytes)

    def _keep(self, registered: RegisteredSchema) -> RegisteredSchema:
        with self._lock:
            self._schemas.keep(registered.id, registered)
        return registered
