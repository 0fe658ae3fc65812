"""OpenTelemetry traces: one server span for each request, and its phases as children.

Imported only where traces are sent somewhere: it needs the packages of the extra ``otel``. The
tracer provider is this server's own, not the process-wide one: instrumentation of other libraries,
which may record paths, bodies and messages, is not switched on by it.
Names follow OpenTelemetry's semantic conventions for HTTP servers and, for what is generated,
those for generative AI (https://github.com/open-telemetry/semantic-conventions-genai).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.core.events import RequestStats
from app.core.version import version_of
from app.telemetry.exchange import Exchange

CLOSE_SECONDS = 3.0
"""Time limit for unsent spans at exit."""

_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/responses": "chat",
}
"""``gen_ai.operation.name`` by endpoint."""

_PARENT_HEADERS = (b"traceparent", b"tracestate")
"""Headers of W3C Trace Context; baggage is ignored."""

Attributes = Mapping[str, str | int | float | bool | list[str]]


class Traces:
    """Starts and finishes spans. The event loop's thread alone uses it; it never waits there."""

    def __init__(self, processor: SpanProcessor, *, model: str) -> None:
        """``processor`` takes finished spans, and must not block.

        The sampler and the resource's attributes are those of ``OTEL_TRACES_SAMPLER``,
        ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES``.
        """
        resource = Resource.create({"service.version": version_of()})
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "leapjson"}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("leapjson", version_of())
        self._propagator = TraceContextTextMapPropagator()
        self._model = model

    def start(self, exchange: Exchange) -> Span:
        """A span that is a child of the client's, where the request names one."""
        carrier = {
            name.decode(): value.decode("latin-1")
            for name, value in exchange.scope["headers"]
            if name in _PARENT_HEADERS
        }
        span = self._tracer.start_span(
            f"{exchange.method} {exchange.endpoint}",
            context=self._propagator.extract(carrier, Context()),
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": exchange.method,
                "http.route": exchange.endpoint,
                "url.scheme": exchange.scope.get("scheme", "http"),
            },
        )
        identity = span.get_span_context()
        exchange.trace_id = f"{identity.trace_id:032x}"
        exchange.span_id = f"{identity.span_id:016x}"
        return span

    def finish(self, span: Span, exchange: Exchange) -> None:
        """Set the outcome of the request, and pass the span and its phases to the processor."""
        if span.is_recording():
            span.set_attributes(
                {
                    "http.response.status_code": exchange.status,
                    "leapjson.request.id": exchange.request_id,
                    **_failure(exchange),
                }
            )
            if exchange.status >= 500:
                span.set_status(StatusCode.ERROR)
            stats = exchange.stats
            if stats is not None and exchange.endpoint in _OPERATIONS:
                span.set_attributes(self._generated(exchange, stats))
                arrived = exchange.stats_time - _nanoseconds(stats.e2e_seconds)
                parent = set_span_in_context(span)
                for phase in stats.phases:  # a finished span for each
                    started = arrived + _nanoseconds(phase.start)
                    child = self._tracer.start_span(phase.name, context=parent, start_time=started)
                    child.end(arrived + _nanoseconds(phase.end))
        span.end()

    async def close(self) -> None:
        """Send what is left, for ``CLOSE_SECONDS`` at most."""
        # A thread of our own: one of the event loop's would be waited for without a limit.
        thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, CLOSE_SECONDS)

    def _generated(self, exchange: Exchange, stats: RequestStats) -> Attributes:
        model = f"{self._model}:{stats.adapter}" if stats.adapter else self._model
        attributes: dict[str, str | int | float | bool | list[str]] = {
            "gen_ai.operation.name": _OPERATIONS[exchange.endpoint],
            "gen_ai.provider.name": "leapjson",
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
            "gen_ai.request.stream": exchange.streamed,
        }
        if not stats.choices:
            return attributes
        if exchange.streamed and stats.time_to_first_token is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = stats.time_to_first_token
        return attributes | {
            "gen_ai.response.finish_reasons": [stats.finish_reason],
            "gen_ai.request.choice.count": stats.choices,
            "gen_ai.usage.input_tokens": stats.usage.prompt_tokens,
            "gen_ai.usage.cache_read.input_tokens": stats.usage.cached_tokens,
            "gen_ai.usage.output_tokens": stats.usage.completion_tokens,
            "leapjson.usage.leapt_tokens": stats.usage.leapt_tokens,
            "leapjson.usage.drafted_tokens": stats.usage.drafted_tokens,
            "leapjson.forward_passes": stats.usage.forward_passes,
        }


def _failure(exchange: Exchange) -> Mapping[str, str]:
    """``error.type``, and the field at fault; never a message, which may quote the request."""
    if exchange.status < 400:
        return {}
    stats_error = exchange.stats.error if exchange.stats is not None else ""
    kind = exchange.code or exchange.error or stats_error or str(exchange.status)
    return {"error.type": kind} | ({"leapjson.param": exchange.param} if exchange.param else {})


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
