"""The trace exporter, as the settings and OpenTelemetry's own variables configure it."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from app.core.errors import LeapjsonError

if TYPE_CHECKING:
    from app.telemetry.traces import Traces

logger = logging.getLogger(__name__)


def open_traces(endpoint: str | None, *, model: str) -> Traces | None:
    """Traces sent to a collector by OTLP over HTTP in batches, or None where nothing asks for it.

    ``endpoint`` is the collector's base URL and goes before OpenTelemetry's own variables, all of
    which count: ``OTEL_EXPORTER_OTLP_*``, ``OTEL_BSP_*``, ``OTEL_TRACES_*``, ``OTEL_SDK_DISABLED``.
    Spans wait in a bounded queue on a thread of their own; over the bound, they are dropped.
    Raises ``LeapjsonError`` if the packages are missing and ``endpoint`` is given; for the
    variables, which a platform may set for all it runs, it logs a warning.
    """
    if not _wanted(endpoint):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from app.telemetry.traces import Traces
    except ImportError:
        missing = "tracing needs more packages: pip install 'leapjson[otel]'"
        if endpoint is not None:
            raise LeapjsonError(missing) from None
        logger.warning("%s; OTEL_EXPORTER_OTLP_ENDPOINT is ignored", missing)
        return None
    url = None if endpoint is None else endpoint.rstrip("/") + "/v1/traces"
    return Traces(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)), model=model)


def _wanted(endpoint: str | None) -> bool:
    variables = os.environ
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if endpoint is not None:
        return True

    def of_traces(name: str) -> str | None:
        """The variable for traces, else the one for all signals."""
        own = variables.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}")
        return own or variables.get(f"OTEL_EXPORTER_OTLP_{name}")

    exporter = variables.get("OTEL_TRACES_EXPORTER") or "otlp"
    protocol = of_traces("PROTOCOL") or "http/protobuf"
    if not of_traces("ENDPOINT") or exporter == "none":
        return False
    if exporter != "otlp" or protocol != "http/protobuf":
        logger.warning(
            "tracing is off: only otlp over http/protobuf is supported, not %s over %s",
            exporter, protocol,
        )  # fmt: skip
        return False
    return True
