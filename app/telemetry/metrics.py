"""The metrics of section 6 of the design, in a registry of their own.

Events count through ``StepObserver`` and ``RequestObserver``; what is a state rather than an
event (queue lengths, sizes, the cache's own counts) is read when Prometheus asks.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from app.core.events import RequestStats, StepStats
from app.telemetry.exchange import Exchange, current_exchange

PREFIX = "leapjson_"

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_SHORT = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3)
_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that is read on demand. Its ``read`` is called on the thread of the scrape."""

    name: str
    help: str
    read: Callable[[], float]
    counter: bool = False
    """Only ever grows; ``name`` then ends in ``_total``."""


class _Readings(Collector):
    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = tuple(readings)

    def collect(self) -> Iterable[Metric]:
        for reading in self._readings:
            family = CounterMetricFamily if reading.counter else GaugeMetricFamily
            yield family(PREFIX + reading.name, reading.help, value=reading.read())


class Metrics:
    """A ``StepObserver`` and a ``RequestObserver``; thread-safe, as prometheus_client is.

    Every label has few values, whatever clients send: endpoints are routes or ``other``, and the
    rest are words of this server.
    """

    def __init__(self) -> None:
        # A second series for each one, which nobody asks for. The switch is the whole process'.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._steps = _StepMetrics(self.registry)
        self._requests = _RequestMetrics(self.registry)
        self.observe_step = self._steps.observe
        self.observe_rejection = self._requests.observe_rejection
        self.observe_compile = self._requests.observe_compile
        self.observe_connection_refusal = self._requests.observe_connection_refusal

    def observe_request(self, stats: RequestStats) -> None:
        """Count a request that got to the service, and tell its ``Exchange``, where it has one."""
        self._requests.observe(stats)
        exchange = current_exchange.get()
        if exchange is not None:
            exchange.report(stats)

    def observe_exchange(self, exchange: Exchange) -> None:
        """Count a request that the service did not report: refused before it, or not for it."""
        if exchange.stats is None:
            self._requests.count(exchange.endpoint, exchange.status, exchange.finish_reason)

    def describe(self, model: str) -> None:
        """Report what runs here. Call once."""
        gauge = Gauge(
            PREFIX + "build_info",
            "Always 1; the labels say what runs.",
            ["version", "python", "torch", "model"],
            registry=self.registry,
        )
        gauge.labels(_version("leapjson"), platform.python_version(), _version("torch"), model).set(
            1
        )

    def watch(self, readings: Iterable[Reading]) -> None:
        """Report these values, too, from now on."""
        self.registry.register(_Readings(readings))

    def render(self) -> tuple[bytes, str]:
        """The exposition in Prometheus' text format, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


class _StepMetrics:
    """What steps of the engine count. Label children are looked up once: steps are frequent."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(PREFIX + name, text, registry=registry)

        tokens = Counter(
            PREFIX + "tokens_total",
            "Tokens by where they came from: prompts computed, prompts found in the prefix "
            "cache, sampled, leapt (forced by the schema), drafted and accepted.",
            ["source"],
            registry=registry,
        )
        self._prompt, self._cached, self._sampled, self._leapt, self._drafted = (
            tokens.labels(source) for source in ("prompt", "cached", "sampled", "leapt", "drafted")
        )
        self._skipped = counter(
            "tokens_skipped_total", "Answer tokens that came without a sampled row of their own."
        )
        self._proposed = counter(
            "draft_tokens_total",
            "Drafted tokens that a draw decided on; see tokens_total{drafted}.",
        )
        self._saved = counter(
            "forward_passes_saved_total",
            "Draws that an answer took beside another one of the same pass.",
        )
        self._passes = counter("forward_passes_total", "Forward passes of the model.")
        self._preemptions = counter("preemptions_total", "Sequences that lost their cache blocks.")
        self._queries = counter(
            "prefix_cache_queries_total", "Full prompt blocks looked up in the prefix cache."
        )
        self._hits = counter("prefix_cache_hits_total", "Of those, the ones that were found.")
        self._budget_closed = counter(
            "budget_closed_total", "Answers steered to their end by their token budget."
        )
        self._mask = Histogram(
            PREFIX + "mask_seconds", "Filling the masks of a step.", buckets=_SHORT,
            registry=registry,
        )  # fmt: skip
        phases = Histogram(
            PREFIX + "step_seconds", "A step of the engine, by phase.", ["phase"], buckets=_SHORT,
            registry=registry,
        )  # fmt: skip
        self._plan, self._launch, self._masking, self._sample, self._commit = (
            phases.labels(phase) for phase in ("plan", "launch", "mask", "sample", "commit")
        )
        self._tokens = Histogram(
            PREFIX + "step_tokens", "Tokens computed in a step.", buckets=_TOKENS,
            registry=registry,
        )  # fmt: skip

    def observe(self, stats: StepStats) -> None:
        self._prompt.inc(stats.prompt_tokens)
        self._cached.inc(stats.cached_tokens)
        self._sampled.inc(stats.sampled_tokens)
        self._leapt.inc(stats.leapt_tokens)
        self._drafted.inc(stats.drafted_tokens)
        self._proposed.inc(stats.proposed_tokens)
        self._saved.inc(stats.passes_saved)
        self._skipped.inc(stats.skipped_tokens)
        if stats.batch_tokens:
            self._passes.inc()
            self._tokens.observe(stats.batch_tokens)
        self._preemptions.inc(stats.preemptions)
        self._queries.inc(stats.prefix_queries)
        self._hits.inc(stats.prefix_hits)
        self._budget_closed.inc(stats.budget_closed)
        self._mask.observe(stats.mask_seconds)
        self._plan.observe(stats.plan_seconds)
        self._launch.observe(stats.launch_seconds)
        self._masking.observe(stats.mask_seconds)
        self._sample.observe(stats.sample_seconds)
        self._commit.observe(stats.commit_seconds)


class _RequestMetrics:
    """What requests, rejections and compilations count."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def latency(name: str, text: str) -> Histogram:
            return Histogram(PREFIX + name, text, buckets=_LATENCY, registry=registry)

        self._requests = Counter(
            PREFIX + "requests_total",
            "Requests that ended, those refused at the door included; status 499 is a client "
            "that left.",
            ["endpoint", "status", "finish_reason"],
            registry=registry,
        )
        self._rejections = Counter(
            PREFIX + "admission_rejections_total",
            "Requests that were not admitted.",
            ["reason"],
            registry=registry,
        )
        refusals = Counter(
            PREFIX + "connection_refusals_total",
            "Connections closed for what came on them: 400, no HTTP; 408, too slowly; 431, too "
            "large a head.",
            ["status"],
            registry=registry,
        )
        self._connections = {status: refusals.labels(str(status)) for status in (400, 408, 431)}
        self._compile = Histogram(
            PREFIX + "schema_compile_seconds",
            "Compiling a constraint, waiting for a worker included.",
            ["kind", "result"],
            buckets=_LATENCY,
            registry=registry,
        )
        self._first = latency("time_to_first_token_seconds", "From arrival to the first chunk.")
        self._gap = latency("inter_token_latency_seconds", "Between the chunks of a choice.")
        self._whole = latency("e2e_request_latency_seconds", "From arrival to the last chunk.")
        self._queue = latency(
            "request_queue_time_seconds", "From arrival until a step took the request up."
        )
        self._prefill = latency(
            "request_prefill_seconds", "From when a step took the request up to the first chunk."
        )
        self._decode = latency("request_decode_seconds", "From the first chunk to the last.")

    def count(self, endpoint: str, status: int, finish_reason: str) -> None:
        self._requests.labels(endpoint, str(status), finish_reason).inc()

    def observe(self, stats: RequestStats) -> None:
        self.count(stats.endpoint, stats.status, stats.finish_reason)
        if stats.time_to_first_token is None:
            return  # refused or abandoned before its first token: its times would say nothing
        self._first.observe(stats.time_to_first_token)
        self._whole.observe(stats.e2e_seconds)
        self._queue.observe(stats.queue_seconds)
        for gap in stats.inter_token_seconds:
            self._gap.observe(gap)
        for phase in stats.phases:
            if phase.name == "prefill":
                self._prefill.observe(phase.seconds)
            elif phase.name == "decode":
                self._decode.observe(phase.seconds)

    def observe_rejection(self, reason: str) -> None:
        self._rejections.labels(reason).inc()

    def observe_connection_refusal(self, status: int) -> None:
        self._connections[status].inc()

    def observe_compile(self, kind: str, result: str, seconds: float) -> None:
        self._compile.labels(kind, result).observe(seconds)
