"""A fleet, its Prometheus and its autoscaler under a load, second by second."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from loadtest.autoscale.fleet import Fleet, Replica, Service
from loadtest.autoscale.hpa import SYNC_SECONDS, Autoscaler, Rule, Target
from loadtest.autoscale.recording import Recording

WAITING, RUNNING = "leapjson_num_requests_waiting", "leapjson_num_requests_running"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What surrounds the autoscaler. Times in seconds."""

    service: Service
    start_up: float
    """From the decision until a pod takes requests."""
    scrape: int
    max_queue: int
    drain: float
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """The state at the end of a second."""

    arrivals: int
    replicas: int
    """What the autoscaler has asked for."""
    ready: int
    running: float
    waiting: float


@dataclass(slots=True)
class Run:
    moments: list[Moment] = field(default_factory=list)
    refused: int = 0
    lost: float = 0.0

    @property
    def changes(self) -> list[tuple[int, int]]:
        """Second and difference of every decision."""
        numbered = enumerate(pairwise(self.moments), start=1)
        return [
            (second, after.replicas - before.replicas)
            for second, (before, after) in numbered
            if after.replicas != before.replicas
        ]


def phases(recording: Recording, factor: int, seconds: int) -> list[list[int]]:
    """The arrivals of each recorded step, ``factor`` times as many, for so many ``seconds``.

    A second has the sum of ``factor`` recorded ones of its step, drawn evenly from all of it: the
    step's own rate and noise. Steps last longer than recorded, as a fleet needs minutes to settle.
    """
    found = []
    for step in sorted({each.step for each in recording.seconds}):
        counts = [each.arrived for each in recording.seconds if each.step == step]
        counts = counts[1:-1]  # the seconds in which the rate changed
        stride = max(1, len(counts) // factor)
        found.append(
            [
                sum(counts[(second + copy * stride) % len(counts)] for copy in range(factor))
                for second in range(seconds)
            ]
        )
    return found


def simulate(rule: Rule, cluster: Cluster, arrivals: Sequence[int]) -> Run:
    """Begin with the least replicas, ready; every second's arrivals, then scrape, then sync."""
    service = cluster.service
    fleet = Fleet(
        service, cluster.max_queue, cluster.start_up, cluster.drain, random.Random(cluster.seed)
    )
    fleet.scale(-cluster.start_up, rule.least)
    autoscaler, run = Autoscaler(rule), Run()
    scraped: dict[int, dict[str, float]] = {}
    for now, count in enumerate(arrivals):
        fleet.second(now, count)
        ready = fleet.ready(now + 1)
        if now % cluster.scrape == 0:
            serving = [*ready, *fleet.leaving]
            scraped = {id(each): _gauges(each, service) for each in serving}
        if now % SYNC_SECONDS == SYNC_SECONDS - 1:
            readings = {each.metric: _readings(each, fleet, scraped) for each in rule.targets}
            fleet.scale(now + 1, autoscaler.sync(now + 1, len(fleet.replicas), readings))
        everyone = [*ready, *fleet.leaving]
        run.moments.append(
            Moment(
                count,
                len(fleet.replicas),
                len(ready),
                sum(each.running(service) for each in everyone),
                sum(each.waiting(service) for each in everyone),
            )
        )
    run.refused, run.lost = fleet.refused, fleet.lost
    return run


def _readings(
    target: Target, fleet: Fleet, scraped: Mapping[int, Mapping[str, float]]
) -> list[float]:
    """A sum over all pods knows of those that are going; the autoscaler's own list does not."""
    pods = [*fleet.replicas, *(fleet.leaving if target.kind == "external" else ())]
    return [scraped[id(each)][target.metric] for each in pods if id(each) in scraped]


def _gauges(replica: Replica, service: Service) -> dict[str, float]:
    return {WAITING: round(replica.waiting(service)), RUNNING: round(replica.running(service))}
