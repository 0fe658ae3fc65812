"""Counts of requests and tokens by API key and day, kept in the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from app.core.errors import LeapjsonError
from app.core.events import RequestStats
from app.serving.tasks import Tasks
from app.store.rows import COUNTS
from app.store.store import Store

_FLUSH_SECONDS = 10.0
"""Interval between writes; a killed process loses the counts since the last one."""


class UsageByKey:
    """Counts requests and tokens by API key and day. Event loop's thread only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[tuple[str, str], Counter[str]] = {}
        """Counts since the last write, by owner and UTC day."""
        self._writing = asyncio.Lock()
        self._writes = Tasks()
        self._timer = Tasks()

    def start(self) -> None:
        async def flush_often() -> None:
            while True:
                await asyncio.sleep(_FLUSH_SECONDS)
                with contextlib.suppress(LeapjsonError):  # they stay for the next time
                    await self._flush()

        self._timer.start(flush_often())

    async def close(self) -> None:
        await self._timer.close()
        with contextlib.suppress(LeapjsonError):
            await self._flush()

    def observe(self, stats: RequestStats) -> None:
        """Count a request that got to the engine."""
        if stats.usage.prompt_tokens:
            counts = {name: getattr(stats.usage, name) for name in COUNTS[1:]}
            key = stats.owner, f"{datetime.now(UTC):%Y-%m-%d}"
            self._counts.setdefault(key, Counter()).update(counts, requests=1)

    async def find(self, owner: str, first: str, last: str) -> Sequence[Mapping[str, Any]]:
        """Counts by day, of all requests that have ended. Raises ``StoreUnavailable``."""
        await self._flush()
        return await self._store.run(self._store.state.find_usage, owner, first, last)

    async def _flush(self) -> None:
        # Shielded: a write goes on in its thread, so a cancelled one would be repeated.
        await asyncio.shield(self._writes.start(self._write()))

    async def _write(self) -> None:
        async with self._writing:
            counts, self._counts = self._counts, {}
            if not counts:
                return
            rows = [
                {"owner": key[0], "day": key[1], **{name: each[name] for name in COUNTS}}
                for key, each in counts.items()
            ]
            try:
                await self._store.run(self._store.state.add_usage, rows)
            except Exception:
                for key, each in counts.items():
                    self._counts.setdefault(key, Counter()).update(each)
                raise
