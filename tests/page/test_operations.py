"""Values of the operations tab, compared with prometheus_client, Prometheus and numpy."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.telemetry.metrics import Metrics, Reading
from tests.page.toolchain import PAGE
from tests.telemetry.test_metrics import STEP, request

ROOT = Path(__file__).resolve().parents[2]
START = 1_800_000_000.0
INTERVAL = 2
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, math.inf)

HOSTILE = r"""
# HELP a_total says # nothing
#TYPE a_total counter
a_total 1
a_total{} 2
  b { x = "1" , y="2",} 3.5 1395066363000
c{path="C:\\DIR\\n",error="said \"no\"\n} 5",brace="a{b=\"c\"} 7"} 1.458255915e9
d{x="é→"} +Inf
d{x="a,b=c"} -Inf
e	-3.25e-4
f{le="+Inf"} NaN
g{x=""} 0
"""
REFUSED = ("a", "a{", 'a{x="1"', 'a{x="1} 2', "a{x=1} 2", 'a{x="1" y="2"} 3', "a one", "1a 2")


def exposition(metrics: Metrics, started: float = START) -> str:
    """The text of ``/metrics`` of a server that started at ``started``."""
    text = metrics.render()[0].decode()
    return re.sub(r"(?m)^(process_start_time_seconds) .*", rf"\1 {started}", text)


def server_exposition() -> str:
    metrics = Metrics()
    metrics.describe('a "model"\\\n{x="1"} 3')
    metrics.watch([Reading("num_requests_running", "running", lambda: 3.0)])
    metrics.observe_step(STEP)
    metrics.observe_request(request())
    metrics.observe_request(request(429, first=None))
    metrics.observe_compile("schema", "ok", 0.02)
    return exposition(metrics)


def samples_of(text: str) -> list[list[Any]]:
    """Samples as prometheus_client reads them; infinities and NaN as JavaScript writes them."""

    def number(value: float) -> float | str:
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

    families = text_string_to_metric_families(text)
    return [[s.name, s.labels, number(s.value)] for family in families for s in family.samples]


def test_the_exposition_is_read_as_prometheus_client_reads_it(called: Any) -> None:
    texts = [server_exposition(), HOSTILE]
    found = called(*(["samples", text] for text in texts))
    assert len(found[0]) > 150
    for text, samples in zip(texts, found, strict=True):
        written = [[n, labels, v if isinstance(v, str) else float(v)] for n, labels, v in samples]
        assert sorted(map(json.dumps, written)) == sorted(map(json.dumps, samples_of(text)))


def test_an_invalid_exposition_is_refused_with_its_line(called: Any) -> None:
    found = called(*(["samples", f"a 1\n{text}"] for text in REFUSED), ["samples", "<html>"])
    assert all("Line 2 is not" in message for message in found[:-1])
    assert "Line 1 is not" in found[-1]


def histogram_quantile(q: float, buckets: list[tuple[float, float]]) -> float | None:
    """The function of this name as the documentation of Prometheus describes it."""
    total = buckets[-1][1]
    if total == 0:
        return None
    rank, lower, before = q * total, 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            if math.isinf(bound):
                return lower
            share = (rank - before) / (count - before) if count > before else 1.0
            return lower + (bound - lower) * share
        lower, before = bound, count
    raise AssertionError("the last bucket counts everything")


def test_quantiles_are_those_of_prometheus_and_in_the_bucket_of_the_true_one(called: Any) -> None:
    rng = np.random.default_rng(5)
    cases = [
        (q, rng.lognormal(mean, 1.5, size))
        for mean in (-6.0, -2.0, 2.5)
        for size in (1, 2, 7, 1000)
        for q in (0.5, 0.9, 0.99)
    ]
    counted = [[(b, float((values <= b).sum())) for b in BUCKETS] for _, values in cases]
    wire = [[[None if math.isinf(b) else b, n] for b, n in buckets] for buckets in counted]
    found = called(
        *(["quantile", q, buckets] for (q, _), buckets in zip(cases, wire, strict=True)),
        ["quantile", 0.5, [[b, 0] for b, _ in wire[0]]],
        ["quantile", 0.5, []],
    )
    assert found[-2:] == [None, None]
    for (q, values), buckets, each in zip(cases, counted, found, strict=False):
        assert each == pytest.approx(histogram_quantile(q, buckets))
        true = np.quantile(values, q, method="inverted_cdf")
        above = next(index for index, bound in enumerate(BUCKETS) if true <= bound)
        assert (BUCKETS[above - 1] if above else 0) <= each <= min(BUCKETS[above], BUCKETS[-2])


@dataclass
class Server:
    """The metrics of a server that can restart; ``work`` returns its true counts."""

    rng: random.Random
    metrics: Metrics
    started: float = START

    def restart(self) -> None:
        self.metrics, self.started = Metrics(), self.started + 1

    def work(self, least: int = 0) -> tuple[int, int]:
        """Do random work; returns the numbers of steps and of answers."""
        steps, answers = self.rng.randint(least, 9), self.rng.randint(0, 4)
        for _ in range(steps):
            self.metrics.observe_step(STEP)
        for _ in range(answers):
            self.metrics.observe_request(request(self.rng.choice([200, 400]), first=0.07))
        return steps, answers

    def text(self) -> str:
        return exposition(self.metrics, self.started)


def test_rates_count_what_happened_through_restarts(called: Any) -> None:
    server = Server(random.Random(2), Metrics())
    scrapes, steps, answers = [[server.text(), START, None]], [], []
    for number in range(1, 40):
        if number % 7 == 0:
            server.restart()
        # After some restarts there is so much work that no counter falls.
        done = server.work(least=9 if number % 14 == 0 else 0)
        steps.append(done[0])
        answers.append(done[1])
        scrapes.append([server.text(), START + INTERVAL * number, None])
    [told] = called(
        ["history", scrapes, ["passes", "tokens:leapt", "status:200", "status:400"], 60]
    )
    assert told["rates"]["passes"] == [None, *(each / INTERVAL for each in steps)]
    assert told["rates"]["tokens:leapt"] == [None, *(5 * each / INTERVAL for each in steps)]
    by_status = zip(told["rates"]["status:200"][1:], told["rates"]["status:400"][1:], strict=True)
    assert [sum(pair) for pair in by_status] == [each / INTERVAL for each in answers]
    assert told["rises"]["passes"] == sum(steps)
    assert [i for i, restarted in enumerate(told["restarts"]) if restarted] == [7, 14, 21, 28, 35]


def test_requests_of_probes_and_of_this_page_are_left_out(called: Any) -> None:
    metrics = Metrics()
    before = exposition(metrics)
    for endpoint in (
        "/",
        "/health",
        "/ready",
        "/metrics",
        "/docs",
        "/openapi.json",
        "/page/{file}",
    ):
        metrics.observe_request(replace(request(), endpoint=endpoint))
    for endpoint in ("/v1/chat/completions", "/v1/models/{model}", "/tokenize", "other"):
        metrics.observe_request(replace(request(), endpoint=endpoint))
    scrapes = [[before, START, None], [exposition(metrics), START + 2, None]]
    assert called(["history", scrapes, ["status:200"], 60])[0]["rises"] == {"status:200": 4}


def test_quantiles_of_the_last_seconds_forget_what_was_before(called: Any) -> None:
    metrics = Metrics()
    scrapes = [[exposition(metrics), START, None]]
    for number in range(1, 41):
        if number in (3, 20):
            slow = 0.07 if number == 3 else 7.0
            for _ in range(5):
                metrics.observe_request(request(first=slow))
        scrapes.append([exposition(metrics), START + INTERVAL * number, None])
    [told] = called(["history", scrapes, ["first:0.1"], 60])
    inside = {3: 0.075, 20: 7.5}  # midpoints of their buckets
    for point, median in enumerate(told["medians"]):
        since = max((number for number in inside if number <= point < number + 15), default=None)
        assert median == (None if since is None else pytest.approx(inside[since])), point
    assert told["overall"] == 0.1  # five values below it and five above


def test_a_missing_measurement_is_a_gap_and_never_a_line(called: Any) -> None:
    metrics = Metrics()
    metrics.watch([Reading("num_requests_running", "running", lambda: 3.0)])
    text = exposition(metrics)
    times = [(0, None), (2, None), (50, "hidden"), (52, None), (54, "away"), (80, None)]
    scrapes = [[text, START + after, gap] for after, gap in times]
    [told] = called(["history", scrapes, ["passes", "running"], 60])
    assert told["gaps"] == [None, None, "hidden", None, "away", "late"]
    assert told["rates"]["passes"] == [None, 0, None, 0, None, None]
    assert told["values"]["running"] == [3] * 6
    slots = [(slot["time"] - START, slot["point"]) for slot in told["slots"]]
    assert slots == [(50, 2), (52, 3), (53, None), (54, 4), (67, None), (80, 5)]


def test_the_history_is_bounded_and_survives_a_clock_set_back(called: Any) -> None:
    text = "leapjson_forward_passes_total 0\n"
    often = [[text, START + number, None] for number in range(1500)]
    seldom = [[text, START + 100 * number, None] for number in range(100)]
    back = [[text, START + after, None] for after in (0, 2, -1000, -998)]
    told = called(*(["history", scrapes, ["passes"], 900] for scrapes in (often, seldom, back)))
    assert [len(each["gaps"]) for each in told] == [900, 10, 2]
    assert told[2]["rates"]["passes"] == [None, 0]


def test_every_plotted_metric_is_one_of_the_server_and_every_line_moves(called: Any) -> None:
    source = (PAGE / "src" / "operations" / "plots.ts").read_text()
    named = set(re.findall(r"^  (leapjson_\w+): ", source, re.MULTILINE))
    documented = (ROOT / "docs" / "operations.md").read_text()
    assert len(named) == 17
    for name in named:
        assert f"| `{name.removesuffix('_bucket')}` |" in documented

    metrics, load = Metrics(), [0.0]
    names = [each for each in named if not each.endswith(("_total", "_bucket"))]
    names += [each for each in named if "schema_cache" in each and each.endswith("_total")]
    metrics.watch(
        [Reading(each.removeprefix("leapjson_"), each, lambda: load[0]) for each in names]
    )
    before = exposition(metrics)
    load[0] = 0.5
    metrics.observe_step(STEP)
    metrics.observe_request(request())
    scrapes = [[before, START, None], [exposition(metrics), START + 2, None]]
    plotted = called(["history", scrapes, ["passes"], 60])[0]["plotted"]
    assert len(plotted) == 12
    for title, lines in plotted:
        for label, now, over in lines:
            assert now, f"{title}: {label}"
            assert over, f"{title}: {label}"
    answers = {label: over for label, _, over in dict(plotted)["Answer tokens by origin"]}
    assert answers == {"sampled": 1, "drafted, held back": 2, "leapt": 5}


def test_figures_are_written_in_the_unit_that_fits_them(called: Any) -> None:
    expected = [
        *[("duration", 0, "0 s"), ("duration", 3.5e-5, "35 µs"), ("duration", 0.0123, "12 ms")],
        *[("duration", 0.25, "250 ms"), ("duration", 2.51, "2.5 s"), ("duration", 120, "120 s")],
        *[("bytes", 0, "0 B"), ("bytes", 1023, "1,023 B"), ("bytes", 1536, "1.5 KiB")],
        *[("bytes", 2**30, "1 GiB"), ("figure", 0.3333, "0.333"), ("figure", 12345.6, "12,346")],
        *[("figure", 3, "3"), ("wholePercent", 0.125, "13 %")],
    ]
    assert called(*(["written", *each[:2]] for each in expected)) == [each[2] for each in expected]


def test_polling_slows_down_while_it_fails_and_comes_back(called: Any) -> None:
    text = "a 1\nb 2\n"
    answers = [
        [200, text],
        *["no connection"] * 4,
        "silence",
        [502, "Bad gateway"],
        [200, "<html>"],
    ]
    [told] = called(["poll", [*answers, [200, text], [200, text]], ""])
    assert told["waits"] == [2, 4, 8, 16, 30, 30, 30, 30, 2, 2]
    kinds = [said if isinstance(said, int) else said["kind"] for said in told["said"]]
    assert kinds == [2, *["away"] * 7, 2, 2]
    messages = [said["message"] for said in told["said"][4:8]]
    for message, part in zip(
        messages, ("No connection", "10 seconds", "502", "Line 1"), strict=True
    ):
        assert part in message


def test_polling_reports_a_missing_key_and_opens_no_dialog(called: Any) -> None:
    refusal = [401, '{"error": {"message": "Wrong key"}}']
    without, refused = called(["poll", [refusal], ""], ["poll", [refusal, refusal], "k"])
    assert without == {
        "waits": [4], "said": [{"kind": "key", "refused": False}], "keyWanted": False,
    }  # fmt: skip
    assert refused["waits"] == [4, 8]
    assert refused["said"] == [{"kind": "key", "refused": True}] * 2
