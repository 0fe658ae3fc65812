"""Compiled constraints, kept by last use and bounded by bytes; each compiled once."""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import Awaitable, Callable

from app.core.constraint import Constraint, ConstraintSpec
from app.core.errors import ConstraintError
from app.core.events import RequestObserver
from app.core.lru import GrowingLru, Lru
from app.core.request import ServiceTier
from app.serving.tasks import Tasks, in_thread_if_large


class ConstraintCache:
    """An LRU of compiled constraints in front of ``compile``. Event loop's thread only.

    Concurrent requests for one specification wait for one compilation, which goes on when a
    waiting client leaves. Failures are remembered too, for ``failure_seconds`` and at most
    ``max_failures`` of them: a schema that takes too long is not tried again for every retry.

    Constraints grow while their states are visited. An evicted one stays alive for the requests
    that use it. One that has outgrown the whole cache is compiled afresh when it is next asked for.
    """

    def __init__(
        self,
        compile: Callable[[ConstraintSpec, str, ServiceTier], Awaitable[Constraint]],
        *,
        max_bytes: int,
        observer: RequestObserver,
        clock: Callable[[], float],
        max_failures: int = 256,
        failure_seconds: float = 300.0,
    ) -> None:
        self._compile = compile
        self._observer = observer
        self._clock = clock
        self._failure_seconds = failure_seconds
        self._constraints = GrowingLru[bytes, Constraint](max_bytes, lambda each: each.nbytes)
        self._failures = Lru[bytes, tuple[ConstraintError, float]](max_failures, lambda failure: 1)
        """Errors of failed compilations, each with its expiry time."""
        self._compiling: dict[bytes, asyncio.Task[Constraint]] = {}
        self.tasks = Tasks()
        self.hits = 0
        self.misses = 0
        self.waiting = 0
        """Requests that wait for a compilation."""

    def __len__(self) -> int:
        return len(self._constraints)

    @property
    def nbytes(self) -> int:
        """As last measured."""
        return self._constraints.nbytes

    @property
    def evictions(self) -> int:
        return self._constraints.evictions

    @property
    def num_states(self) -> int:
        """States that the kept constraints have visited. Cost: the constraints."""
        return sum(each.num_states for each in self._constraints.values)

    @property
    def num_masks(self) -> int:
        """Masks that the kept constraints hold. Cost: the constraints."""
        return sum(each.num_masks for each in self._constraints.values)

    async def get(
        self,
        spec: ConstraintSpec,
        tenant: str = "",
        tier: ServiceTier = ServiceTier.DEFAULT,
        *,
        size: int = 0,
    ) -> Constraint:
        """The compiled constraint; raises ``ConstraintError`` if it cannot be compiled.

        ``compile`` is given ``tenant`` and ``tier``, so that they may take turns. ``size``: bytes
        of the request that has ``spec``.
        """

        def digest() -> bytes:
            return hashlib.blake2b(spec.cache_key().encode(), digest_size=16).digest()

        key = await in_thread_if_large(size, tenant, digest)
        if (constraint := self._constraints.get(key)) is not None:
            self.hits += 1
            return constraint
        known, expires = self._failures.get(key) or (None, 0.0)
        if known is not None and self._clock() < expires:
            self.hits += 1
            raise _fresh(known)
        task = self._compiling.get(key)
        if task is None:
            self.misses += 1
            work = self._compile_and_store(key, spec, tenant, tier)
            task = self.tasks.start(work, lambda: self._compiling.pop(key))
            self._compiling[key] = task
        else:
            self.hits += 1
        self.waiting += 1
        try:
            return await asyncio.shield(task)
        except ConstraintError as error:
            raise _fresh(error) from None
        finally:
            self.waiting -= 1

    async def _compile_and_store(
        self, key: bytes, spec: ConstraintSpec, tenant: str, tier: ServiceTier
    ) -> Constraint:
        started = self._clock()
        try:
            constraint = await self._compile(spec, tenant, tier)
        except ConstraintError as error:
            self._failures.keep(key, (_fresh(error), self._clock() + self._failure_seconds))
            self._observer.observe_compile(spec.kind, error.code, self._clock() - started)
            raise
        except Exception:
            self._observer.observe_compile(spec.kind, "error", self._clock() - started)
            raise
        self._observer.observe_compile(spec.kind, "ok", self._clock() - started)
        self._constraints.add(key, constraint)
        return constraint


def _fresh(error: ConstraintError) -> ConstraintError:
    """A copy without a traceback: one exception raised for many requests would grow."""
    return copy.copy(error).with_traceback(None)
