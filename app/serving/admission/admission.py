"""How much may be alive at once, shared between tenants, and what is told to who is too many."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from fractions import Fraction

from app.core.errors import Draining, QueueFull
from app.serving.admission.appointments import HORIZON, Appointments
from app.serving.admission.drain_rate import DrainRate
from app.serving.admission.tenant_quota import SharedRoom

LONGEST_RETRY = 120
"""Seconds. The OpenAI SDK ignores a longer ``Retry-After``."""


class Ticket:
    """Room for the ``size`` answers of one request, until released.

    Each of them waits until ``start`` is called for it.
    """

    def __init__(self, admission: Admission, tenant: str, size: int) -> None:
        self.tenant = tenant
        self.size = size
        self.tokens = 0
        self.started = 0
        self._admission = admission
        self._released = False

    @property
    def waiting_tokens(self) -> int:
        """Tokens of the answers that have not started, which are taken to be alike."""
        return self.tokens - self.tokens * self.started // self.size

    def claim(self, tokens: int, within: float) -> None:
        """Say how many tokens the answers may have, their prompts included. Called once.

        Raises ``QueueFull`` where too many wait already, or the answers would still wait
        ``within`` seconds from now; the ticket is to be released all the same.
        """
        self._admission._claim(self, tokens, within)

    def start(self) -> None:
        """One of the answers runs. Further calls than there are answers do nothing."""
        if self.started < self.size and not self._released:
            self._admission._start(self)

    def release(self) -> None:
        """Give the room back. Calling it again does nothing."""
        if not self._released:
            self._released = True
            self._admission._leave(self)


class Admission:
    """Bounds on live answers (compiling, queued and running), and the door for shutting down.

    ``capacity`` counts answers, not requests: a request with n choices takes n places. ``running``
    of them run at a time. ``max_queue_tokens`` bounds the tokens of those that wait; a request
    that finds none waiting is not held to it. One tenant alone can take all of either, several
    together somewhat more, see ``SharedRoom``. Used on the event loop's thread alone.
    """

    def __init__(
        self,
        capacity: int,
        *,
        clock: Callable[[], float],
        running: int = 0,
        max_queue_tokens: int | None = None,
        tenant_share: float = 1.0,
        window_seconds: float = 30.0,
    ) -> None:
        share = Fraction(tenant_share).limit_denominator(1000)
        self._places = SharedRoom(capacity, share)
        self._tokens = None if max_queue_tokens is None else SharedRoom(max_queue_tokens, share)
        self._running = running
        self._waiting: dict[str, int] = {}
        """Answers that wait, by tenant."""
        self._waiting_tokens = 0
        self._rate = DrainRate(clock, window_seconds)
        self._appointments = Appointments(clock)
        self._window = window_seconds
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def live(self) -> int:
        """Answers that hold a place."""
        return self._places.used

    @property
    def draining(self) -> bool:
        return self._draining

    def check(self, size: int, tenant: str = "") -> None:
        """Raise ``QueueFull`` or ``Draining`` if ``size`` places cannot be had now."""
        if self._draining:
            raise Draining("the server is shutting down and takes no new requests", retry_after=5)
        places = self._places
        assert size <= places.alone, "no request asks for more places than there are"
        missing = places.missing(tenant, size)
        if missing > 0:
            raise self._queue_full(size, missing)

    def admit(self, size: int, tenant: str = "") -> Ticket:
        """Take ``size`` places. Raises as ``check`` does."""
        self.check(size, tenant)
        self._places.take(tenant, size)
        self._waiting[tenant] = self._waiting.get(tenant, 0) + size
        self._idle.clear()
        self._note_load()
        return Ticket(self, tenant, size)

    def drain(self) -> None:
        """From now on admit nothing."""
        self._draining = True

    async def wait_idle(self) -> None:
        """Return once no answer holds a place."""
        await self._idle.wait()

    def _queue_full(self, size: int, missing: int) -> QueueFull:
        seconds = self._rate.seconds_for_answers(missing)
        if seconds is not None:
            later = self._rate.seconds_for_answers(missing + len(self._appointments))
            seconds = max(seconds, min(later or 0.0, HORIZON))
            self._appointments.make(seconds, size)
        return QueueFull(
            f"the queue is full: {self.live} answers are queued or running and the limit is "
            f"{self._places.alone}; retry later",
            retry_after=self._retry_after(seconds),
        )

    def _claim(self, ticket: Ticket, tokens: int, within: float) -> None:
        assert not ticket.tokens, "claimed twice"
        seconds = self._expected_wait(ticket)
        if seconds is not None and seconds > within:
            raise QueueFull(
                f"an answer would be waited for longer than the request may take: about "
                f"{math.ceil(seconds)} s until it starts, and {within:.3g} s are left; raise "
                "timeout or retry later",
                retry_after=self._retry_after(seconds - within),
                code="wait_too_long",
            )
        if self._tokens is not None and self._waiting_tokens:
            missing = self._tokens.missing(ticket.tenant, tokens)
            if missing > 0:
                raise QueueFull(
                    f"the queue is full: {self._waiting_tokens} tokens wait, prompts and "
                    f"max_tokens, these would be {tokens} more and the limit is "
                    f"{self._tokens.alone}; shorten them or retry later",
                    retry_after=self._retry_after(self._rate.seconds_for_tokens(missing)),
                    code="queue_tokens_full",
                )
        ticket.tokens = tokens
        self._waiting_tokens += tokens
        if self._tokens is not None:
            self._tokens.take(ticket.tenant, tokens)

    def _start(self, ticket: Ticket) -> None:
        before = ticket.waiting_tokens
        ticket.started += 1
        self._no_longer_wait(ticket.tenant, 1, before - ticket.waiting_tokens)

    def _leave(self, ticket: Ticket) -> None:
        left_tokens = ticket.waiting_tokens
        self._no_longer_wait(ticket.tenant, ticket.size - ticket.started, left_tokens)
        # One that left before it ran says nothing of how fast answers are made.
        self._rate.count(ticket.started, ticket.tokens - left_tokens)
        self._places.give(ticket.tenant, ticket.size)
        self._note_load()
        if self.live == 0:
            self._idle.set()

    def _no_longer_wait(self, tenant: str, answers: int, tokens: int) -> None:
        left = self._waiting.pop(tenant, 0) - answers
        assert left >= 0, "an answer stopped waiting twice"
        if left:
            self._waiting[tenant] = left
        self._waiting_tokens -= tokens
        if self._tokens is not None:
            self._tokens.give(tenant, tokens)

    def _note_load(self) -> None:
        self._rate.note(overloaded=self.live > self._running)

    def _expected_wait(self, ticket: Ticket) -> float | None:
        """Seconds until the ticket's first answer should start; None where nothing is known.

        Tenants take turns, so before it come its tenant's own and as many of each other tenant.
        """
        if self.live <= self._running:
            return 0.0
        waiting = sum(self._waiting.values())
        others = waiting - ticket.size
        own = self._waiting[ticket.tenant] - ticket.size
        ahead = min(others, (own + 1) * len(self._waiting))
        share = ahead / others if others else 0.0
        return self._rate.seconds_for(ahead, share * self._waiting_tokens)

    def _retry_after(self, seconds: float | None) -> int:
        """In whole seconds, and what clients obey; None: nothing is known."""
        seconds = self._window if seconds is None else seconds
        return max(1, min(LONGEST_RETRY, math.ceil(seconds)))
