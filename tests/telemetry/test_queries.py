"""Dashboard and alerts, checked against the metrics of a server that has answered requests."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import get_args

import pytest
import yaml

from app.core.errors import Draining, LeapjsonError, Overload
from tests.telemetry.conftest import Served
from tests.telemetry.queries import (
    ALERTS,
    ROOT,
    Exposition,
    Selector,
    alert_queries,
    dashboard,
    dashboard_queries,
    rules,
    selectors,
)

OPERATIONS = ROOT / "docs" / "operations.md"
CASES = Path(__file__).with_name("alerts_test.yaml")


def codes_of(kind: type[LeapjsonError]) -> Iterator[str]:
    """The codes of an error class and of its subclasses."""
    code = getattr(kind, "code", None)
    if isinstance(code, str):
        yield code
    for each in kind.__subclasses__():
        yield from codes_of(each)


ERROR_CODES = frozenset(codes_of(LeapjsonError))
SOMETIMES = {
    "status": frozenset({"500", "503", "504"}),
    "result": ERROR_CODES | {"ok", "error"},
    "reason": ERROR_CODES | {"queue_full", "draining"},
}
"""Label values that are valid, but need not occur in the test."""


@pytest.fixture(scope="module")
def exposition(answered: Served) -> Exposition:
    return Exposition(answered.metrics())


@pytest.mark.parametrize("query", [*dashboard_queries(), *alert_queries()])
def test_every_query_names_metrics_and_labels_that_the_server_has(
    query: str, exposition: Exposition
) -> None:
    assert list(selectors(query))
    assert exposition.complaints(query, SOMETIMES) == []


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("rate(leapjson_request_total[5m])", "no metric leapjson_request_total"),
        ("leapjson_step_seconds", "no metric leapjson_step_seconds"),
        ('leapjson_step_seconds_sum{phase="plans"}', "phase is never plans"),
        ('leapjson_tokens_total{source=~"leapt|lept"}', "source is never lept"),
        ('leapjson_engine_up{phase="plan"}', "has no label phase"),
        ("sum by (phases) (leapjson_step_seconds_sum)", "no label phases to group by"),
    ],
)
def test_a_query_that_finds_nothing_is_noticed(
    query: str, complaint: str, exposition: Exposition
) -> None:
    (found,) = exposition.complaints(query, SOMETIMES)
    assert complaint in found


def test_selectors_are_read_from_among_functions_words_and_strings() -> None:
    query = 'sum by (le) (rate(a_b{c=~"d(e|f)", g!="h"}[5m])) > 0.5 and on (x) topk(3, i:j) or k'
    assert list(selectors(query)) == [
        Selector("a_b", (("c", "=~", "d(e|f)"), ("g", "!=", "h"))),
        Selector("i:j", ()),
        Selector("k", ()),
    ]


def test_every_counter_and_histogram_of_the_server_is_on_the_dashboard(
    exposition: Exposition,
) -> None:
    asked = {
        re.sub(r"_(bucket|sum|count)$", "", selector.metric)
        for query in dashboard_queries()
        for selector in selectors(query)
    }
    unimportant = {"process_virtual_memory_bytes", "process_start_time_seconds"}
    assert set(exposition.help) - asked == unimportant


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        for at in (panel["gridPos"] for panel in panels)
    ]
    assert all(x < 24 for x, _ in set[tuple[int, int]]().union(*cells))
    assert all(a.isdisjoint(b) for a, b in combinations(cells, 2))


def test_the_dashboard_asks_the_data_source_that_is_chosen_and_the_provisioned_one_at_first() -> (
    None
):
    content = dashboard()
    source, instance = content["templating"]["list"]
    assert (source["name"], source["current"]["value"]) == ("datasource", "prometheus")
    assert instance["name"] == "instance"
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    asked = [panel for panel in content["panels"] if panel["type"] != "row"]
    assert all(panel["datasource"] == chosen for panel in asked)
    assert all(target["datasource"] == chosen for each in asked for target in each["targets"])
    variables = set(re.findall(r"\$\{?(\w+)", "".join(dashboard_queries())))
    assert variables == {"instance", "__rate_interval"}


def test_every_alert_says_what_is_wrong_and_has_a_section_that_says_what_to_do() -> None:
    headings = re.findall(r"^#+ (.+)$", OPERATIONS.read_text(encoding="utf-8"), re.M)
    anchors = {re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in headings}
    for rule in rules():
        notes = rule["annotations"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert notes["summary"]
        assert notes["description"] != notes["summary"]
        file, _, anchor = notes["runbook_url"].partition("#")
        assert (ROOT / file) == OPERATIONS
        assert anchor == rule["alert"].lower()
        assert anchor in anchors


def plain_rules(folder: Path) -> Path:
    """The rules as a file for Prometheus, cut out of the PrometheusRule as in compose.yaml."""
    _, _, groups = ALERTS.read_text(encoding="utf-8").partition("\nspec:\n")
    lines = [line.removeprefix("  ") for line in groups.splitlines()]
    file = folder / "rules.yaml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_the_rules_are_the_same_for_kubernetes_and_for_prometheus_alone(tmp_path: Path) -> None:
    alone = yaml.safe_load(plain_rules(tmp_path).read_text(encoding="utf-8"))
    assert alone == yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["spec"]


def test_every_alert_is_tried_both_ways() -> None:
    tried = yaml.safe_load(CASES.read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tried for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == names
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == names


@pytest.mark.needs("promtool")  # Debian: prometheus
def test_prometheus_takes_the_rules_and_they_fire_when_they_should_and_not_otherwise(
    tmp_path: Path,
) -> None:
    plain = plain_rules(tmp_path)
    shutil.copy(CASES, tmp_path)
    for command in (["check", "rules", plain.name], ["test", "rules", CASES.name]):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def documented(section: str) -> set[str]:
    """The names in the first column of a section's table."""
    _, _, rest = OPERATIONS.read_text(encoding="utf-8").partition(f"\n## {section}\n")
    table, _, _ = rest.partition("\n## ")
    rows = re.findall(r"^\| (`.*?) \|", table, re.M)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_page_for_operators_has_every_metric_and_no_other(exposition: Exposition) -> None:
    assert documented("Metrics") == set(exposition.help)


def test_the_page_for_operators_has_every_reason_of_a_refusal_and_no_other() -> None:
    assert documented("Refusals") == {*get_args(Overload), Draining.code}


def test_the_page_for_operators_has_every_field_of_a_requests_line(answered: Served) -> None:
    lines = [line for line in answered.log_lines() if line["logger"] == "leapjson.access"]
    seen = {field for line in lines for field in line} - {"time", "level", "logger", "message"}
    only_at_times = {"trace_id", "span_id", "adapter", "error", "content", "param"}
    assert seen - documented("Logs") == set()
    assert documented("Logs") - seen <= only_at_times
