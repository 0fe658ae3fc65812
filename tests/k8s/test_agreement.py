"""What the manifests say of the server is so: settings, ports, paths, times, metrics, labels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

from app.http.middleware.auth import METRICS_PATH, OPEN_PATHS
from app.server.composition import Assembly, assemble
from app.server.serve import FLUSH_SECONDS
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from loadtest.autoscale.rules import hpa, keda
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


def test_ports_agree(every: list[Object]) -> None:
    named = {each["name"]: each["containerPort"] for each in server(every)["ports"]}
    assert named == {"http": int(literals("leapjson", "base")["LEAPJSON_PORT"])} == {"http": PORT}
    assert f"EXPOSE {PORT}" in DOCKERFILE
    (port,) = one("Service", "leapjson", every)["spec"]["ports"]
    assert (port["name"], port["targetPort"]) == ("http", "http")
    (endpoint,) = one("ServiceMonitor", "leapjson", every)["spec"]["endpoints"]
    assert endpoint["port"] == port["name"]
    pool = one("InferencePool", "leapjson", every)["spec"]
    assert pool["targetPorts"] == [{"number": PORT}]
    for name in ("leapjson", "leapjson-gateway"):
        for rule in one("NetworkPolicy", name, every)["spec"]["ingress"]:
            assert rule["ports"] == [{"port": PORT}]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert server(every)[probe]["httpGet"]["port"] == "http"


def test_probes_ask_what_they_are_for_at_paths_that_exist(
    every: list[Object], assembly: Assembly
) -> None:
    asked = {
        name: probe["httpGet"]["path"]
        for name, probe in server(every).items()
        if name.endswith("Probe")
    }
    # A drain fails /ready and not /health: it must not restart the pod.
    assert asked == {
        "startupProbe": "/health",
        "readinessProbe": "/ready",
        "livenessProbe": "/health",
    }
    assert set(asked.values()) <= OPEN_PATHS
    routes = set(assembly.app.openapi()["paths"])
    scraped = one("ServiceMonitor", "leapjson", every)["spec"]["endpoints"][0]["path"]
    assert {*asked.values(), scraped} <= routes
    assert scraped == METRICS_PATH
    matches = one("HTTPRoute", "leapjson", every)["spec"]["rules"][0]["matches"]
    prefixes = tuple(match["path"]["value"] for match in matches)
    assert sum(path.startswith(prefixes) for path in routes) > 5


def test_a_pod_with_several_gpus_uses_them_all_and_has_shared_memory() -> None:
    (patch,) = documents(K8S / "components/gpus/deployment.yaml")
    pod = pod_of(patch)
    (container,) = pod["containers"]
    ranks = literals("leapjson", "components/gpus")["LEAPJSON_TENSOR_PARALLEL"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == ranks
    assert container["resources"]["requests"]["nvidia.com/gpu"] == ranks
    (mount,) = container["volumeMounts"]
    (volume,) = pod["volumes"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/dev/shm")
    assert volume["emptyDir"]["medium"] == "Memory"


def test_a_pod_has_time_to_drain_before_it_is_killed(every: list[Object]) -> None:
    pod = pod_of(one("Deployment", "leapjson", every))
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = float(literals("leapjson", "base")["LEAPJSON_DRAIN_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] >= pause + drain + FLUSH_SECONDS + 5
    removals = one("HorizontalPodAutoscaler", "leapjson", every)["spec"]["behavior"]["scaleDown"]
    for policy in removals["policies"]:
        assert policy["periodSeconds"] >= drain, "the next pod goes when the last one is gone"


@NEEDS_KUSTOMIZE
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_rollout_waits_as_long_as_a_pod_may_take_to_start(overlay: str) -> None:
    deployment = one("Deployment", "leapjson", built(overlay))
    probe = pod_of(deployment)["containers"][0]["startupProbe"]
    allowed = probe["periodSeconds"] * probe["failureThreshold"]
    assert deployment["spec"]["progressDeadlineSeconds"] > allowed
    assert allowed >= (1800 if overlay in ("gpu", "gpus", "gateway") else 300)


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


def test_alerts_ask_for_the_job_that_the_scrapes_are_named_after(every: list[Object]) -> None:
    monitor = one("ServiceMonitor", "leapjson", every)["spec"]
    assert "jobLabel" not in monitor, "the job is then the Service's name"
    rules = (K8S / "base/alerts.yaml").read_text(encoding="utf-8")
    jobs = set(re.findall(r'job="([^"]*)"', rules))
    assert jobs == {one("Service", "leapjson", every)["metadata"]["name"]}


def test_the_adapter_serves_the_metrics_that_the_autoscaler_asks_for() -> None:
    values = documents(K8S / "components/hpa/prometheus-adapter-values.yaml")[0]
    (rule,) = values["rules"]["custom"]
    pattern = re.search(r'__name__=~"([^"]+)"', rule["seriesQuery"])
    assert pattern is not None
    for target in hpa().targets:
        assert re.fullmatch(pattern[1], target.metric)


def test_keda_scales_as_the_autoscaler_does() -> None:
    ours, theirs = hpa(), keda()
    assert [(each.metric, each.average) for each in ours.targets] == [
        (each.metric, each.average) for each in theirs.targets
    ]
    assert (ours.least, ours.most, ours.up, ours.down) == (
        theirs.least, theirs.most, theirs.up, theirs.down,
    )  # fmt: skip
    assert theirs.least >= 1, "at 0 replicas nobody measures a queue"


@NEEDS_KUSTOMIZE
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_thresholds_are_shares_of_the_answers_that_run_at_a_time(overlay: str) -> None:
    some = built(overlay)
    running = next(
        int(each["data"]["LEAPJSON_MAX_RUNNING"])
        for each in some
        if each["kind"] == "ConfigMap" and "LEAPJSON_MAX_RUNNING" in each["data"]
    )
    if overlay == "keda":
        triggers = one("ScaledObject", "leapjson", some)["spec"]["triggers"]
        found = [float(each["metadata"]["threshold"]) for each in triggers]
    else:
        targets = one("HorizontalPodAutoscaler", "leapjson", some)["spec"]["metrics"]
        found = [float(each["pods"]["target"]["averageValue"]) for each in targets]
    assert found == [running / 4, running * 3 / 4]


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


def test_the_picker_reads_our_metrics_and_is_where_the_pool_asks(every: list[Object]) -> None:
    file = K8S / "components/gateway/picker-config.yaml"
    plugins = {each["type"]: each.get("parameters", {}) for each in documents(file)[0]["plugins"]}
    parameters = plugins["core-metrics-extractor"]
    (engine,) = parameters["engineConfigs"]
    assert engine == {
        "name": parameters["defaultEngine"],
        "queuedRequestsSpec": "leapjson_num_requests_waiting",
        "runningRequestsSpec": "leapjson_num_requests_running",
        "kvUsageSpec": "leapjson_kv_cache_usage_ratio",
    }
    assert plugins["metrics-data-source"]["path"] == METRICS_PATH
    pool = one("InferencePool", "leapjson", every)
    picker = pod_of(one("Deployment", "leapjson-picker", every))["containers"][0]
    assert f"--pool-name={pool['metadata']['name']}" in picker["args"]
    reference = pool["spec"]["endpointPickerRef"]
    (port,) = one("Service", reference["name"], every)["spec"]["ports"]
    assert port["port"] == reference["port"]["number"]
    ports = {each["name"]: each["containerPort"] for each in picker["ports"]}
    assert f"--grpc-port={ports[port['targetPort']]}" in picker["args"]
    route = one("HTTPRoute", "leapjson", every)["spec"]["rules"][0]
    assert [each["name"] for each in route["backendRefs"]] == [pool["metadata"]["name"]]
    role = one("Role", "leapjson-picker", every)
    assert any("inferencepools" in rule["resources"] for rule in role["rules"])
    binding = one("RoleBinding", "leapjson-picker", every)
    accounts = [subject["name"] for subject in binding["subjects"]]
    deployment = one("Deployment", "leapjson-picker", every)
    assert accounts == [pod_of(deployment)["serviceAccountName"]]


def test_keys_are_read_where_the_secret_is_mounted(every: list[Object]) -> None:
    mounts = {each["name"]: each for each in server(every)["volumeMounts"]}
    volumes = {
        each["name"]: each for each in pod_of(one("Deployment", "leapjson", every))["volumes"]
    }
    file = literals("leapjson", "base")["LEAPJSON_API_KEYS_FILE"]
    assert file.startswith(mounts["api-keys"]["mountPath"] + "/")
    assert mounts["api-keys"]["readOnly"]
    assert "optional" not in volumes["api-keys"]["secret"], "without it the server is open"


def test_what_the_image_writes_to_is_writable(every: list[Object]) -> None:
    container = server(every)
    volumes = {
        each["name"]: each for each in pod_of(one("Deployment", "leapjson", every))["volumes"]
    }
    writable = {
        each["mountPath"]
        for each in container["volumeMounts"]
        if "emptyDir" in volumes[each["name"]]
    }
    environment = {each["name"]: each["value"] for each in container["env"]}
    image = dict(re.findall(r"\b(\w+)=(/cache\S*)", DOCKERFILE))
    assert {"HF_HOME", "NUMBA_CACHE_DIR", "TRITON_CACHE_DIR", "HOME"} <= set(image)
    for place in (*environment.values(), *image.values()):
        assert any(place == root or place.startswith(root + "/") for root in writable), place
    for name in environment.keys() & image.keys():
        assert environment[name] == image[name]


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


def test_a_budget_and_two_replicas_keep_one_server_through_a_nodes_drain(
    every: list[Object],
) -> None:
    assert one("PodDisruptionBudget", "leapjson", every)["spec"]["maxUnavailable"] == 1
    assert hpa().least >= 2
    assert "replicas" not in one("Deployment", "leapjson", every)["spec"]


def test_the_weights_that_the_job_writes_are_those_that_the_server_reads() -> None:
    job = (K8S / "components/weights/job.yaml").read_text(encoding="utf-8")
    program = yaml.safe_load(job)["spec"]["template"]["spec"]["containers"][0]["command"][2]
    compile(program, "job", "exec")
    folder = literals("leapjson", "components/weights")["LEAPJSON_MODEL"]
    assert f'"{folder}"' in program
    patch = documents(K8S / "components/weights/deployment.yaml")[0]
    (waiting,) = pod_of(patch)["initContainers"]
    compile(waiting["command"][2], "wait", "exec")
    assert f"{folder}/config.json" in waiting["command"][2]
