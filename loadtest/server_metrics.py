"""Prometheus counters of a server, before and after a round."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

Counts = Mapping[str, float]
"""Values by sample name with labels, except ``_IGNORED_LABELS``: ``tokens_total{source=leapt}``."""

_IGNORED_LABELS = frozenset({"model_name", "engine", "pid"})
_FORWARD_PASSES = ("leapjson_forward_passes_total", "vllm:iteration_tokens_total_count")
"""vLLM's metric is a histogram of the tokens of a step, so its count is the number of steps."""


def read_counts(client: httpx.Client) -> Counts:
    """Counters in ``/metrics``, and counts and sums of histograms; empty without that page."""
    try:
        response = client.get("/metrics")
    except httpx.TransportError:
        return {}
    return parse_counts(response.text) if response.status_code == 200 else {}


def parse_counts(text: str) -> dict[str, float]:
    counts: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if family.type in ("counter", "histogram") and not sample.name.endswith(
                    ("_bucket", "_created")
                ):
                    labels = [
                        f"{name}={value}"
                        for name, value in sorted(sample.labels.items())
                        if name not in _IGNORED_LABELS
                    ]
                    key = sample.name + (f"{{{','.join(labels)}}}" if labels else "")
                    counts[key] = counts.get(key, 0.0) + sample.value
    except ValueError:
        return {}  # the page exists, but is not in Prometheus' format
    return counts


def metric_value(text: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels; 0.0 if there are none."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def difference(before: Counts, after: Counts) -> dict[str, float]:
    """The growth of each counter that grew; empty if ``before`` was not read."""
    if not before:
        return {}
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    return {name: value for name, value in grown.items() if value}


def forward_passes(counts: Counts) -> float | None:
    """The number of forward passes, for all requests together; None if it is not reported."""
    return next((counts[name] for name in _FORWARD_PASSES if name in counts), None)
