"""compose.yaml and the files that it mounts, without a container engine."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from app.server.serve import FLUSH_SECONDS
from app.server.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[2]


def read(path: str) -> Any:
    return yaml.safe_load((REPOSITORY / path).read_text(encoding="utf-8"))


COMPOSE: dict[str, Any] = read("compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVERS = ["leapjson", "leapjson-gpu"]


def mounts(service: str) -> list[tuple[str, PurePosixPath]]:
    """Source and target of each volume; sources in this repository begin with ``./``."""
    entries = [entry.removesuffix(":ro") for entry in SERVICES[service]["volumes"]]
    return [(source, PurePosixPath(to)) for source, to in (e.rsplit(":", 1) for e in entries)]


def mounted(service: str, target: str) -> Path:
    """The file of this repository that the service has at ``target``."""
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


@pytest.mark.parametrize("service", SERVERS)
def test_the_server_takes_the_settings_that_it_is_given(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        name.removeprefix("LEAPJSON_").lower(): value
        for name, value in SERVICES[service]["environment"].items()
        if name.startswith("LEAPJSON_") and value is not None and "${" not in str(value)
    }
    assert given.keys() <= Settings.model_fields.keys()
    for name, value in given.items():
        monkeypatch.setenv(f"LEAPJSON_{name.upper()}", str(value))
    assert Settings().model_fields_set >= given.keys()


@pytest.mark.parametrize("service", SERVERS)
def test_the_server_may_drain_before_it_is_killed(service: str) -> None:
    definition = SERVICES[service]
    drain = float(definition["environment"]["LEAPJSON_DRAIN_SECONDS"])
    assert float(definition["stop_grace_period"].removesuffix("s")) > drain + FLUSH_SECONDS


def test_prometheus_reads_the_alerts_of_kubernetes(tmp_path: Path) -> None:
    (script,) = SERVICES["prometheus"]["command"]
    extract, _ = script.replace("$$", "$").split("&&")  # ``$$`` is Compose's escape of ``$``
    (rules,) = read("docker/prometheus.yml")["rule_files"]
    resource = mounted("prometheus", "/etc/prometheus/alerts.yaml")
    here = extract.replace("/etc/prometheus/alerts.yaml", str(resource))
    assert rules in here
    subprocess.run(["sh", "-c", here.replace(rules, str(tmp_path / "rules"))], check=True)
    written = yaml.safe_load((tmp_path / "rules").read_text(encoding="utf-8"))
    assert written["groups"]
    assert written == yaml.safe_load(resource.read_text(encoding="utf-8"))["spec"]
