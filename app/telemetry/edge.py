"""The outermost layer around every request: its log line, its count, its span.

What the service measures comes through ``Metrics.observe_request``; this layer adds what never
gets there (401, 404, 413, probes) and what is known only when the answer has been sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from pydantic_core import from_json
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.core.events import RequestStats
from app.telemetry.endpoints import KnownNames
from app.telemetry.exchange import Exchange, current_exchange
from app.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from app.telemetry.traces import Traces

logger = logging.getLogger("leapjson.access")

PROBES = frozenset({"/health", "/ready", "/metrics"})
"""Asked for every few seconds: logged at the level debug, and never traced."""
_COUNTS = (
    "choices", "prompt_tokens", "cached_tokens", "completion_tokens", "leapt_tokens",
    "drafted_tokens", "forward_passes",
)  # fmt: skip
"""Fields of ``RequestStats`` that the log line shows."""
_LARGEST_ERROR = 1 << 16
"""Bytes of an error's body that is looked at for its code."""


def install_telemetry(
    app: FastAPI, metrics: Metrics, *, model: str, traces: Traces | None, content: int = 0
) -> None:
    """Put this layer around ``app``, whose routes and middlewares are complete.

    ``content``: bytes of each body, and characters of its path, that go into the log.
    """
    metrics.describe(model)
    untold = [each for each in app.routes if isinstance(each, Route) and not each.include_in_schema]
    names = KnownNames(app.openapi(), [route.path for route in untold])
    app.add_middleware(
        RequestTelemetry, metrics=metrics, names=names, traces=traces, content=content
    )


@dataclass(frozen=True, slots=True)
class RequestTelemetry:
    """ASGI middleware. Costs a request 0.1 ms, most of it for the log line; traces 0.5 ms more."""

    app: ASGIApp
    metrics: Metrics
    names: KnownNames
    traces: Traces | None
    content: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        names = self.names
        exchange = Exchange(scope, names.method(scope["method"]), names.endpoint(scope["path"]))
        traces = None if exchange.endpoint in PROBES else self.traces
        span = traces.start(exchange) if traces is not None else None
        bodies = _Bodies(self.content) if self.content else None
        if bodies is not None:
            receive = bodies.keeping(receive)
        else:  # nothing here looks at the body of a stream: see ``middleware.stack.body_channel``
            scope.setdefault("state", {})["send_body"] = send
        token = current_exchange.set(exchange)
        try:
            await self.app(scope, receive, self._watching(exchange, bodies, send))
        except BaseException as error:
            exchange.error = type(error).__name__
            raise
        finally:
            self.metrics.observe_exchange(exchange)
            _log(exchange, bodies)
            if traces is not None and span is not None:
                traces.finish(span, exchange)
            current_exchange.reset(token)

    def _watching(self, exchange: Exchange, bodies: _Bodies | None, send: Send) -> Send:
        refused = False

        async def watched(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start":
                exchange.sent_status = message["status"]
                refused = message["status"] >= 400
                exchange.streamed = any(
                    name == b"content-type" and value.startswith(b"text/event-stream")
                    for name, value in message.get("headers", ())
                )
            elif message["type"] == "http.response.body":
                if refused and exchange.code is None:
                    self._read_error(exchange, message.get("body", b""))
                if bodies is not None:
                    bodies.keep("answer", message.get("body", b""))
            await send(message)

        return watched

    def _read_error(self, exchange: Exchange, body: bytes) -> None:
        """Code and field of an error in OpenAI's envelope, not in Ollama's; never its message."""
        if len(body) > _LARGEST_ERROR or not body.startswith(b'{"error":{'):
            return
        error = from_json(body)["error"]
        exchange.code = error.get("code")
        if error.get("param") is not None:
            exchange.param = self.names.param(error["param"])


class _Bodies:
    """The beginnings of both bodies, where the settings ask for them in the log."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._kept = {"request": b"", "answer": b""}

    def keeping(self, receive: Receive) -> Receive:
        async def received() -> Message:
            message = await receive()
            self.keep("request", message.get("body", b""))
            return message

        return received

    def keep(self, name: str, part: bytes) -> None:
        self._kept[name] += part[: self._longest - len(self._kept[name])]

    def content(self) -> dict[str, str]:
        return {name: kept.decode(errors="replace") for name, kept in self._kept.items()}


def _log(exchange: Exchange, bodies: _Bodies | None) -> None:
    if exchange.endpoint in PROBES:
        level = logging.DEBUG
    elif exchange.status == 503:
        level = logging.WARNING
    else:
        level = logging.ERROR if exchange.status >= 500 else logging.INFO
    if not logger.isEnabledFor(level):
        return
    fields: dict[str, object] = {
        "request_id": exchange.request_id,
        "method": exchange.method,
        "endpoint": exchange.endpoint,
        "status": exchange.status,
        "finish_reason": exchange.finish_reason,
        "seconds": round(time.perf_counter() - exchange.started, 6),
    }
    error = exchange.error or (exchange.stats.error if exchange.stats else "")
    adapter = exchange.stats.adapter if exchange.stats else ""
    for name, value in (
        ("adapter", adapter),
        ("code", exchange.code),
        ("param", exchange.param),
        ("error", error),
    ):
        if value:
            fields[name] = value
    if exchange.stats is not None and exchange.stats.choices:
        fields |= _measured(exchange.stats)
    if bodies is not None:
        fields["content"] = {"path": exchange.scope["path"], **bodies.content()}
    logger.log(level, "request", extra=fields)


def _measured(stats: RequestStats) -> Mapping[str, Any]:
    times = {f"{phase.name}_seconds": round(phase.seconds, 6) for phase in stats.phases}
    if stats.time_to_first_token is not None:
        times["first_token_seconds"] = round(stats.time_to_first_token, 6)
    return times | {name: getattr(stats, name) for name in _COUNTS}
