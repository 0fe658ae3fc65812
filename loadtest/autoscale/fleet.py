"""Servers behind one Service, as a fluid: how many answers each has running and waiting."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from loadtest.autoscale.recording import Recording

STEPS = 10
"""Of the fluid, in a second: answers take longer than a tenth of one."""


@dataclass(frozen=True, slots=True)
class Service:
    """How fast a server is: an answer among ``n`` running ones takes ``alone + n * beside``."""

    alone: float
    beside: float
    max_running: int

    def finished(self, running: float) -> float:
        """Answers a second."""
        return running / (self.alone + self.beside * running)


def measured(recording: Recording) -> Service:
    """The line through two means of a recording: of its seconds with a queue and without one.

    By Little's law the time of an answer is the answers that run over those that end in a second.
    """
    means = []
    for queued in (False, True):
        some = [each for each in recording.seconds if (each.waiting > 0) == queued]
        running = sum(each.running for each in some) / len(some)
        means.append((running, running * len(some) / sum(each.finished for each in some)))
    (few, quick), (many, slow) = means
    beside = (slow - quick) / (many - few)
    return Service(quick - beside * few, beside, recording.max_running)


@dataclass(slots=True)
class Replica:
    """One server. ``inside`` counts its answers, running and waiting."""

    ready_at: float
    inside: float = 0.0
    stopped_at: float | None = None
    """When it was told to go."""

    def running(self, service: Service) -> float:
        return min(self.inside, service.max_running)

    def waiting(self, service: Service) -> float:
        return max(0.0, self.inside - service.max_running)


@dataclass(slots=True)
class Fleet:
    """``drain`` is how long a server that goes may work on; what it has left then is lost."""

    service: Service
    max_queue: int
    start_up: float
    drain: float
    rng: random.Random
    replicas: list[Replica] = field(default_factory=list)
    leaving: list[Replica] = field(default_factory=list)
    refused: int = 0
    """Over ``max_queue``: answered with 429."""
    lost: float = 0.0

    def scale(self, now: float, count: int) -> None:
        """Start servers, or tell the youngest to go."""
        while len(self.replicas) < count:
            self.replicas.append(Replica(now + self.start_up))
        while len(self.replicas) > count:
            replica = self.replicas.pop()
            replica.stopped_at = now
            self.leaving.append(replica)

    def ready(self, now: float) -> Sequence[Replica]:
        return [each for each in self.replicas if each.ready_at <= now]

    def second(self, now: float, arrivals: int) -> None:
        """The second after ``now``: each arrival goes to a server drawn at random."""
        takers = self.ready(now)
        shares = Counter(self.rng.choices(range(len(takers)), k=arrivals)) if takers else Counter()
        for number, replica in enumerate(takers):
            room = self.service.max_running + self.max_queue - replica.inside
            taken = min(shares[number], max(0, int(room)))
            self.refused += shares[number] - taken
            self._run(replica, taken)
        for replica in self.leaving:
            self._run(replica, 0)
        self._let_go(now + 1)

    def _run(self, replica: Replica, arrivals: int) -> None:
        service, inside, arriving = self.service, replica.inside, arrivals / STEPS
        for _ in range(STEPS):
            inside += arriving
            inside = max(0.0, inside - service.finished(min(inside, service.max_running)) / STEPS)
        replica.inside = inside

    def _let_go(self, now: float) -> None:
        staying = []
        for replica in self.leaving:
            assert replica.stopped_at is not None
            if now - replica.stopped_at >= self.drain:
                self.lost += replica.inside if replica.inside >= 0.5 else 0.0
            elif replica.inside >= 0.5:
                staying.append(replica)
        self.leaving = staying
