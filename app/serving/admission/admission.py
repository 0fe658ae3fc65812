"""Bounds on what is alive at once, and the ticket that a request holds of it."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from app.core.errors import Draining, InvalidRequest, Overload, QueueFull
from app.serving.admission.drain_rate import DrainRate
from app.serving.admission.tenant_quota import TenantQuota
from app.serving.deadline import Deadline

LONGEST_RETRY = 120
"""Seconds. The OpenAI SDK ignores a longer ``Retry-After``."""

BODY_RETRY = 1
"""Seconds. Most bodies are read in less."""

IMAGE_RETRY = 5
"""Seconds. They are held for as long as answers run."""

HORIZON = 30
"""Seconds up to which retries are spread. Not all refused requests come back, so the spreading
alone sends none further away."""


class Ticket:
    """One request between its arrival and its end, and what it holds of the server::

        Admission.enter ── reading ── take ── claim ── start (each answer) ── leave

    It may leave from anywhere, and gives everything back then.
    """

    def __init__(self, admission: Admission, tenant: str, arrived: float) -> None:
        self.tenant = tenant
        self.arrived = arrived
        """Of the admission's clock."""
        self.answers = 0
        """Places that it holds."""
        self.started = 0
        """Answers that no longer wait."""
        self.tokens = 0
        self.body_bytes = 0
        self.image_bytes = 0
        self.left = False
        self._admission = admission

    @property
    def waiting_tokens(self) -> int:
        """Tokens of the answers that have not started, which are taken to be alike."""
        return self.tokens - self.tokens * self.started // max(self.answers, 1)

    def deadline(self, asked: float | None = None) -> Deadline:
        """``asked`` seconds after the arrival; by default the most that a request may take.

        Raises ``InvalidRequest`` for more than that.
        """
        longest, age = self._admission.request_seconds, self._admission.clock() - self.arrived
        if asked is not None and asked > longest:
            raise InvalidRequest(
                f"timeout is {asked:g} and the limit is {longest:g} s", param="timeout"
            )
        seconds = longest if asked is None else asked
        arrived = asyncio.get_running_loop().time() - age
        return Deadline(arrived + seconds, seconds, asked is not None)

    @contextmanager
    def reading(self) -> Iterator[Callable[[int], None]]:
        """While the body is read. Yields a function to call with the size of each part first.

        It raises ``QueueFull`` where the bodies that are being read leave no room for the part.
        What was only announced takes no room, so whoever holds others' room has sent as much.
        """
        try:
            yield lambda size: self._admission._keep(self, size)
        finally:
            self._admission._forget_body(self)

    def hold_images(self, size: int) -> None:
        """Hold so many bytes of images more, until it leaves.

        Raises ``InvalidRequest`` where one request may not have as many, and ``QueueFull`` where
        others leave no room for them.
        """
        self._admission._hold_images(self, size)

    def take(self, answers: int) -> None:
        """Take places for so many answers. Called once; raises ``QueueFull`` or ``Draining``."""
        assert not self.answers, "places are taken once"
        assert not self.left, "it has left"
        self._admission._take(self, answers)

    def claim(self, tokens: int, within: float) -> None:
        """Say how many tokens the answers may have, their prompts included. Called once.

        Raises ``QueueFull`` where too many wait already, or the answers would still wait
        ``within`` seconds from now.
        """
        assert self.answers, "only what has its places waits"
        assert not self.tokens, "tokens are claimed once"
        self._admission._claim(self, tokens, within)

    def start(self) -> None:
        """One of the answers runs. Further calls than there are answers do nothing."""
        if self.started < self.answers and not self.left:
            before = self.waiting_tokens
            self.started += 1
            self._admission._no_longer_wait(self.tenant, 1, before - self.waiting_tokens)

    def leave(self) -> None:
        """Give everything back. Calling it again does nothing."""
        if not self.left:
            self.left = True
            self._admission._leave(self)


class Admission:
    """Bounds on live answers (compiling, queued and running), and the door for shutting down.

    ``capacity`` counts answers, not requests: a request with n choices takes n places. ``running``
    of them run at a time. ``max_queue_tokens`` bounds the tokens of those that wait; a request
    that finds none waiting is not held to it. ``max_body_bytes`` bounds the bodies that are being
    read, ``max_image_bytes`` the images of the requests that are served. One tenant alone can take
    all of each, several together somewhat more, see ``TenantQuota``. Used on the event loop's
    thread alone.
    """

    def __init__(
        self,
        capacity: int,
        *,
        clock: Callable[[], float],
        on_rejection: Callable[[str], None] = lambda code: None,
        running: int = 0,
        max_queue_tokens: int | None = None,
        max_body_bytes: int = 256 << 20,
        max_image_bytes: int = 1 << 30,
        tenant_share: float = 1.0,
        request_seconds: float = 3600.0,
        window_seconds: float = 30.0,
    ) -> None:
        """``on_rejection`` is called with the error's code for each request that is refused.

        ``request_seconds``: the most that a request may take from its arrival, or ask for.
        """
        self.clock = clock
        self._on_rejection = on_rejection
        self._running = running
        self.request_seconds = request_seconds
        self._window = window_seconds
        self._places = TenantQuota(capacity, tenant_share)
        self._tokens = TenantQuota(max_queue_tokens or sys.maxsize, tenant_share)
        """Of the answers that wait."""
        self._bodies = TenantQuota(max_body_bytes, tenant_share)
        self._images = TenantQuota(max_image_bytes, tenant_share)
        self._waiting: dict[str, int] = {}
        """Answers that wait, by tenant."""
        self._rate = DrainRate(clock, window_seconds)
        self._returning: dict[int, int] = {}
        """Places that refused requests should ask for again, by the second of the clock."""
        self.draining = False
        """Whether nothing is admitted any more: see ``drain``."""
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def live(self) -> int:
        """Answers that hold a place."""
        return self._places.used

    @property
    def body_bytes(self) -> int:
        """Bytes of the bodies that are being read."""
        return self._bodies.used

    @property
    def image_bytes(self) -> int:
        """Bytes of the images that requests hold."""
        return self._images.used

    def enter(self, tenant: str = "", *, queues: bool = True) -> Ticket:
        """A ticket for a request that arrives now. It holds nothing yet.

        Raises ``QueueFull`` or ``Draining`` where not even one answer more has room: of an
        overload's many, reading those that are refused would take the time from those that are
        answered. A request that never ``queues`` is not refused.
        """
        if queues:
            self._check(tenant, 1)
        return Ticket(self, tenant, self.clock())

    def drain(self) -> None:
        """From now on admit nothing."""
        self.draining = True

    async def wait_idle(self) -> None:
        """Return once no answer holds a place."""
        await self._idle.wait()

    def _keep(self, ticket: Ticket, size: int) -> None:
        if self._bodies.missing(ticket.tenant, size) > 0:
            self._refuse(
                f"the bodies of requests that are being read have {self.body_bytes} bytes together "
                f"and the limit is {self._bodies.alone}; retry later",
                BODY_RETRY,
                "bodies_full",
            )
        self._bodies.take(ticket.tenant, size)
        ticket.body_bytes += size

    def _forget_body(self, ticket: Ticket) -> None:
        self._bodies.give(ticket.tenant, ticket.body_bytes)
        ticket.body_bytes = 0

    def _hold_images(self, ticket: Ticket, size: int) -> None:
        total, most = ticket.image_bytes + size, self._images.alone
        if total > most:
            raise InvalidRequest(
                f"the images of this request take {total} bytes and the limit is {most}; send "
                "fewer or smaller ones",
                role="prompt",
            )
        if self._images.missing(ticket.tenant, size) > 0:
            self._refuse(
                f"the images of the requests that are served take {self.image_bytes} bytes and the "
                f"limit is {most}; retry later",
                IMAGE_RETRY,
                "images_full",
            )
        self._images.take(ticket.tenant, size)
        ticket.image_bytes += size

    def _check(self, tenant: str, size: int) -> None:
        if self.draining:
            error = Draining("the server is shutting down and takes no new requests", retry_after=5)
            self._on_rejection(error.code)
            raise error
        places = self._places
        assert size <= places.alone, "no request asks for more places than there are"
        missing = places.missing(tenant, size)
        if missing > 0:
            self._refuse(
                f"the queue is full: {self.live} answers are queued or running and the limit is "
                f"{places.alone}; retry later",
                self._spread_retry(size, missing),
            )

    def _take(self, ticket: Ticket, answers: int) -> None:
        self._check(ticket.tenant, answers)
        ticket.answers = answers
        self._places.take(ticket.tenant, answers)
        self._waiting[ticket.tenant] = self._waiting.get(ticket.tenant, 0) + answers
        self._idle.clear()
        self._rate.note(overloaded=self.live > self._running)

    def _claim(self, ticket: Ticket, tokens: int, within: float) -> None:
        seconds, within = self._expected_wait(ticket), max(within, 0.0)
        if seconds is not None and seconds > within:
            self._refuse(
                f"an answer would be waited for longer than the request may take: about "
                f"{math.ceil(seconds)} s until it starts, and {within:.3g} s are left; raise "
                "timeout or retry later",
                seconds - within,
                "wait_too_long",
            )
        missing = self._tokens.missing(ticket.tenant, tokens)
        if self._tokens.used and missing > 0:
            self._refuse(
                f"the queue is full: {self._tokens.used} tokens wait, prompts and max_tokens, "
                f"these would be {tokens} more and the limit is {self._tokens.alone}; shorten "
                "them or retry later",
                self._rate.seconds_for_tokens(missing),
                "queue_tokens_full",
            )
        ticket.tokens = tokens
        self._tokens.take(ticket.tenant, tokens)

    def _leave(self, ticket: Ticket) -> None:
        self._forget_body(ticket)
        self._images.give(ticket.tenant, ticket.image_bytes)
        ticket.image_bytes = 0
        if not ticket.answers:
            return
        left_tokens = ticket.waiting_tokens
        self._no_longer_wait(ticket.tenant, ticket.answers - ticket.started, left_tokens)
        # One that left before it ran says nothing of how fast answers are made.
        self._rate.count(ticket.started, ticket.tokens - left_tokens)
        self._places.give(ticket.tenant, ticket.answers)
        self._rate.note(overloaded=self.live > self._running)
        if self.live == 0:
            self._idle.set()

    def _no_longer_wait(self, tenant: str, answers: int, tokens: int) -> None:
        left = self._waiting.pop(tenant, 0) - answers
        assert left >= 0, "an answer stopped waiting twice"
        if left:
            self._waiting[tenant] = left
        self._tokens.give(tenant, tokens)

    def _expected_wait(self, ticket: Ticket) -> float | None:
        """Seconds until the ticket's first answer should start; None where nothing is known.

        Tenants take turns, so before it come its tenant's own and as many of each other tenant.
        """
        if self.live <= self._running:
            return 0.0
        waiting = sum(self._waiting.values())
        others = waiting - ticket.answers
        own = self._waiting[ticket.tenant] - ticket.answers
        ahead = min(others, (own + 1) * len(self._waiting))
        share = ahead / others if others else 0.0
        return self._rate.seconds_for(ahead, share * self._tokens.used)

    def _spread_retry(self, size: int, missing: int) -> float | None:
        """Seconds until ``size`` places should be free, where ``missing`` have to be given back.

        A burst that is refused would come back at one moment if each were told when the next place
        gets free: so each comes behind those that were refused before. None: nothing is known.
        """
        seconds = self._rate.seconds_for_answers(missing)
        if seconds is None:
            return None
        now = self.clock()
        self._returning = {each: self._returning[each] for each in self._returning if each > now}
        before = sum(self._returning.values())
        seconds = max(seconds, min(self._rate.seconds_for_answers(missing + before) or 0, HORIZON))
        if seconds <= HORIZON:
            second = int(now + seconds) + 1
            self._returning[second] = self._returning.get(second, 0) + size
        return seconds

    def _refuse(
        self, message: str, seconds: float | None, code: Overload = "queue_full"
    ) -> NoReturn:
        """``seconds``: after how many to retry; None: nothing is known."""
        seconds = self._window if seconds is None else seconds
        retry_after = max(1, min(LONGEST_RETRY, math.ceil(seconds)))
        self._on_rejection(code)
        raise QueueFull(message, retry_after=retry_after, code=code)
