"""When things happened to one request; told to the observer once, when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from app.core.events import AnswerUsage, RequestObserver, RequestStats

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Timeline:
    """The moments of a request from arrival to end. The first call of ``end`` counts."""

    request_id: str
    endpoint: str
    observer: RequestObserver
    clock: Callable[[], float]
    _arrived: float = field(init=False)
    _scheduled: float | None = None
    _first_token: float | None = None
    _last_chunk: dict[int, float] = field(default_factory=dict)
    _gaps: list[float] = field(default_factory=list)
    _usage: dict[int, AnswerUsage] = field(default_factory=dict)
    _ended: bool = False

    def __post_init__(self) -> None:
        self._arrived = self.clock()

    @property
    def usage(self) -> dict[int, AnswerUsage]:
        """The latest counts of each choice that has any."""
        return self._usage

    def scheduled(self, moment: float) -> None:
        if self._scheduled is None:
            self._scheduled = moment

    def chunk(self, index: int, usage: AnswerUsage) -> None:
        now = self.clock()
        if self._first_token is None:
            self._first_token = now
        if index in self._last_chunk:
            self._gaps.append(now - self._last_chunk[index])
        self._last_chunk[index] = now
        self._usage[index] = usage

    def end(self, *, status: int, finish_reason: str) -> None:
        """Report the request. ``status`` is the HTTP status, 499 for a client that left."""
        if self._ended:
            return
        self._ended = True
        now = self.clock()
        started = now if self._scheduled is None else self._scheduled
        first = None if self._first_token is None else self._first_token - self._arrived
        stats = RequestStats(
            endpoint=self.endpoint,
            status=status,
            finish_reason=finish_reason,
            queue_seconds=max(started - self._arrived, 0.0),
            time_to_first_token=first,
            e2e_seconds=now - self._arrived,
            inter_token_seconds=self._gaps,
            leapt_tokens=sum(usage.leapt_tokens for usage in self._usage.values()),
            completion_tokens=sum(usage.completion_tokens for usage in self._usage.values()),
        )
        self.observer.observe_request(stats)
        self._log(stats)

    def _log(self, stats: RequestStats) -> None:
        logger.info(
            "request",
            extra={
                "request_id": self.request_id,
                "endpoint": stats.endpoint,
                "status": stats.status,
                "finish_reason": stats.finish_reason,
                "seconds": round(stats.e2e_seconds, 6),
                "queue_seconds": round(stats.queue_seconds, 6),
                "completion_tokens": stats.completion_tokens,
                "leapt_tokens": stats.leapt_tokens,
            },
        )
