"""The manifests are valid by the schemas of Kubernetes and of the other projects."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from tests.k8s.manifests import (
    NEEDS_KUSTOMIZE,
    OVERLAYS,
    built,
    check,
    objects,
    one,
)


@NEEDS_KUSTOMIZE
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_an_overlay_builds_is_valid(overlay: str) -> None:
    some = built(overlay)
    for each in some:
        check(each)
    assert {"Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"} <= {
        each["kind"] for each in some
    }


@NEEDS_KUSTOMIZE
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_objects_of_an_overlay_are_in_one_namespace(overlay: str) -> None:
    for each in built(overlay):
        if each["kind"] != "Namespace":
            assert each["metadata"]["namespace"] == "leapjson", each["metadata"]
        for subject in each.get("subjects", ()):
            assert subject["namespace"] == "leapjson"


@NEEDS_KUSTOMIZE
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_image_is_left_without_a_tag(overlay: str) -> None:
    for each in built(overlay):
        pod = each["spec"].get("template", {}).get("spec") if "spec" in each else None
        for container in [*pod.get("initContainers", ()), *pod["containers"]] if pod else ():
            assert ":" in container["image"], container["name"]


def test_every_whole_object_is_valid_without_kustomize() -> None:
    some = list(objects())
    assert len(some) >= 18
    for each in some:
        check(each)


@pytest.mark.parametrize(
    ("kind", "name", "spoil"),
    [
        ("HorizontalPodAutoscaler", "leapjson", lambda spec: spec.pop("maxReplicas")),
        ("ScaledObject", "leapjson", lambda spec: spec.update(pollInterval=15)),
        ("InferencePool", "leapjson", lambda spec: spec["endpointPickerRef"].pop("port")),
        ("ServiceMonitor", "leapjson", lambda spec: spec["endpoints"][0].update(interval="10")),
        ("HTTPRoute", "leapjson", lambda spec: spec["rules"][0]["timeouts"].update(request="0")),
    ],
)
def test_the_schemas_refuse_a_mistake(kind: str, name: str, spoil: Any) -> None:
    subject = one(kind, name, list(objects()))
    spoil(subject["spec"])
    with pytest.raises(jsonschema.ValidationError):
        check(subject)
