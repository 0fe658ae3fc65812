from __future__ import annotations

import platform
import re
from dataclasses import replace
from functools import partial

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from app.core.events import (
    AnswerUsage,
    Phase,
    RequestObserver,
    RequestStats,
    StepObserver,
    StepStats,
)
from app.telemetry.metrics import Metrics, Reading

STEP = StepStats(
    plan_seconds=0.001,
    launch_seconds=0.002,
    mask_seconds=0.003,
    sample_seconds=0.004,
    commit_seconds=0.005,
    idle_seconds=0.25,
    prompt_tokens=7,
    cached_tokens=16,
    sampled_tokens=3,
    leapt_tokens=5,
    drafted_tokens=2,
    proposed_tokens=3,
    passes_saved=4,
    skipped_tokens=6,
    batch_tokens=12,
    void_tokens=2,
    scored_tokens=3,
    running=2,
    waiting=1,
    preemptions=1,
    prefix_queries=4,
    prefix_hits=3,
    budget_closed=1,
)


def request(status: int = 200, first: float | None = 0.1) -> RequestStats:
    return RequestStats(
        endpoint="/v1/chat/completions",
        status=status,
        finish_reason="stop" if status == 200 else "error",
        owner="",
        adapter="",
        error="",
        relaxed=("pattern", ""),
        queue_seconds=0.01,
        time_to_first_token=first,
        e2e_seconds=0.5,
        inter_token_seconds=[0.1, 0.1, 0.2],
        phases=[Phase("prefill", 0.01, 0.1), Phase("decode", 0.1, 0.5)],
        choices=1,
        usage=AnswerUsage(20, 16, 9, 5, 2, 0, 3),
    )


def samples(metrics: Metrics) -> dict[str, float]:
    """The exposition as ``{"name{labels}": value}``, without the prefix and the buckets."""
    lines = metrics.render()[0].decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {
        name.removeprefix("leapjson_"): float(value)
        for name, _, value in pairs
        if "_bucket" not in name
    }


def test_a_step_counts_its_tokens_by_source() -> None:
    metrics = Metrics()
    observer: StepObserver = metrics
    observer.observe_step(STEP)
    observer.observe_step(STEP)
    values = samples(metrics)
    assert [
        values[f'tokens_total{{source="{source}"}}']
        for source in ("prompt", "cached", "sampled", "leapt", "drafted")
    ] == [14, 32, 6, 10, 4]
    assert values["draft_tokens_total"] == 6
    assert values["forward_passes_saved_total"] == 8
    assert values["tokens_skipped_total"] == 12
    assert values["void_tokens_total"] == 4
    assert values["scored_tokens_total"] == 6
    assert values["device_idle_seconds_total"] == 0.5
    assert values["forward_passes_total"] == 2
    assert values["preemptions_total"] == 2
    assert (values["prefix_cache_queries_total"], values["prefix_cache_hits_total"]) == (8, 6)
    assert values["budget_closed_total"] == 2
    assert values["step_tokens_sum"] == 24
    assert values["mask_seconds_count"] == 2
    assert round(values['step_seconds_sum{phase="commit"}'], 6) == 0.01


def test_a_request_counts_with_its_endpoint_status_and_end() -> None:
    metrics = Metrics()
    observer: RequestObserver = metrics
    observer.observe_request(request())
    observer.observe_request(request(status=400, first=None))
    metrics.observe_rejection("queue_full")
    observer.observe_compile("schema", "ok", 0.02)
    values = samples(metrics)
    labels = 'endpoint="/v1/chat/completions",finish_reason="stop",status="200"'
    assert values[f"requests_total{{{labels}}}"] == 1
    assert values["time_to_first_token_seconds_count"] == 1
    assert values["e2e_request_latency_seconds_sum"] == 0.5
    assert values["request_queue_time_seconds_count"] == 1
    assert values["inter_token_latency_seconds_count"] == 3
    assert round(values["request_prefill_seconds_sum"], 6) == 0.09
    assert round(values["request_decode_seconds_sum"], 6) == 0.4
    assert values['admission_rejections_total{reason="queue_full"}'] == 1
    assert values['schema_compile_seconds_count{kind="schema",result="ok"}'] == 1


def test_a_reading_is_taken_when_it_is_asked_for() -> None:
    metrics = Metrics()
    level = [1.0]
    metrics.watch(
        [
            Reading("num_requests_running", "Running.", lambda: level[0]),
            Reading("schema_cache_hits_total", "Hits.", lambda: 2 * level[0]),
        ]
    )
    level[0] = 3.0
    values = samples(metrics)
    assert (values["num_requests_running"], values["schema_cache_hits_total"]) == (3, 6)


def test_readings_of_one_name_are_one_family_with_a_series_for_each_label() -> None:
    metrics = Metrics()
    sizes = {"int4": 5.0, "bfloat16": 7.0}
    metrics.watch(
        [
            Reading("model_weight_bytes", "Memory.", partial(float, size), {"dtype": dtype})
            for dtype, size in sizes.items()
        ]
    )
    text = metrics.render()[0].decode()
    assert text.count("# TYPE leapjson_model_weight_bytes gauge") == 1
    found = dict(re.findall(r'leapjson_model_weight_bytes\{dtype="(.*)"\} (.*)', text))
    assert {dtype: float(size) for dtype, size in found.items()} == sizes


def test_two_instances_share_nothing() -> None:
    Metrics().observe_step(STEP)
    assert samples(Metrics())["forward_passes_total"] == 0


def test_every_metric_has_a_help_text_and_the_prefix_or_the_standard_name_of_a_process() -> None:
    metrics = Metrics()
    metrics.describe("a-model")
    text = metrics.render()[0].decode()
    helped = set(re.findall(r"^# HELP (\S+) \S", text, re.M))
    typed = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    assert helped == typed
    assert all(name.startswith(("leapjson_", "process_")) for name in typed)


def test_the_build_is_one_series_whose_labels_say_what_runs() -> None:
    metrics = Metrics()
    metrics.describe("a-model")
    (line,) = re.findall(r"^leapjson_build_info\{.*", metrics.render()[0].decode(), re.M)
    assert line.endswith(" 1.0")
    assert 'model="a-model"' in line
    assert f'python="{platform.python_version()}"' in line


def test_gaps_between_chunks_are_counted_as_prometheus_counts() -> None:
    gaps = [0.0, 0.001, 0.0011, 0.3, 120.0, 500.0]
    metrics, registry = Metrics(), CollectorRegistry()
    metrics.observe_request(replace(request(), inter_token_seconds=gaps))
    name = "leapjson_inter_token_latency_seconds"
    bounds = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
    oracle = Histogram(
        name, "Time between two chunks of a choice.", buckets=bounds, registry=registry
    )
    for gap in gaps:
        oracle.observe(gap)
    told = [line for line in metrics.render()[0].decode().splitlines() if name in line]
    assert told == generate_latest(registry).decode().splitlines()
