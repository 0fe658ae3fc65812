"""The autoscaling rules as the manifests in ``k8s/`` have them, and one that they avoid."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from loadtest.autoscale.hpa import TOLERANCE, Direction, Policy, Rule, Target

K8S = Path(__file__).resolve().parents[2] / "k8s"
HPA = K8S / "components/hpa/horizontalpodautoscaler.yaml"
KEDA = K8S / "components/keda/scaledobject.yaml"
MONITOR = K8S / "base/servicemonitor.yaml"


def hpa() -> Rule:
    """That of the HorizontalPodAutoscaler with prometheus-adapter."""
    spec = _spec(HPA)
    targets = [
        Target(
            each["pods"]["metric"]["name"], float(each["pods"]["target"]["averageValue"]), "pods"
        )
        for each in spec["metrics"]
    ]
    up, down = _directions(spec["behavior"])
    return Rule("HPA", spec["minReplicas"], spec["maxReplicas"], targets, up, down)


def keda() -> Rule:
    """That of the HorizontalPodAutoscaler which KEDA makes: it asks KEDA at every sync.

    KEDA's own polling and cooldown only switch between 0 replicas and 1, where this never is.
    """
    spec = _spec(KEDA)
    targets = [
        Target(_metric(each["metadata"]["query"]), float(each["metadata"]["threshold"]), "external")
        for each in spec["triggers"]
    ]
    config = spec["advanced"]["horizontalPodAutoscalerConfig"]
    up, down = _directions(config["behavior"])
    return Rule("KEDA", spec["minReplicaCount"], spec["maxReplicaCount"], targets, up, down)


def queue_alone(rule: Rule) -> Rule:
    """The rule without what keeps pods: its first metric and Kubernetes' own tolerance."""
    down = replace(rule.down, tolerance=TOLERANCE)
    return replace(rule, name="queue alone", targets=rule.targets[:1], down=down)


def scrape_seconds() -> int:
    interval: str = _spec(MONITOR)["endpoints"][0]["interval"]
    return int(interval.removesuffix("s"))


def _spec(file: Path) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
    return spec


def _metric(query: str) -> str:
    found = re.fullmatch(r"sum\((\w+)\{[^}]*\}\)", query)
    assert found is not None, query
    return found[1]


def _directions(behavior: Mapping[str, Any]) -> Sequence[Direction]:
    return [
        Direction(
            each["stabilizationWindowSeconds"],
            [Policy(p["type"], p["value"], p["periodSeconds"]) for p in each["policies"]],
            float(each.get("tolerance", TOLERANCE)),
        )
        for each in (behavior["scaleUp"], behavior["scaleDown"])
    ]
