"""The arithmetic of the autoscaling rule, by the algorithm that Kubernetes documents.

https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/ : for each
metric, the desired number is the number of pods times its mean over its target, rounded up; within
the tolerance, the current number. The highest counts; policies limit the change in their period.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.k8s.manifests import K8S, documents, literals

WAITING, RUNNING = "leapjson_num_requests_waiting", "leapjson_num_requests_running"


@dataclass(frozen=True, slots=True)
class Rule:
    least: int
    most: int
    targets: Mapping[str, float]
    """Target per pod, by metric."""
    behavior: Mapping[str, Any]

    def pods_for(self, pods: int, means: Mapping[str, float]) -> int:
        """The number of pods after a first decision, from ``pods`` and the means of the metrics."""
        up, down = self.behavior["scaleUp"], self.behavior["scaleDown"]
        ratios = [means[metric] / target for metric, target in self.targets.items()]
        low, high = 1 - float(down["tolerance"]), 1 + float(up.get("tolerance", 0.1))
        wanted = max(pods if low <= each <= high else math.ceil(each * pods) for each in ratios)
        if wanted > pods:
            wanted = min(wanted, max(_changed(pods, each, 1) for each in up["policies"]))
        if wanted < pods:
            wanted = max(wanted, min(_changed(pods, each, -1) for each in down["policies"]))
        return min(max(wanted, self.least), self.most)


def _changed(pods: int, policy: Mapping[str, Any], sign: int) -> int:
    value: float = policy["value"]
    share = value if policy["type"] == "Pods" else pods * value / 100
    return math.ceil(pods + sign * share)


def hpa() -> Rule:
    [whole] = documents(K8S / "components/hpa/horizontalpodautoscaler.yaml")
    spec = whole["spec"]
    metrics = [each["pods"] for each in spec["metrics"]]
    targets = {each["metric"]["name"]: float(each["target"]["averageValue"]) for each in metrics}
    return Rule(spec["minReplicas"], spec["maxReplicas"], targets, spec["behavior"])


def keda() -> Rule:
    [whole] = documents(K8S / "components/keda/scaledobject.yaml")
    spec = whole["spec"]
    targets = {}
    for each in spec["triggers"]:
        found = re.fullmatch(r"sum\((\w+)\{[^}]*\}\)", each["metadata"]["query"])
        assert found is not None
        targets[found[1]] = float(each["metadata"]["threshold"])
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    return Rule(spec["minReplicaCount"], spec["maxReplicaCount"], targets, behavior)


def test_the_targets_are_a_quarter_and_three_quarters_of_what_a_pod_runs() -> None:
    most = int(literals("leapjson", "base", "components/cpu")["LEAPJSON_MAX_RUNNING"])
    assert hpa().targets == {WAITING: most / 4, RUNNING: most * 3 / 4}


def test_the_targets_of_a_gpu_are_the_same_shares() -> None:
    most = int(literals("leapjson", "base", "components/gpu")["LEAPJSON_MAX_RUNNING"])
    [overlay] = documents(K8S / "overlays/gpu/kustomization.yaml")
    [patch] = [each for each in overlay["patches"] if "HorizontalPod" in each["target"]["kind"]]
    values = [each["value"] for each in yaml.safe_load(patch["patch"]) if "target" in each["path"]]
    assert [float(each) for each in values] == [most / 4, most * 3 / 4]


def test_keda_has_the_same_rule() -> None:
    assert keda() == hpa()


@pytest.mark.parametrize(
    ("pods", "waiting", "running", "wanted"),
    [
        (2, 4.0, 12.0, 2),  # on target
        (2, 4.4, 12.0, 2),  # within the tolerance of 0.1
        (2, 5.0, 16.0, 3),  # 2 * 5 / 4 = 2.5, and 2 * 16 / 12 = 2.7
        (2, 8.0, 16.0, 4),  # the queue needs more pods than the running requests
        (2, 400.0, 16.0, 4),  # at most double, or two more, in one period
        (5, 400.0, 16.0, 10),
        (1, 400.0, 16.0, 3),
        (12, 400.0, 16.0, 20),  # maxReplicas
        (6, 0.0, 6.0, 6),  # an empty queue alone removes no busy pod
        (6, 0.0, 2.4, 6),  # at a fifth of the target no pod is removed
        (6, 0.0, 2.3, 5),  # one pod at a time
        (2, 0.0, 0.0, 2),  # minReplicas
    ],
)
def test_pods_follow_the_higher_of_both_wishes(
    pods: int, waiting: float, running: float, wanted: int
) -> None:
    assert hpa().pods_for(pods, {WAITING: waiting, RUNNING: running}) == wanted


def test_a_pod_that_goes_leaves_no_reason_to_bring_it_back() -> None:
    """Even if three times as many answers then run on the remaining pods."""
    rule = hpa()
    for pods in range(rule.least + 1, rule.most + 1):
        for tenths in range(10 * int(rule.targets[RUNNING])):
            running = tenths / 10
            fewer = rule.pods_for(pods, {WAITING: 0.0, RUNNING: running})
            if fewer < pods:
                after = 3 * running * pods / fewer
                assert rule.pods_for(fewer, {WAITING: 0.0, RUNNING: after}) <= fewer


def test_the_next_decision_up_waits_until_the_pods_of_the_last_one_serve() -> None:
    up = hpa().behavior["scaleUp"]
    start = 46  # seconds, measured: docs/kubernetes.md
    assert all(each["periodSeconds"] >= start + 30 for each in up["policies"])
