"""compose.yaml and what it mounts, without a container engine."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from app.http.middleware.auth import METRICS_PATH
from app.server.serve import FLUSH_SECONDS
from app.server.settings import Settings
from tests.image.dockerfile import read_dockerfile

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGE = read_dockerfile(REPOSITORY / "Dockerfile")
GRAFANA = REPOSITORY / "docker" / "grafana"


def read(path: str) -> Any:
    return yaml.safe_load((REPOSITORY / path).read_text(encoding="utf-8"))


COMPOSE: dict[str, Any] = read("compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVERS = ["leapjson", "leapjson-gpu"]


def mounts(service: str) -> list[tuple[str, PurePosixPath]]:
    """Source and target of each volume; a source that begins with ./ is of this repository."""
    entries = [entry.removesuffix(":ro") for entry in SERVICES[service]["volumes"]]
    return [(source, PurePosixPath(to)) for source, to in (e.rsplit(":", 1) for e in entries)]


def mounted(service: str, target: str) -> Path:
    """The file of this repository that the service finds there."""
    for source, to in mounts(service):
        if source.startswith("./") and PurePosixPath(target).is_relative_to(to):
            return REPOSITORY / source / PurePosixPath(target).relative_to(to)
    raise AssertionError(f"{service} has nothing at {target}")


@pytest.mark.parametrize("service", SERVICES)
def test_everything_that_is_mounted_exists(service: str) -> None:
    for source, _ in mounts(service):
        if source.startswith("./"):
            assert (REPOSITORY / source).exists(), source
        elif not source.startswith("${"):
            assert source in COMPOSE["volumes"]


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_open_to_this_machine_alone(service: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[service]["ports"])


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_can_write_to_its_volumes_and_tmp_alone(service: str) -> None:
    definition = SERVICES[service]
    assert definition["read_only"] is True
    assert definition["tmpfs"] == ["/tmp"]
    assert definition["cap_drop"] == ["ALL"]


def test_there_is_no_password_to_guess() -> None:
    environment = SERVICES["grafana"]["environment"]
    assert not [name for name in environment if "PASSWORD" in name]
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


@pytest.mark.parametrize("service", SERVERS)
def test_the_server_gets_settings_that_exist(service: str) -> None:
    known = {f"LEAPJSON_{name.upper()}" for name in Settings.model_fields}
    given = {name for name in SERVICES[service]["environment"] if name.startswith("LEAPJSON_")}
    assert given
    assert given <= known


@pytest.mark.parametrize("service", SERVERS)
def test_the_server_may_drain_before_it_is_killed(service: str) -> None:
    definition = SERVICES[service]
    drain = float(definition["environment"]["LEAPJSON_DRAIN_SECONDS"])
    assert float(definition["stop_grace_period"].removesuffix("s")) > drain + FLUSH_SECONDS


@pytest.mark.parametrize("service", SERVERS)
def test_the_server_keeps_the_image_s_volume(service: str) -> None:
    volumes = {PurePosixPath(volume.text) for volume in IMAGE[-1].all("VOLUME")}
    assert volumes <= {target for _, target in mounts(service)}


def test_the_gpu_service_builds_the_cuda_image_with_arguments_that_it_takes() -> None:
    given = SERVICES["leapjson-gpu"]["build"]["args"]
    taken = {name for stage in IMAGE for each in stage.all("ARG") for name in each.pairs}
    assert given == {"ACCELERATOR": "cuda"}
    assert set(given) <= taken


def test_prometheus_scrapes_what_the_server_serves() -> None:
    (job,) = read("docker/prometheus.yml")["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert job["metrics_path"] == METRICS_PATH
    assert host == "leapjson"
    assert "leapjson" in SERVICES["leapjson-gpu"]["networks"]["default"]["aliases"]
    for server in SERVERS:
        assert SERVICES[server]["environment"]["LEAPJSON_PORT"] == port
        assert SERVICES[server]["environment"]["LEAPJSON_METRICS_PUBLIC"] == "true"


def test_prometheus_reads_the_alerts_of_kubernetes(tmp_path: Path) -> None:
    (script,) = SERVICES["prometheus"]["command"]
    extract, _ = script.replace("$$", "$").split("&&")  # as compose reads it
    (rules,) = read("docker/prometheus.yml")["rule_files"]
    resource = mounted("prometheus", "/etc/prometheus/alerts.yaml")
    here = extract.replace("/etc/prometheus/alerts.yaml", str(resource))
    assert rules in here
    subprocess.run(["sh", "-c", here.replace(rules, str(tmp_path / "rules"))], check=True)
    written = yaml.safe_load((tmp_path / "rules").read_text(encoding="utf-8"))
    assert written["groups"]
    assert written == yaml.safe_load(resource.read_text(encoding="utf-8"))["spec"]


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    (source,) = read("docker/grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    (provider,) = read("docker/grafana/provisioning/dashboards/files.yaml")["providers"]
    assert source["url"] == "http://prometheus:9090"
    folder = mounted("grafana", provider["options"]["path"])
    assert folder == GRAFANA / "dashboards"
    assert list(folder.glob("*.json"))
    scraped = read("docker/prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped
