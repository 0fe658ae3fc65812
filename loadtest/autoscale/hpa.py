"""The HorizontalPodAutoscaler's rule: Kubernetes' documentation and, where it is silent, its code.

https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/ : the algorithm,
its tolerance, missing metrics, several metrics, scaling policies and stabilization windows.
``pkg/controller/podautoscaler``: ``replica_calculator.go`` for pods without a metric,
``horizontal.go`` for the order of stabilization and policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

SYNC_SECONDS = 15
"""kube-controller-manager's --horizontal-pod-autoscaler-sync-period."""
TOLERANCE = 0.1
"""Its --horizontal-pod-autoscaler-tolerance, where ``behavior`` sets none."""


@dataclass(frozen=True, slots=True)
class Target:
    """A metric that is to be ``average`` for each pod.

    ``pods`` is a metric read pod by pod (prometheus-adapter), ``external`` one sum for all (KEDA).
    """

    metric: str
    average: float
    kind: Literal["pods", "external"]

    def ratio(self, values: Sequence[float], pods: int) -> float:
        """Of what is to what should be; ``values`` are those of the pods that have one."""
        if self.kind == "external":
            return sum(values) / (self.average * pods)
        if not values:
            return 1.0
        ratio = sum(values) / len(values) / self.average
        # Pods without a metric count as 0 on the way up and as the target on the way down.
        assumed = self.average * (pods - len(values)) if ratio < 1 else 0.0
        whole = (sum(values) + assumed) / pods / self.average
        return 1.0 if (ratio < 1) != (whole < 1) else whole


@dataclass(frozen=True, slots=True)
class Policy:
    kind: Literal["Pods", "Percent"]
    value: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Direction:
    """``behavior.scaleUp`` or ``behavior.scaleDown``; the policy that allows most counts."""

    window: int
    policies: Sequence[Policy]
    tolerance: float = TOLERANCE


@dataclass(frozen=True, slots=True)
class Rule:
    """What a manifest says."""

    name: str
    least: int
    most: int
    targets: Sequence[Target]
    up: Direction
    down: Direction


@dataclass(slots=True)
class Autoscaler:
    """The controller's memory of one rule: recommendations and changes, with their times."""

    rule: Rule
    _recommended: list[tuple[float, int]] = field(default_factory=list)
    _changes: list[tuple[float, int]] = field(default_factory=list)

    def sync(self, now: float, pods: int, readings: Mapping[str, Sequence[float]]) -> int:
        """The replicas to have from ``now`` on. Call every ``SYNC_SECONDS``.

        ``readings`` are the values of each target's metric, of the pods that have one.
        """
        rule = self.rule
        ratios = [each.ratio(readings[each.metric], pods) for each in rule.targets]
        wanted = max(self._wanted(ratio, pods) for ratio in ratios)
        wanted = self._stabilized(now, pods, wanted)
        wanted = min(max(wanted, rule.least), rule.most)
        if wanted > pods:
            limit = max(self._highest(now, pods, each) for each in rule.up.policies)
            wanted = max(pods, min(wanted, limit))
        elif wanted < pods:
            limit = min(self._lowest(now, pods, each) for each in rule.down.policies)
            wanted = min(pods, max(wanted, limit))
        if wanted != pods:
            self._changes.append((now, wanted - pods))
        return wanted

    def _wanted(self, ratio: float, pods: int) -> int:
        held = 1 - self.rule.down.tolerance <= ratio <= 1 + self.rule.up.tolerance
        return pods if held else math.ceil(ratio * pods)

    def _stabilized(self, now: float, pods: int, wanted: int) -> int:
        """No higher than the least wish of the window up, no lower than the most of that down."""
        self._recommended.append((now, wanted))
        up, down = self.rule.up.window, self.rule.down.window
        lowest = min(n for at, n in self._recommended if now - at <= up)
        highest = max(n for at, n in self._recommended if now - at <= down)
        self._recommended = [each for each in self._recommended if now - each[0] <= max(up, down)]
        return min(max(pods, lowest), highest)

    def _highest(self, now: float, pods: int, policy: Policy) -> int:
        start = pods - self._changed(now, policy)
        if policy.kind == "Pods":
            return start + policy.value
        return math.ceil(start * (1 + policy.value / 100))

    def _lowest(self, now: float, pods: int, policy: Policy) -> int:
        start = pods - self._changed(now, policy)
        if policy.kind == "Pods":
            return start - policy.value
        return int(start * (1 - policy.value / 100))

    def _changed(self, now: float, policy: Policy) -> int:
        return sum(change for at, change in self._changes if now - at < policy.seconds)
