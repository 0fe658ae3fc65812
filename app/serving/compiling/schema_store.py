"""Registered schemas and compiled programs in a store, for all replicas and after a restart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from app.core.constraint import ConstraintSpec
from app.core.errors import LeapjsonError
from app.core.request import ServiceTier
from app.serving.tasks import Tasks
from app.serving.workers.pool import WorkerPool
from app.store.rows import PROGRAM
from app.store.store import Store

logger = logging.getLogger(__name__)

COMPILE_TARGET = "app.constraint.stored:compile_and_dump"
LOAD_TARGET = "app.constraint.stored:load"
LONGEST_WAIT = 1.0
"""Seconds for the store to answer: most schemas are compiled in less."""

_MOST_ADDED = 16
"""Maximum rows that wait to be added, so that a store that hangs does not collect programs."""


class SchemaStore:
    """Stored schemas and programs by id. Errors of the store are logged and fail no request."""

    def __init__(self, store: Store, owners: Mapping[str, str], max_bytes: int) -> None:
        """``owners``: by tenant. ``max_bytes``: of each owner and kind; the rows that were used
        least recently go first."""
        self._store = store
        self._owners = owners
        self._max_bytes = max_bytes
        self.tasks = Tasks()

    async def find(self, kind: str, kept_id: str) -> bytes | None:
        """The body of a row; None where there is none, or no answer in time. Counts as a use."""
        try:
            async with asyncio.timeout(LONGEST_WAIT):
                return await self._store.run(self._store.state.find_kept, kind, kept_id)
        except (TimeoutError, LeapjsonError) as error:
            logger.warning(
                "looking up %s in the store failed: %s", kept_id, str(error) or "no answer"
            )
            return None

    def keep(self, kind: str, tenant: str, kept_id: str, body: bytes) -> asyncio.Task[None]:
        """Start to add a row, unless it is empty or has more than ``max_bytes``."""
        return self.tasks.start(self._keep(kind, tenant, kept_id, body))

    async def _keep(self, kind: str, tenant: str, kept_id: str, body: bytes) -> None:
        if not 0 < len(body) <= self._max_bytes:
            return
        if len(self.tasks) > _MOST_ADDED:
            logger.warning("the store is slow: %s is not saved", kept_id)
            return
        row = (kind, self._owners.get(tenant, ""), kept_id, body, len(body))
        try:
            await self._store.run(self._store.state.keep, *row, self._max_bytes)
        except LeapjsonError as error:
            logger.warning("saving %s in the store failed: %s", kept_id, error)


class StoredPrograms:
    """Programs from the store, else from the processes of ``pool``. Event loop's thread only."""

    def __init__(self, store: SchemaStore, pool: WorkerPool, identity: str) -> None:
        """``identity``: of the code that compiles, as in ``app.constraint.stored``."""
        self._store = store
        self._pool = pool
        self._identity = identity
        self.loaded = 0
        """Programs that were read from the store."""

    async def compile(self, spec: ConstraintSpec, tenant: str, tier: ServiceTier) -> Any:
        """The program. Raises ``ConstraintError``."""
        text = f"{self._identity}:{spec.cache_key()}"
        program_id = "program_" + hashlib.blake2b(text.encode(), digest_size=24).hexdigest()
        if (found := await self._store.find(PROGRAM, program_id)) is not None:
            try:
                program = await self._pool.run(found, tenant, tier, target=LOAD_TARGET)
                self.loaded += 1
                return program
            except LeapjsonError as error:
                logger.warning("%s in the store cannot be used: %s", program_id, error)
        program, data = await self._pool.run(spec, tenant, tier, target=COMPILE_TARGET)
        self._store.keep(PROGRAM, tenant, program_id, data)
        return program
