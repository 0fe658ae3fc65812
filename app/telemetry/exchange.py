"""One HTTP request and its outcome, for its log line and its span."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from app.core.events import RequestStats
from app.serving.generation import CLIENT_LEFT


@dataclass(slots=True)
class Exchange:
    """One HTTP request, from its first byte to the last of its answer."""

    scope: Mapping[str, Any]
    method: str
    endpoint: str
    """The route's path, or ``other``: never a path that the client made up."""
    trace_id: str = ""
    """In hexadecimal, as in ``traceparent``; "" without tracing."""
    span_id: str = ""
    started: float = field(default_factory=time.perf_counter)
    sent_status: int | None = None
    """Status in the response head; None before it is sent."""
    streamed: bool = False
    code: str | None = None
    param: str | None = None
    """The field at fault, with what the client named itself replaced by ``*``."""
    error: str = ""
    """The class of the exception that broke the answer off."""
    stats: RequestStats | None = None
    """The report of the service, if the request reached it."""
    stats_time: int = 0
    """The time of that report, in nanoseconds since the epoch."""

    @property
    def request_id(self) -> str:
        """As in ``x-request-id`` without its prefix; "" until it is made."""
        return str(self.scope.get("state", {}).get("request_id", ""))

    @property
    def status(self) -> int:
        """Status of the whole request: a stream that failed has sent 200 but counts as 500."""
        if self.stats is not None:
            return self.stats.status
        if self.sent_status is None:
            return 500 if self.error else CLIENT_LEFT
        return self.sent_status

    @property
    def finish_reason(self) -> str:
        if self.stats is not None:
            return self.stats.finish_reason
        if self.status == CLIENT_LEFT:
            return "abort"
        return "stop" if self.status < 400 else "error"


current_exchange: ContextVar[Exchange | None] = ContextVar("current_exchange", default=None)
"""The request that the running code works for."""
