"""What a simulated run shows: how soon it reacts, whether it flaps, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.autoscale.fleet import Service, measured
from loadtest.autoscale.hpa import Rule
from loadtest.autoscale.recording import Recording
from loadtest.autoscale.rules import scrape_seconds
from loadtest.autoscale.simulation import WAITING, Cluster, Run, phases, simulate

FACTOR = 4
"""The simulated load is that of so many recorded servers."""
PHASE = 3600
"""Seconds for which each recorded step holds."""
SCHEDULING = 5.0
"""Seconds from the decision until the process starts, its image on the node: an assumption."""
MAX_QUEUE, DRAIN = 256, 120.0
"""The server's default ``LEAPJSON_MAX_QUEUE``, and the manifests' ``LEAPJSON_DRAIN_SECONDS``."""


@dataclass(frozen=True, slots=True)
class Outcome:
    rule: Rule
    run: Run
    reactions: Sequence[int]
    """Seconds from a queue over its target until the decision for more pods, for each such queue
    that begins with no such decision under way."""
    flaps: Sequence[tuple[int, int]]
    """A decision for fewer pods, and the one for more that followed it under the same load."""


def cluster(recording: Recording, start_up: float | None = None, seed: int = 0) -> Cluster:
    """``start_up`` of a pod; by default as recorded."""
    return Cluster(
        measured(recording),
        (recording.start_up if start_up is None else start_up) + SCHEDULING,
        scrape_seconds(),
        MAX_QUEUE,
        DRAIN,
        seed,
    )


def outcome(rule: Rule, surroundings: Cluster, loads: Sequence[Sequence[int]]) -> Outcome:
    """Simulate one load after another, each a phase of steady arrivals."""
    run = simulate(rule, surroundings, [count for load in loads for count in load])
    ends, end = [], 0
    for load in loads:
        end += len(load)
        ends.append(end)
    return Outcome(rule, run, _reactions(rule, run), _flaps(run, ends))


def recorded_loads(recording: Recording) -> list[list[int]]:
    return phases(recording, FACTOR, PHASE)


def steady(recording: Recording, servers: float, seconds: int) -> list[int]:
    """The first recorded step's arrivals, as many as so many servers take with all places full."""
    rate = servers * capacity(measured(recording))
    base = phases(recording, FACTOR, seconds)[0]
    factor = rate * seconds / sum(base)
    load, due = [], 0.0
    for count in base:
        due += count * factor
        load.append(int(due))
        due -= int(due)
    return load


def capacity(service: Service) -> float:
    """Answers a second with all places full."""
    return service.finished(service.max_running)


def _reactions(rule: Rule, run: Run) -> list[int]:
    target = next(each.average for each in rule.targets if each.metric == WAITING)
    ups = {second for second, change in run.changes if change > 0}
    found, since = [], None
    for second, moment in enumerate(run.moments):
        if second in ups:
            if since is not None:
                found.append(second - since)
            since = None
        elif moment.waiting < target * moment.ready or moment.replicas == rule.most:
            since = None
        elif since is None and moment.ready == moment.replicas:
            since = second
    return found


def _flaps(run: Run, ends: Sequence[int]) -> list[tuple[int, int]]:
    found, down = [], None
    remaining = list(ends)
    for second, change in run.changes:
        while second >= remaining[0]:
            remaining.pop(0)
            down = None
        if change < 0:
            down = second
        elif down is not None:
            found.append((down, second))
            down = None
    return found
