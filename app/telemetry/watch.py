"""Reports of the edge (``app.http.edge``) on every request: log line, count, span.

Measurements of the service come through ``Metrics.observe_request``; a watch adds requests that
never reach it (401, 404, 413, probes) and facts that are known only after the answer was sent.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.routing import Route
from starlette.types import Message, Scope

from app.telemetry.exchange import Exchange, current_exchange
from app.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from app.telemetry.traces import Traces

logger = logging.getLogger("leapjson.access")

PROBES = frozenset({"/health", "/ready", "/metrics"})
"""Requested every few seconds: logged at the level debug, and never traced."""
_COUNTS = (
    "prompt_tokens", "cached_tokens", "completion_tokens", "leapt_tokens",
    "drafted_tokens", "forward_passes",
)  # fmt: skip
"""Fields of ``AnswerUsage`` in the log line."""
_LARGEST_ERROR = 1 << 16
"""Bytes of an error's body that is looked at for its code."""


class Telemetry:
    """Watches requests. Cost per request: 0.1 ms, mostly for the log line; traces add 0.5 ms."""

    def __init__(
        self, app: FastAPI, metrics: Metrics, *, model: str, traces: Traces | None, content: int = 0
    ) -> None:
        """``app``'s routes are complete. ``content``: bytes of each body, and characters of its
        path, that go into the log."""
        metrics.describe(model)
        routes = [each for each in app.routes if isinstance(each, Route)]
        self.metrics = metrics
        self.names = KnownNames(
            [route.path_format for route in routes],
            [getattr(route, "openapi_extra", None) for route in routes],
        )
        self.traces = traces
        self.content = content


class RequestWatch:
    """One request, from its arrival to the end of its answer."""

    def __init__(self, telemetry: Telemetry, scope: Scope) -> None:
        self._telemetry = telemetry
        self._exchange = Exchange(
            scope, telemetry.names.method(scope["method"]), telemetry.names.endpoint(scope["path"])
        )
        self._traces = None if self._exchange.endpoint in PROBES else telemetry.traces
        self._span = None if self._traces is None else self._traces.start(self._exchange)
        self._bodies = {"request": b"", "answer": b""}
        """First bytes of the bodies, if the settings want them in the log."""
        self._refused = False
        self._token = current_exchange.set(self._exchange)

    @property
    def keeps_bodies(self) -> bool:
        """Whether it has to see the bodies of streams, too."""
        return self._telemetry.content > 0

    def received(self, message: Message) -> None:
        self._keep("request", message.get("body", b""))

    def sent(self, message: Message) -> None:
        exchange, body = self._exchange, message.get("body", b"")
        if message["type"] == "http.response.start":
            exchange.sent_status = message["status"]
            self._refused = message["status"] >= 400
            exchange.streamed = any(
                name == b"content-type" and value.startswith(b"text/event-stream")
                for name, value in message.get("headers", ())
            )
        elif self._refused and exchange.code is None:
            self._read_error(body)
        self._keep("answer", body)

    def end(self, error: BaseException | None) -> None:
        """The answer has been sent, or ``error`` broke it off."""
        exchange = self._exchange
        if error is not None:
            exchange.error = type(error).__name__
        self._telemetry.metrics.observe_exchange(exchange)
        content = None
        if self.keeps_bodies:
            kept = {name: body.decode(errors="replace") for name, body in self._bodies.items()}
            content = {"path": exchange.scope["path"], **kept}
        _log(exchange, content)
        if self._traces is not None and self._span is not None:
            self._traces.finish(self._span, exchange)
        current_exchange.reset(self._token)

    def _keep(self, name: str, part: bytes) -> None:
        if self.keeps_bodies:
            self._bodies[name] += part[: self._telemetry.content - len(self._bodies[name])]

    def _read_error(self, body: bytes) -> None:
        """Code and field of an error in OpenAI's envelope, not in Ollama's; never its message."""
        if len(body) > _LARGEST_ERROR or not body.startswith(b'{"error":{'):
            return
        error = from_json(body)["error"]
        self._exchange.code = error.get("code")
        if error.get("param") is not None:
            self._exchange.param = self._telemetry.names.param(error["param"])


def _log(exchange: Exchange, content: Mapping[str, str] | None) -> None:
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
    named = {"adapter": adapter, "code": exchange.code, "param": exchange.param, "error": error}
    fields |= {name: value for name, value in named.items() if value}
    if exchange.stats is not None and exchange.stats.choices:
        stats = exchange.stats
        fields |= {f"{phase.name}_seconds": round(phase.seconds, 6) for phase in stats.phases}
        if stats.time_to_first_token is not None:
            fields["first_token_seconds"] = round(stats.time_to_first_token, 6)
        fields["choices"] = stats.choices
        fields |= {name: getattr(stats.usage, name) for name in _COUNTS}
    if content is not None:
        fields["content"] = content
    logger.log(level, "request", extra=fields)


OTHER = "other"
HIDDEN = "*"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STEP = re.compile(r"\[\d{1,6}\]|([^.\[\]]+)|\.")
_LONGEST_PARAM = 200


class KnownNames:
    """Paths, and the fields of their operations; whatever else a client sends is ``other``."""

    def __init__(self, paths: Iterable[str], operations: Any) -> None:
        """``operations``: JSON Schemas and models, however nested."""
        paths = set(paths)
        self._exact = frozenset(path for path in paths if "{" not in path)
        self._templates: list[tuple[re.Pattern[str], str]] = [
            (re.compile(re.sub(r"\\\{.*?\\\}", ".+", re.escape(path)), re.DOTALL), path)
            for path in sorted(paths - self._exact, reverse=True)  # the longer ones first
        ]
        self._fields = frozenset(_field_names(operations, set()))

    def endpoint(self, path: str) -> str:
        """The route's path for a request's path."""
        if path in self._exact:
            return path
        return next((route for pattern, route in self._templates if pattern.fullmatch(path)), OTHER)

    def method(self, method: str) -> str:
        return method if method in _METHODS else OTHER

    def param(self, param: str) -> str:
        """``messages[0].sEcReT`` as ``messages[0].*``: members that clients name are content."""

        def shown(step: re.Match[str]) -> str:
            return step[0] if step[1] is None or step[1] in self._fields else HIDDEN

        return "".join(map(shown, _STEP.finditer(param[: 2 * _LONGEST_PARAM])))[:_LONGEST_PARAM]


def _field_names(value: Any, seen: set[type]) -> Iterator[str]:
    parts: Iterable[Any] = get_args(value)
    if isinstance(value, Mapping):
        properties = value.get("properties")
        if isinstance(properties, Mapping):
            yield from properties
        parts = value.values()
    elif isinstance(value, list):
        parts = value
    elif isinstance(value, type) and issubclass(value, BaseModel) and value not in seen:
        seen.add(value)
        fields = value.model_fields
        known = getattr(value, "known_names", None)  # of a part of a request
        yield from known() if known else [field.alias or name for name, field in fields.items()]
        parts = [field.annotation for field in fields.values()]
    for each in parts:
        yield from _field_names(each, seen)
