"""The server's metrics, in a registry of their own; docs/operations.md says what they are for.

Events count through ``StepObserver`` and ``RequestObserver``; states (queue lengths, sizes, the
counts of the cache) are read at each scrape.
"""

from __future__ import annotations

import platform
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import attrgetter

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from app.core.events import RequestStats, StepStats
from app.core.version import version_of
from app.telemetry.exchange import Exchange, current_exchange

PREFIX = "leapjson_"

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_BOUNDS = [*map(str, map(float, _LATENCY)), "+Inf"]
"""Bounds of ``_LATENCY`` as labels."""
_SHORT = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3)
_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)

_COUNTERS: dict[str, tuple[str, ...]] = {
    "tokens_total": (
        "Tokens by source: prompt (computed), cached (in the prefix cache), sampled, leapt (forced "
        "by the schema), drafted (accepted drafts, also in sampled).",
        "source",
    ),
    "tokens_skipped_total": ("Answer tokens that needed no decoding step of their own.",),
    "draft_tokens_total": ("Drafted tokens that were verified, accepted or not.",),
    "forward_passes_saved_total": (
        "Further tokens that an answer sampled in the same forward pass.",
    ),
    "forward_passes_total": ("Forward passes of the model.",),
    "void_tokens_total": (
        "Tokens computed in vain: their answer had ended or continued differently.",
    ),
    "scored_tokens_total": (
        "Tokens computed to score the choices of answers, for confidence and exact choices.",
    ),
    "device_idle_seconds_total": (
        "Time without a launched step although there was work (an accelerator was idle).",
    ),
    "preemptions_total": ("Answers preempted: they are computed again.",),
    "prefix_cache_queries_total": ("Full prompt blocks looked up in the prefix cache.",),
    "prefix_cache_hits_total": ("Full prompt blocks found in the prefix cache.",),
    "budget_closed_total": ("Answers completed early to stay within their token budget.",),
    "draws_again_total": (
        "Sampled tokens that were rejected: they would have repeated an item or a name, or "
        "exceeded the token budget.",
    ),
    "masks_put_off_total": ("Samples postponed because their masks took too much work.",),
    "masks_given_up_total": (
        "Masks abandoned as too much work: the answer took a token of its shortest completion.",
    ),
    "requests_total": (
        "Finished requests, refused ones included; status 499 means the client disconnected.",
        "endpoint",
        "status",
        "finish_reason",
    ),
    "relaxations_total": (
        "Schema keywords that were not enforced, by keyword; limits: a whole subschema was too "
        "complex to compile.",
        "keyword",
    ),
    "admission_rejections_total": ("Requests refused by admission.", "reason"),
    "connection_refusals_total": (
        "Connections closed by status: 400, not HTTP; 408, too slow; 431, headers too large.",
        "status",
    ),
}
"""The help text of each, and the names of its labels."""

_HISTOGRAMS: dict[str, tuple[Sequence[float], str, *tuple[str, ...]]] = {
    "mask_seconds": (_SHORT, "Time to compute the masks of a step."),
    "step_seconds": (_SHORT, "Time of an engine step, by phase.", "phase"),
    "step_tokens": (_TOKENS, "Tokens computed in a step."),
    "schema_compile_seconds": (
        _LATENCY, "Time to compile a constraint, with the wait for a worker.", "kind", "result",
    ),
    "image_prepare_seconds": (
        _LATENCY, "Time to prepare an image, with fetching and the wait for a worker.", "result",
    ),
    "time_to_first_token_seconds": (_LATENCY, "Time from arrival to the first chunk."),
    "e2e_request_latency_seconds": (_LATENCY, "Time from arrival to the last chunk."),
    "request_queue_time_seconds": (_LATENCY, "Time from arrival until the request is scheduled."),
    "request_prefill_seconds": (
        _LATENCY, "Time from scheduling to the first chunk.",
    ),
    "request_decode_seconds": (_LATENCY, "Time from the first chunk to the last."),
}  # fmt: skip
"""The buckets of each, its help text, and the names of its labels."""

_STEP_COUNTS = {
    "prompt_tokens": ("tokens_total", "prompt"),
    "cached_tokens": ("tokens_total", "cached"),
    "sampled_tokens": ("tokens_total", "sampled"),
    "leapt_tokens": ("tokens_total", "leapt"),
    "drafted_tokens": ("tokens_total", "drafted"),
    "skipped_tokens": ("tokens_skipped_total",),
    "proposed_tokens": ("draft_tokens_total",),
    "passes_saved": ("forward_passes_saved_total",),
    "void_tokens": ("void_tokens_total",),
    "scored_tokens": ("scored_tokens_total",),
    "idle_seconds": ("device_idle_seconds_total",),
    "preemptions": ("preemptions_total",),
    "prefix_queries": ("prefix_cache_queries_total",),
    "prefix_hits": ("prefix_cache_hits_total",),
    "budget_closed": ("budget_closed_total",),
    "drawn_again": ("draws_again_total",),
    "masks_put_off": ("masks_put_off_total",),
    "masks_given_up": ("masks_given_up_total",),
}
"""Counter and label values for each field of ``StepStats``."""

_PHASES = ("plan", "launch", "mask", "sample", "commit")
"""Phases of a step, each with a series of ``step_seconds`` and a field of ``StepStats``."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that is read on demand; a counter, which only ever grows, ends in ``_total``.

    ``read`` is called on the thread of the scrape.
    """

    name: str
    help: str
    read: Callable[[], float]
    labels: Mapping[str, str] = field(default_factory=dict)
    """Readings of one name have the same names of labels, and the same help."""


class _Readings(Collector):
    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = tuple(readings)

    def collect(self) -> Iterable[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for reading in self._readings:
            if reading.name not in families:
                kind = CounterMetricFamily if reading.name.endswith("_total") else GaugeMetricFamily
                name = PREFIX + reading.name
                families[reading.name] = kind(name, reading.help, labels=[*reading.labels])
            families[reading.name].add_metric([*reading.labels.values()], reading.read())
        yield from families.values()


class _Gaps(Collector):
    """Histogram of the times between chunks, about as many per answer as it has tokens.

    ``Histogram.observe`` takes 1 us for each value; this, a tenth of it.
    """

    def __init__(self) -> None:
        self._counts = [0] * (len(_LATENCY) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, gaps: Sequence[float]) -> None:
        with self._lock:
            for gap in gaps:
                self._counts[bisect_left(_LATENCY, gap)] += 1
            self._sum += sum(gaps)

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            counts, total = list(accumulate(self._counts)), self._sum
        yield HistogramMetricFamily(
            PREFIX + "inter_token_latency_seconds",
            "Time between two chunks of a choice.",
            buckets=list(zip(_BOUNDS, counts, strict=True)),
            sum_value=total,
        )


class Metrics:
    """A ``StepObserver`` and a ``RequestObserver``; thread-safe, as prometheus_client is.

    Every label has few values, whatever clients send: endpoints are routes or ``other``, and the
    rest are words of this server.
    """

    def __init__(self) -> None:
        # The ``_created`` series, which nobody needs. The switch is process-wide.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._counters = {
            name: Counter(PREFIX + name, text, labels, registry=self.registry)
            for name, (text, *labels) in _COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(PREFIX + name, text, labels, buckets=buckets, registry=self.registry)
            for name, (buckets, text, *labels) in _HISTOGRAMS.items()
        }
        self.request_listener: Callable[[RequestStats], None] = lambda stats: None
        """Called with every request that ends."""
        self._gaps = _Gaps()
        self.registry.register(self._gaps)
        # Steps are frequent: what they count is looked up once.
        self._read_counts = attrgetter(*_STEP_COUNTS)
        self._step_counts = [self._series(*row).inc for row in _STEP_COUNTS.values()]
        self._read_phases = attrgetter(*(f"{phase}_seconds" for phase in _PHASES))
        phases = self._histograms["step_seconds"]
        self._step_phases = [phases.labels(phase).observe for phase in _PHASES]
        for status in (400, 408, 431):  # these three are there from the start
            self._series("connection_refusals_total", str(status))
        self._series("relaxations_total", "limits")

    def _series(self, name: str, *labels: str) -> Counter:
        counter = self._counters[name]
        return counter.labels(*labels) if labels else counter

    def observe_step(self, stats: StepStats) -> None:
        for count, amount in zip(self._step_counts, self._read_counts(stats), strict=True):
            count(amount)
        for observe, seconds in zip(self._step_phases, self._read_phases(stats), strict=True):
            observe(seconds)
        self._histograms["mask_seconds"].observe(stats.mask_seconds)
        if stats.batch_tokens:
            self._counters["forward_passes_total"].inc()
            self._histograms["step_tokens"].observe(stats.batch_tokens)

    def observe_request(self, stats: RequestStats) -> None:
        """Count a request that reached the service; its ``Exchange``, if any, gets the stats."""
        self.request_listener(stats)
        self._count_request(stats.endpoint, stats.status, stats.finish_reason)
        for keyword in stats.relaxed:
            self._series("relaxations_total", keyword or "limits").inc()
        exchange = current_exchange.get()
        if exchange is not None:
            exchange.stats, exchange.stats_time = stats, time.time_ns()
        if stats.time_to_first_token is None:
            return  # refused or abandoned before its first token: its times would say nothing
        histograms = self._histograms
        histograms["time_to_first_token_seconds"].observe(stats.time_to_first_token)
        histograms["e2e_request_latency_seconds"].observe(stats.e2e_seconds)
        histograms["request_queue_time_seconds"].observe(stats.queue_seconds)
        self._gaps.observe(stats.inter_token_seconds)
        for phase in stats.phases:
            if phase.name in ("prefill", "decode"):
                histograms[f"request_{phase.name}_seconds"].observe(phase.seconds)

    def observe_exchange(self, exchange: Exchange) -> None:
        """Count a request that the service did not report: a refusal before it, a probe, a 404."""
        if exchange.stats is None:
            self._count_request(exchange.endpoint, exchange.status, exchange.finish_reason)

    def _count_request(self, endpoint: str, status: int, finish_reason: str) -> None:
        self._series("requests_total", endpoint, str(status), finish_reason).inc()

    def observe_rejection(self, reason: str) -> None:
        self._series("admission_rejections_total", reason).inc()

    def observe_connection_refusal(self, status: int) -> None:
        self._series("connection_refusals_total", str(status)).inc()

    def observe_compile(self, kind: str, result: str, seconds: float) -> None:
        self._histograms["schema_compile_seconds"].labels(kind, result).observe(seconds)

    def observe_image(self, result: str, seconds: float) -> None:
        self._histograms["image_prepare_seconds"].labels(result).observe(seconds)

    def describe(self, model: str) -> None:
        """Report version, Python, torch and model. Call once."""
        Info(PREFIX + "build", "Always 1; labels name the build.", registry=self.registry).info(
            {
                "version": version_of(),
                "python": platform.python_version(),
                "torch": version_of("torch"),
                "model": model,
            }
        )

    def watch(self, readings: Iterable[Reading]) -> None:
        """Report these values, too, from now on."""
        self.registry.register(_Readings(readings))

    def render(self) -> tuple[bytes, str]:
        """The exposition in Prometheus' text format, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4
