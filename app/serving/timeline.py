"""The moments of one request, reported to the observer once, when it ends."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from app.core.events import AnswerUsage, Phase, PhaseName, RequestObserver, RequestStats


@dataclass(slots=True)
class Timeline:
    """The moments of a request from arrival to end. The first call of ``end`` counts.

    The observer is called in the context (``contextvars``) that the timeline was made in: chunks
    arrive in that of the engine's thread, which knows nothing of the request.
    """

    endpoint: str
    request_id: str
    observer: RequestObserver
    clock: Callable[[], float]
    owner: str = ""
    """The API key that its usage is counted for; "" without any."""
    adapter: str = ""
    """Name of the adapter; "" for the base model."""
    relaxed: Sequence[str] = ()
    """Keywords that are not enforced in its answers."""
    _context: contextvars.Context = field(default_factory=contextvars.copy_context)
    _arrived: float = field(init=False)
    _compiling: tuple[float, float] | None = None
    """Start of the first compilation, and end of the last."""
    _submitted: float | None = None
    _scheduled: float | None = None
    _first_token: float | None = None
    _chunks: dict[int, list[float]] = field(default_factory=dict)
    """Times of the chunks of each choice."""
    usage: dict[int, AnswerUsage] = field(default_factory=dict)
    """The latest counts of each choice that has any."""
    _prompt_tokens: int = 0
    _ended: bool = False

    def __post_init__(self) -> None:
        self._arrived = self.clock()

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Measures the wait for a constraint, whether it is compiled, found or refused."""
        began = self.clock()
        try:
            yield
        finally:
            first = began if self._compiling is None else self._compiling[0]
            self._compiling = (first, self.clock())

    def submitted(self, prompt_tokens: int) -> None:
        """The request goes to the engine; its prompts have so many tokens together."""
        self._submitted = self.clock()
        self._prompt_tokens = prompt_tokens

    def scheduled(self, moment: float) -> None:
        if self._scheduled is None:
            self._scheduled = moment

    def chunk(self, index: int, usage: AnswerUsage, moment: float) -> None:
        """A chunk of the choice ``index`` has come, and its counts so far."""
        chunks = self._chunks.get(index)
        if chunks is None:
            chunks = self._chunks[index] = []
            if self._first_token is None:
                self._first_token = moment
        chunks.append(moment)
        self.usage[index] = usage

    def end(self, *, status: int, finish_reason: str, error: Exception | None = None) -> None:
        """Report the request. ``status`` is the HTTP status, 499 for a client that left."""
        if self._ended:
            return
        self._ended, now = True, self.clock()
        started = now if self._scheduled is None else self._scheduled
        first = None if self._first_token is None else self._first_token - self._arrived
        answers = self.usage.values()
        usage = AnswerUsage.sum(answers)
        usage.prompt_tokens = self._prompt_tokens
        usage.cached_tokens = max((each.cached_tokens for each in answers), default=0)
        stats = RequestStats(
            endpoint=self.endpoint,
            owner=self.owner,
            adapter=self.adapter,
            status=status,
            finish_reason=finish_reason,
            error="" if error is None else type(error).__name__,
            relaxed=self.relaxed,
            queue_seconds=max(started - self._arrived, 0.0),
            time_to_first_token=first,
            e2e_seconds=now - self._arrived,
            inter_token_seconds=[
                after - before
                for moments in self._chunks.values()
                for before, after in pairwise(moments)
            ],
            phases=tuple(self._phases(now)),
            choices=len(self.usage),
            usage=usage,
        )
        self._context.run(self.observer.observe_request, stats)

    def _phases(self, now: float) -> Iterator[Phase]:
        """What the request went through, the last phase up to ``now`` where it broke off::

        arrival ... |-- compile --| ... |-- queue --|-- prefill --|---- decode ----| end
                                   submitted    scheduled    first chunk     last chunk
        """
        last = max((each[-1] for each in self._chunks.values()), default=None)
        moments: list[tuple[PhaseName, float | None, float | None]] = [
            ("compile", *(self._compiling or (None, None))),
            ("queue", self._submitted, self._scheduled),
            ("prefill", self._scheduled, self._first_token),
            ("decode", self._first_token, last),
        ]
        for name, start, end in moments:
            if start is not None:
                end = max(now if end is None else end, start)
                yield Phase(name, start - self._arrived, end - self._arrived)
