"""docs/security.md is correct: its limits equal those of the code, and its tests exist."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from app.constraint.limits import Limits
from app.http.chat.parse import ChatCompletionRequest
from app.http.completions.parse import CompletionRequest
from app.http.connection import ConnectionLimits
from app.server.settings import Settings
from app.serving.compiling.cache import ConstraintCache
from app.serving.compiling.graphs import Graphs
from app.serving.compiling.schema_registry import SchemaRegistry
from app.serving.images.fetching import FetchLimits
from app.serving.workers.pool import WorkerLimits

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
CLASSES: tuple[Any, ...] = (
    ChatCompletionRequest,
    WorkerLimits,
    FetchLimits,
    CompletionRequest,
    ConnectionLimits,
    ConstraintCache,
    Graphs,
    Limits,
    SchemaRegistry,
    Settings,
)
QUOTED = re.findall(r"^\| .+ \| ([\d,.]+(?: [KM]iB)?) \| `([\w.:]+)` \|$", DOCUMENT, re.MULTILINE)
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", DOCUMENT)


def value_of(place: str) -> float:
    """A constant of a module (``module:NAME``), or a default or bound (``Class.name``)."""
    module, colon, name = place.partition(":")
    if colon:
        return float(getattr(import_module(module), name))
    owner, _, name = place.partition(".")
    kind = next(each for each in CLASSES if each.__name__ == owner)
    if kind is Settings:
        return float(Settings.model_fields[name].default)
    if issubclass(kind, BaseModel):
        return max(_bounds(kind.model_json_schema()["properties"][name]))
    if is_dataclass(kind):
        return float(next(each.default for each in fields(kind) if each.name == name))  # type: ignore[arg-type]
    return float(inspect.signature(kind).parameters[name].default)


def _bounds(schema: dict[str, Any]) -> list[float]:
    here = [schema[key] for key in ("maximum", "maxItems", "maxProperties") if key in schema]
    return here + [bound for each in schema.get("anyOf", ()) for bound in _bounds(each)]


@pytest.mark.parametrize(("quoted", "place"), QUOTED, ids=[place for _, place in QUOTED])
def test_a_limit_is_quoted_as_it_is(quoted: str, place: str) -> None:
    number, _, unit = quoted.partition(" ")
    assert float(number.replace(",", "")) * UNITS.get(unit, 1) == value_of(place)


def test_every_row_of_the_limits_was_understood() -> None:
    part = DOCUMENT.split("## Limits and their defaults")[1].split("\n## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("| ") and "set in" not in line]
    assert len(rows) == len(QUOTED)


def test_no_limit_of_the_compiler_and_of_bodies_is_left_out() -> None:
    places = {place for _, place in QUOTED}
    limits = {each.name for each in fields(Limits)} - {"missing"}  # a set of bytes, not a limit
    assert {f"Limits.{name}" for name in limits} <= places
    for name in Settings.model_fields:
        if re.fullmatch(
            r"max_(body|n$|messages|queue$|running).*|compile_.*|schema_(cache|store_|regi).*", name
        ):
            assert f"Settings.{name}" in places


@pytest.mark.wide
def test_every_test_that_is_named_exists() -> None:
    for file, test in NAMED:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        kinds = ast.FunctionDef | ast.AsyncFunctionDef
        found = {node.name for node in tree.body if isinstance(node, kinds)}
        named = test in found if test else any(name.startswith("test_") for name in found)
        assert named, f"{file} {test}"


@pytest.mark.wide
def test_every_advisory_has_its_test() -> None:
    part = DOCUMENT.split("## Advisories of the field")[1]
    rows = [line for line in part.splitlines() if re.match(r"\| (CVE|GHSA|PYSEC)-", line)]
    assert len(rows) > 30
    for row in rows:
        assert re.search(r"`tests/[\w/]+\.py", row.split(" | ")[-1]), row


@pytest.mark.wide
def test_every_advisory_that_a_test_sends_is_in_the_document() -> None:
    for file in Path(__file__).parent.glob("*.py"):
        for number in re.findall(r"(?:CVE|PYSEC)-20\d\d-\d+", file.read_text(encoding="utf-8")):
            assert number in DOCUMENT, f"{number} of {file.name}"
