"""The figures of the summary, compared with an oracle and with hand-computed values."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.answers import Answer, Outcome, failed
from loadtest.drive import Closed
from loadtest.measure import Cell, MeasuredRound, Results
from loadtest.requests import Request
from loadtest.server_metrics import difference, forward_passes, parse_counts
from loadtest.summary import comparisons, distribution, summarize

CELL = Cell("character", Closed(2))


def answer(
    seconds: float, tokens: int = 10, outcome: Outcome = "valid", passes: int | None = None
) -> Answer:
    return Answer("t", outcome, seconds, seconds / 2, (0.1,), tokens, forward_passes=passes)


def measured(repeat: int, seconds: float, *answers: Answer, passes: float = 0) -> MeasuredRound:
    counts = {"leapjson_forward_passes_total": passes} if passes else {}
    return MeasuredRound(repeat, answers, seconds, counts)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=50))
def test_percentiles_are_those_of_the_standard_library(values: list[float]) -> None:
    found = distribution(values)
    hundredths = statistics.quantiles(values, n=100, method="inclusive")
    assert found is not None
    assert (found.p50, found.p90, found.p95, found.p99) == pytest.approx(
        tuple(hundredths[percent - 1] for percent in (50, 90, 95, 99)), rel=1e-9, abs=1e-9
    )
    assert found.mean == pytest.approx(statistics.mean(values), rel=1e-9, abs=1e-9)


def test_nothing_has_no_distribution() -> None:
    assert distribution([]) is None


def test_rates_are_medians_over_rounds_and_times_are_over_all_answers() -> None:
    rounds = [
        measured(0, 2.0, answer(1.0), answer(1.0)),
        measured(1, 1.0, answer(0.5), answer(0.5, outcome="invalid")),
        measured(2, 4.0, answer(2.0), failed(Request("t", (), None, 8), 9.0, "gone")),
    ]
    found = summarize(CELL, "ours", rounds)
    assert found.latency is not None
    assert found.latency.p50 == 1.0
    assert found.answers_per_second == statistics.median([1.0, 2.0, 0.25])
    assert found.valid_per_second == statistics.median([1.0, 1.0, 0.25])
    assert found.tokens_per_second == statistics.median([10.0, 20.0, 2.5])
    assert {name: count for name, count in found.outcomes.items() if count} == {
        "valid": 4, "invalid": 1, "failed": 1,
    }  # fmt: skip


def test_a_count_that_is_not_reported_is_unknown_rather_than_zero() -> None:
    found = summarize(CELL, "ours", [measured(0, 1.0, answer(1.0), answer(1.0, passes=4))])
    assert found.passes_per_answer is None
    assert found.server_passes_per_answer is None
    found = summarize(CELL, "ours", [measured(0, 1.0, answer(1, passes=2), answer(1, passes=4))])
    assert found.passes_per_answer == 3


def test_the_servers_passes_are_shared_by_the_answers() -> None:
    rounds = [measured(0, 1.0, answer(1.0), answer(1.0), passes=6)]
    assert summarize(CELL, "ours", rounds).server_passes_per_answer == 3


def test_a_round_without_answers_has_rates_of_zero_and_no_times() -> None:
    found = summarize(
        CELL, "ours", [measured(0, 1.0, failed(Request("t", (), None, 8), 1.0, "gone"))]
    )
    assert (found.answers_per_second, found.latency, found.tokens_per_answer) == (0, None, None)


def test_ratios_say_how_many_times_better_than_the_baseline() -> None:
    results = Results(
        {
            (CELL, "ours"): [measured(0, 1.0, answer(1.0)), measured(1, 1.0, answer(2.0))],
            (CELL, "base"): [measured(0, 2.0, answer(4.0)), measured(1, 2.0, answer(4.0))],
        }
    )
    (found,) = comparisons(results, "base")
    assert (found.arm, found.baseline) == ("ours", "base")
    assert found.latency is not None
    assert found.latency.value == pytest.approx(4.0 / 1.5)
    assert (found.latency.low, found.latency.high) == (2.0, 4.0)
    assert found.valid_per_second is not None
    assert found.valid_per_second.value == pytest.approx(2.0)


def test_an_arm_without_answers_has_no_ratio() -> None:
    results = Results(
        {
            (CELL, "ours"): [measured(0, 1.0, failed(Request("t", (), None, 8), 1.0, "gone"))],
            (CELL, "base"): [measured(0, 2.0, answer(4.0))],
        }
    )
    (found,) = comparisons(results, "base")
    assert (found.latency, found.valid_per_second) == (None, None)


def test_counters_are_read_with_their_labels_and_buckets_are_left_out() -> None:
    page = "\n".join(
        [
            "# TYPE leapjson_tokens_total counter",
            'leapjson_tokens_total{source="leapt"} 5',
            'leapjson_tokens_total{source="sampled"} 7',
            "# TYPE leapjson_num_requests_running gauge",
            "leapjson_num_requests_running 3",
            "# TYPE vllm:iteration_tokens_total histogram",
            'vllm:iteration_tokens_total_bucket{model_name="m",le="1.0"} 4',
            'vllm:iteration_tokens_total_bucket{model_name="m",le="+Inf"} 9',
            'vllm:iteration_tokens_total_sum{model_name="m"} 30',
            'vllm:iteration_tokens_total_count{model_name="m"} 9',
            "",
        ]
    )
    counts = parse_counts(page)
    assert counts == {
        "leapjson_tokens_total{source=leapt}": 5,
        "leapjson_tokens_total{source=sampled}": 7,
        "vllm:iteration_tokens_total_sum": 30,
        "vllm:iteration_tokens_total_count": 9,
    }
    assert forward_passes(counts) == 9
    before = {"leapjson_tokens_total{source=leapt}": 4.0, "vllm:iteration_tokens_total_sum": 30.0}
    assert difference(before, counts) == {
        "leapjson_tokens_total{source=leapt}": 1,
        "leapjson_tokens_total{source=sampled}": 7,
        "vllm:iteration_tokens_total_count": 9,
    }
    assert difference({}, counts) == {}
    assert parse_counts("<html>not found") == {}
