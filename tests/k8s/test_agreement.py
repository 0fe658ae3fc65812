"""The manifests agree with the server: settings, paths, times, metrics, labels, weights."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.http.keys import METRICS_PATH, OPEN_PATHS
from app.server.composition import Assembly, assemble
from app.server.serve import FLUSH_SECONDS
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from tests.k8s.manifests import (
    K8S,
    NEEDS_KUSTOMIZE,
    OVERLAYS,
    Object,
    built,
    documents,
    literals,
    objects,
    one,
)
from tests.server.backend import backend
from tests.serving.fakes import FakeEngine

DOCKERFILE = (K8S.parent / "Dockerfile").read_text(encoding="utf-8")
COMPONENTS = {
    "cpu": ("base", "components/cpu"),
    "store": ("base", "components/cpu", "components/store"),
    "gpu": ("base", "components/gpu"),
    "gpus": ("base", "components/gpu", "components/gpus"),
}
PORT = 8000


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def assembly(metrics: Metrics) -> Assembly:
    return assemble(Settings(), backend(FakeEngine(lambda request: [b"x"])), metrics)


@pytest.fixture(scope="module")
def every() -> list[Object]:
    return list(objects())


def pod_of(each: Object) -> dict[str, Any]:
    pod: dict[str, Any] = each["spec"]["template"]["spec"]
    return pod


def server(some: Sequence[Object]) -> dict[str, Any]:
    container: dict[str, Any] = pod_of(one("Deployment", "leapjson", some))["containers"][0]
    return container


def test_every_variable_of_the_server_is_one_of_its_settings() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in K8S.rglob("*.yaml"))
    used = set(re.findall(r"\bLEAPJSON_[A-Z_]+\b", text))
    assert used <= {f"LEAPJSON_{name.upper()}" for name in Settings.model_fields}
    assert len(used) > 8


@pytest.mark.parametrize("folders", COMPONENTS.values(), ids=COMPONENTS)
def test_the_server_takes_the_values_that_it_is_given(
    folders: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in literals("leapjson", *folders, "components/weights").items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.metrics_public
    assert settings.port == PORT
    assert settings.served_model == literals("leapjson-weights", "components/weights")["REPOSITORY"]


def test_the_store_s_secret_is_that_of_the_docs_and_batches_bring_no_pods_up(
    every: list[Object], monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = documents(K8S / "components" / "store" / "deployment.yaml")[0]
    docs = (K8S.parent / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    for each in server([patch])["env"]:
        reference = each["valueFrom"]["secretKeyRef"]
        assert f"secret generic {reference['name']}" in docs
        assert f"--from-literal={reference['key']}=" in docs
    for name, value in literals("leapjson", *COMPONENTS["store"]).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.batch_running is not None
    metrics = one("HorizontalPodAutoscaler", "leapjson", every)["spec"]["metrics"]
    (running,) = (
        int(each["pods"]["target"]["averageValue"])
        for each in metrics
        if each["pods"]["metric"]["name"] == "leapjson_num_requests_running"
    )
    assert settings.batch_running < running


def test_probes_ask_what_they_are_for_at_paths_that_exist(
    every: list[Object], assembly: Assembly
) -> None:
    asked = {
        name: probe["httpGet"]["path"]
        for name, probe in server(every).items()
        if name.endswith("Probe")
    }
    assert set(asked.values()) <= OPEN_PATHS
    routes = set(assembly.app.openapi()["paths"])
    scraped = one("ServiceMonitor", "leapjson", every)["spec"]["endpoints"][0]["path"]
    assert {*asked.values(), scraped} <= routes
    assert scraped == METRICS_PATH
    matches = one("HTTPRoute", "leapjson", every)["spec"]["rules"][0]["matches"]
    prefixes = tuple(match["path"]["value"] for match in matches)
    assert sum(path.startswith(prefixes) for path in routes) > 5


def test_a_pod_has_time_to_drain_before_it_is_killed(every: list[Object]) -> None:
    pod = pod_of(one("Deployment", "leapjson", every))
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = float(literals("leapjson", "base")["LEAPJSON_DRAIN_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] >= pause + drain + FLUSH_SECONDS + 5
    removals = one("HorizontalPodAutoscaler", "leapjson", every)["spec"]["behavior"]["scaleDown"]
    for policy in removals["policies"]:
        assert policy["periodSeconds"] >= drain, "a pod has drained before the next is removed"


def test_every_metric_that_is_named_is_one_that_the_server_has(
    metrics: Metrics, assembly: Assembly
) -> None:
    exposition = metrics.render()[0].decode()
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", exposition, re.MULTILINE))
    known = {
        name + suffix
        for name, kind in types.items()
        for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
    }
    found: set[str] = set()
    for path in K8S.rglob("*.yaml"):
        names = re.findall(r"\bleapjson_[a-z_]+\b", path.read_text(encoding="utf-8"))
        found.update(name for name in names if not name.endswith("_"))
    assert {"leapjson_num_requests_waiting", "leapjson_kv_cache_usage_ratio"} <= found
    assert found <= known


def test_selectors_find_the_pods_and_the_service(every: list[Object]) -> None:
    labels = {
        name: one("Deployment", name, every)["spec"]["template"]["metadata"]["labels"]
        for name in ("leapjson", "leapjson-picker")
    }
    labels["leapjson-weights"] = one("Job", "leapjson-weights", every)["spec"]["template"][
        "metadata"
    ]["labels"]
    for name in ("leapjson", "leapjson-picker"):
        deployment = one("Deployment", name, every)["spec"]
        for selector in (
            deployment["selector"]["matchLabels"],
            one("Service", name, every)["spec"]["selector"],
        ):
            assert _selected(selector, labels) == {name}
    spread = pod_of(one("Deployment", "leapjson", every))["topologySpreadConstraints"]
    for selector in (
        one("PodDisruptionBudget", "leapjson", every)["spec"]["selector"]["matchLabels"],
        one("InferencePool", "leapjson", every)["spec"]["selector"]["matchLabels"],
        *(each["labelSelector"]["matchLabels"] for each in spread),
    ):
        assert _selected(selector, labels) == {"leapjson"}
    for name, pods in (
        ("leapjson", "leapjson"),
        ("leapjson-gateway", "leapjson"),
        ("leapjson-weights", "leapjson-weights"),
    ):
        policy = one("NetworkPolicy", name, every)["spec"]
        assert _selected(policy["podSelector"]["matchLabels"], labels) == {pods}
    monitored = one("ServiceMonitor", "leapjson", every)["spec"]["selector"]["matchLabels"]
    services = {
        each["metadata"]["name"]: each["metadata"]["labels"]
        for each in every
        if each["kind"] == "Service"
    }
    assert _selected(monitored, services) == {"leapjson"}


def _selected(selector: Mapping[str, str], labels: Mapping[str, Mapping[str, str]]) -> set[str]:
    return {name for name, some in labels.items() if selector.items() <= some.items()}


@NEEDS_KUSTOMIZE
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_pod_meets_the_restricted_security_standard(overlay: str) -> None:
    some = built(overlay)
    namespace = one("Namespace", "leapjson", some)["metadata"]["labels"]
    assert namespace["pod-security.kubernetes.io/enforce"] == "restricted"
    pods = [pod_of(each) for each in some if each["kind"] in ("Deployment", "Job")]
    for pod in pods:
        context = pod["securityContext"]
        assert context["runAsNonRoot"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["readOnlyRootFilesystem"] is True
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
            if container["image"].startswith("leapjson:"):
                assert f"USER {context['runAsUser']}:{context['runAsGroup']}" in DOCKERFILE


def test_the_server_waits_for_the_weights_and_finds_what_the_job_writes(tmp_path: Path) -> None:
    """Runs both programs, with a folder as the volume and a fake ``huggingface_hub``."""
    models = tmp_path / "models"
    models.mkdir()
    (tmp_path / "huggingface_hub.py").write_text(
        "import pathlib\n"
        "def snapshot_download(repository, revision, cache_dir, allow_patterns):\n"
        "    folder = pathlib.Path(cache_dir, repository, revision)\n"
        "    folder.mkdir(parents=True)\n"
        "    (folder / 'config.json').write_text(revision)\n"
        "    return str(folder)\n"
    )
    job = documents(K8S / "components/weights/job.yaml")[0]
    (download,) = pod_of(job)["containers"]
    (wait,) = pod_of(documents(K8S / "components/weights/deployment.yaml")[0])["initContainers"]

    def run(container: dict[str, Any], **variables: str) -> None:
        python, *arguments = container["command"]
        assert python == "python"
        here = [each.replace("/models", str(models)) for each in arguments]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), **variables}
        subprocess.run([sys.executable, *here], env=environment, check=True, timeout=300)

    folder = literals("leapjson", "components/weights")["LEAPJSON_MODEL"]
    config = Path(folder.replace("/models", str(models)), "config.json")
    for revision in ("first", "second"):
        run(download, REPOSITORY="some/model", REVISION=revision)
        assert config.read_text() == revision
    run(wait)
