"""Queries of the dashboard and of the alerts, and their checks against ``/metrics``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "docker" / "grafana" / "dashboards" / "leapjson.json"
ALERTS = ROOT / "k8s" / "base" / "alerts.yaml"

SCRAPED = frozenset({"job", "instance"})
"""Labels that Prometheus adds to scraped metrics."""
_WORDS = frozenset({"and", "or", "unless", "bool", "offset"})
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_NAME = re.compile(r"[a-zA-Z_:][\w:]*")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Selector:
    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator and value."""


def dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return content


def rules() -> list[dict[str, Any]]:
    content = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    return [rule for group in content["spec"]["groups"] for rule in group["rules"]]


def dashboard_queries() -> list[str]:
    return [
        target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())
    ]


def alert_queries() -> list[str]:
    return [rule["expr"] for rule in rules()]


def selectors(query: str) -> Iterator[Selector]:
    """Every metric that a PromQL query names, with its label matchers."""
    bare = _GROUPING.sub(" ", query)
    bare = re.sub(r"\[[^\]]*\]", " ", bare)  # ranges
    for match in re.finditer(rf"({_NAME.pattern})\s*(\{{[^}}]*\}}|\()?", _unquoted(bare)):
        name, rest = match[1], match[2] or ""
        if rest == "(" or name in _WORDS:
            continue
        text = bare[match.start(2) : match.end(2)] if rest else ""
        yield Selector(name, tuple(_MATCHER.findall(text)))


def grouped_by(query: str) -> set[str]:
    """Labels by which the query groups or joins."""
    return {
        label.strip() for found in _GROUPING.findall(query) for label in found.split(",") if label
    }


def _unquoted(query: str) -> str:
    """The query with its strings blanked out, of the same length."""
    return re.sub(r'"[^"]*"', lambda match: '"' + "_" * (len(match[0]) - 2) + '"', query)


class Exposition:
    """Sample names, labels and label values in a server's ``/metrics``."""

    def __init__(self, text: str) -> None:
        self.values: dict[str, dict[str, set[str]]] = {}
        self.help: dict[str, str] = {}
        """Help texts by metric name as in queries: the name of a counter ends in ``_total``."""
        for family in text_string_to_metric_families(text):
            name = family.name + ("_total" if family.type == "counter" else "")
            self.help[name] = family.documentation
            for sample in family.samples:
                labels = self.values.setdefault(sample.name, {})
                for label, value in sample.labels.items():
                    labels.setdefault(label, set()).add(value)

    def complaints(self, query: str, codes: Mapping[str, frozenset[str]]) -> list[str]:
        """Reasons why the query never matches; ``codes``: label values that occur only at times."""
        found = []
        labels: set[str] = set(SCRAPED)
        for selector in selectors(query):
            if selector.metric == "up":  # a metric of Prometheus
                continue
            known = self.values.get(selector.metric)
            if known is None:
                found.append(f"no metric {selector.metric}")
                continue
            labels |= set(known)
            found += self._bad_matchers(selector, known, codes)
        found += [f"no label {label} to group by" for label in grouped_by(query) - labels]
        return found

    def _bad_matchers(
        self,
        selector: Selector,
        known: Mapping[str, set[str]],
        codes: Mapping[str, frozenset[str]],
    ) -> Iterator[str]:
        for label, operator, value in selector.matchers:
            if label in SCRAPED:
                continue
            if label not in known:
                yield f"{selector.metric} has no label {label}"
                continue
            possible = known[label] | codes.get(label, frozenset())
            wanted = value.split("|") if operator in ("=~", "!~") else [value]
            for each in wanted:
                if not any(re.fullmatch(each, candidate) for candidate in possible):
                    yield f"{selector.metric}: {label} is never {each}"
