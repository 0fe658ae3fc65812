"""The manifests, as files and as built by kustomize, and their validation with schemas."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

K8S = Path(__file__).resolve().parents[2] / "k8s"
OVERLAYS = ("cpu", "smollm2", "store", "gpu", "gpus", "keda", "gateway")
KUBERNETES = ("1.35", "1.37")
"""Versions to validate for: the oldest with all our fields, the newest with schemas here."""
NEEDS_KUSTOMIZE = pytest.mark.needs("kustomize", "kubectl")
"""Marker of tests that call ``built``."""
_SCHEMAS = Path(__file__).with_name("schemas")

Object = dict[str, Any]


def documents(file: Path) -> list[Object]:
    return [each for each in yaml.safe_load_all(file.read_text(encoding="utf-8")) if each]


def kustomizations() -> list[Path]:
    return sorted(K8S.rglob("kustomization.yaml"))


def objects() -> Iterator[Object]:
    """All complete objects in the files, without patches."""
    for kustomization in kustomizations():
        for name in documents(kustomization)[0].get("resources", ()):
            file = kustomization.parent / name
            if file.is_file():
                yield from documents(file)


def literals(name: str, *kustomizations: str) -> dict[str, str]:
    """Values of the ConfigMap ``name``; later kustomizations override earlier ones."""
    values: dict[str, str] = {}
    for folder in kustomizations:
        whole = documents(K8S / folder / "kustomization.yaml")[0]
        for generator in whole.get("configMapGenerator", ()):
            if generator["name"] == name:
                values.update(each.split("=", 1) for each in generator.get("literals", ()))
    return values


def one(kind: str, name: str, some: Sequence[Object]) -> Object:
    found = [each for each in some if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, (kind, name)
    return found[0]


@cache
def built(overlay: str) -> Sequence[Object]:
    """The objects of an overlay, built by kustomize, or by kubectl if that is not installed."""
    command = ["kustomize", "build"] if shutil.which("kustomize") else ["kubectl", "kustomize"]
    done = subprocess.run(
        [*command, str(K8S / "overlays" / overlay)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def check(subject: Object) -> None:
    """Raises ``jsonschema.ValidationError`` for an invalid object, also for unknown fields."""
    schema = _SCHEMAS / f"{subject['kind'].lower()}.json"
    if schema.is_file():
        jsonschema.validate(subject, json.loads(schema.read_text(encoding="utf-8")))
        return
    for version in KUBERNETES:
        kubernetes_validate.validate(subject, version, strict=True)
