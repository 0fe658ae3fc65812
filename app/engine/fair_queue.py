"""A fair queue: the highest class first, and within a class a queue for each tenant.

Served tokens are counted while an item of the class waits, and the next turn goes to the waiting
tenant that was served least (Sheng et al. 2024, "Fairness in Serving Large Language Models", arXiv
2401.00588, section 3: virtual token counters). A tenant that returns gets no credit for its
absence: its counter is raised to the minimum of the waiting tenants. A class that has waited for
``MOST_BEFORE`` turns of higher classes has the next one, so none starves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_IDLE = 1024
"""Maximum tenants per class that are remembered although none of their items waits."""

MOST_BEFORE = 32
"""Maximum turns of higher classes while a class waits."""


@dataclass(slots=True)
class _Line(Generic[T]):
    """The waiting items and the counter of one tenant."""

    served: int
    """Tokens served, counted since the queue of the class was last empty."""
    turn: int = -1
    """Number of its last turn; of equally served tenants, the one with the lowest is next."""
    waiting: dict[T, None] = field(default_factory=dict)
    """In order of arrival."""


@dataclass(slots=True)
class _Class(Generic[T]):
    """The waiting items of one class."""

    back: deque[T] = field(default_factory=deque)
    """Items that were taken and put back."""
    lines: dict[str, _Line[T]] = field(default_factory=dict)
    """Tenants with waiting items."""
    idle: dict[str, _Line[T]] = field(default_factory=dict)
    passed: int = 0
    """Turns of higher classes since this class has been waiting."""

    @property
    def waits(self) -> bool:
        return bool(self.back or self.lines)

    @property
    def least(self) -> int:
        """Minimum of the tokens served to the waiting tenants."""
        return min((line.served for line in self.lines.values()), default=0)

    def forget_idle(self) -> None:
        """Keep the half that was served most, if there are too many.

        A forgotten tenant starts at ``least`` when it returns, as most of these would anyway.
        """
        if len(self.idle) > MOST_IDLE:
            most = sorted(self.idle, key=lambda tenant: self.idle[tenant].served)
            for tenant in most[: len(most) // 2]:
                del self.idle[tenant]


class FairQueue(Generic[T]):
    """A queue by class, first come, first served within a tenant and fair between tenants.

    Items that were taken and put back go first in their class. All decisions follow from the
    calls alone. Memory: the waiting items, and up to ``MOST_IDLE`` more tenants of each class.
    """

    def __init__(
        self, tenant_of: Callable[[T], str], class_of: Callable[[T], int] = lambda item: 0
    ) -> None:
        """``class_of``: higher ones go first. It does not change while an item is in the queue."""
        self._tenant_of = tenant_of
        self._class_of = class_of
        self._serials: dict[T, int] = {}
        """Arrival numbers of the items in queues of tenants, ascending."""
        self._classes: dict[int, _Class[T]] = {}
        self._num_back = 0
        """Of all classes: any thread may ask for the length."""
        self._arrivals = 0
        self._turns = 0

    def __len__(self) -> int:
        return len(self._serials) + self._num_back

    def __contains__(self, item: T) -> bool:
        return item in self._serials or self.has_returned(item)

    def has_returned(self, item: T) -> bool:
        """Whether ``item`` was put back, and waits in front of its class."""
        return item in self._of(item).back

    def push(self, item: T) -> None:
        """Join the line of its tenant. Costs O(tenants) where that was empty."""
        tenant, found = self._tenant_of(item), self._of(item)
        if not found.lines:
            found.idle.clear()  # nothing was waiting: all tenants start anew
        self._serials[item] = self._arrivals
        if tenant not in found.lines:
            line = found.idle.pop(tenant, None) or _Line[T](0)
            line.served = max(line.served, found.least)
            found.lines[tenant] = line
        found.lines[tenant].waiting[item] = None
        self._arrivals += 1

    def put_back(self, item: T) -> None:
        """Wait in front of its class: ``item`` was taken, and has to be taken again."""
        self._of(item).back.appendleft(item)
        self._num_back += 1

    def next(self, passed: Collection[T] = (), *, above: int = -1) -> T | None:
        """The item whose turn it is; None if there is none. Changes nothing. Costs O(tenants).

        ``passed``: queued items to skip for now; tenants with fewer of them come first. Only
        classes above ``above`` count.
        """
        classes = self._classes
        order = sorted(
            classes, key=lambda level: (classes[level].passed >= MOST_BEFORE, level), reverse=True
        )
        for level in order:
            if level > above and (item := self._next_of(classes[level], passed)) is not None:
                return item
        return None

    def _next_of(self, found: _Class[T], passed: Collection[T]) -> T | None:
        if found.back:
            return found.back[0]
        ranked: list[tuple[int, int, int, int, T]] = []
        for line in found.lines.values():
            over = sum([item in line.waiting for item in passed])
            if over < len(line.waiting):
                first = next(item for item in line.waiting if item not in passed)
                ranked.append((over, line.served, line.turn, self._serials[first], first))
        return min(ranked)[-1] if ranked else None  # no two have one serial

    def is_overdue(self, item: T) -> bool:
        """Whether the class of ``item`` has waited for ``MOST_BEFORE`` turns, and is next."""
        return self._of(item).passed >= MOST_BEFORE

    def take(self, item: T) -> bool:
        """Remove ``item``, whose turn it is.

        Returns whether it went before higher classes because its own was overdue.
        """
        level, found = self._class_of(item), self._of(item)
        if found.back and found.back[0] is item:
            found.back.popleft()
            self._num_back -= 1
        else:
            found.lines[self._tenant_of(item)].turn = self._turns
            self._turns += 1
            self._leave(item)
        overdue, found.passed = found.passed >= MOST_BEFORE, 0
        for each, below in self._classes.items():
            if each < level:
                below.passed = below.passed + 1 if below.waits else 0
        return overdue

    def remove(self, item: T) -> None:
        """Remove ``item``, which must be in the queue, without a turn."""
        if item in self._serials:
            self._leave(item)
        else:
            self._of(item).back.remove(item)
            self._num_back -= 1

    def charge(self, tenant: str, tokens: int, level: int = 0) -> None:
        """Count ``tokens`` as served to ``tenant``; no effect while the class has no line."""
        found = self._classes.get(level)
        if found is None or not found.lines:
            return
        line = found.lines.get(tenant) or found.idle.get(tenant)
        if line is None:
            line = found.idle[tenant] = _Line(found.least)
            found.forget_idle()
        line.served += tokens

    def _of(self, item: T) -> _Class[T]:
        level = self._class_of(item)
        if level not in self._classes:
            self._classes[level] = _Class()
        return self._classes[level]

    def _leave(self, item: T) -> None:
        del self._serials[item]
        tenant, found = self._tenant_of(item), self._of(item)
        line = found.lines[tenant]
        del line.waiting[item]
        if not line.waiting:
            del found.lines[tenant]
            found.idle[tenant] = line
            found.forget_idle()
