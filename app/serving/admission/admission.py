"""Bounds on what is alive at once, and the ticket that a request holds of it."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from app.core.errors import DeadlineExceeded, Draining, InvalidRequest, Overload, QueueFull
from app.core.request import ServiceTier
from app.serving.admission.bounds import DrainRate, TenantQuota


@dataclass(frozen=True, slots=True)
class Deadline:
    """Time by which a request has to be answered, on the running event loop's clock."""

    moment: float
    seconds: float
    """Time limit, counted from the request's arrival."""
    asked: bool
    """Whether the client set the limit; otherwise it is the server's."""

    @property
    def left(self) -> float:
        """Seconds."""
        return self.moment - asyncio.get_running_loop().time()

    def exceeded(self, what: str) -> DeadlineExceeded:
        """The error of a request whose time has passed; ``what`` it did not get to."""
        whose = "its timeout" if self.asked else "the limit LEAPJSON_REQUEST_SECONDS"
        return DeadlineExceeded(f"{what} within {self.seconds:g} s, {whose}")

    @asynccontextmanager
    async def holds(self, what: str) -> AsyncIterator[None]:
        """Cancels what is done inside when the time has passed, and raises ``DeadlineExceeded``.

        If it has passed already nothing is begun.
        """
        if self.left <= 0:
            raise self.exceeded(what)
        limit = asyncio.timeout_at(self.moment)
        try:
            async with limit:
                yield
        except TimeoutError:
            if limit.expired():
                raise self.exceeded(what) from None
            raise


LONGEST_RETRY = 120
"""Seconds. The OpenAI SDK ignores a longer ``Retry-After``."""

UPLOADS = 8
"""Maximum uploads of one tenant alone at a time: each has a file on disk until it is stored."""

BODY_RETRY = 1
"""Seconds until a retry when too many bodies are being read: most take less."""

IMAGE_RETRY = 5
"""Seconds until a retry when images fill the memory, which running answers hold."""

HORIZON = 30
"""Seconds over which retries are spread. Not all refused requests come back, so spreading alone
never delays a retry beyond this."""


class Ticket:
    """The resources of one request, from its arrival to its end::

        Admission.enter ── reading ── take ── claim ── start (each answer) ── leave

    ``leave`` is possible at any point, and gives everything back.
    """

    def __init__(
        self,
        admission: Admission,
        tenant: str,
        arrived: float,
        tier: ServiceTier = ServiceTier.DEFAULT,
        highest: ServiceTier = ServiceTier.DEFAULT,
    ) -> None:
        self.tenant = tenant
        self.tier = tier
        """Tier of its answers; set by ``take``."""
        self.highest = highest
        """The highest tier that it may ask for."""
        self.arrived = arrived
        """Arrival time, on the admission's clock."""
        self.answers = 0
        """Places that it holds."""
        self.started = 0
        """Answers that no longer wait."""
        self.tokens = 0
        self.size = 0
        """Bytes of the body, once it is read."""
        self.body_bytes = 0
        self.image_bytes = 0
        self.left = False
        self.flex_alone = False
        """Whether, on arrival, only the flex queue had room for an answer."""
        self._admission = admission
        self._releases: list[Callable[[], None]] = []

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
    def reading(self) -> Iterator[None]:
        """While the body is read; gives its room back at the end."""
        try:
            yield
        finally:
            self._forget_body()

    def hold_body(self, size: int) -> None:
        """Hold a part of the body, before it is kept.

        Raises ``QueueFull`` where the bodies that are being read leave no room for it. Only bytes
        that have come take room: a client that holds others' room has sent as many.
        """
        what = "bytes of request bodies being read"
        self._hold(self._admission.bodies, size, what, BODY_RETRY, "bodies_full")
        self.body_bytes += size

    def _forget_body(self) -> None:
        self._admission.bodies.give(self.tenant, self.body_bytes)
        self.body_bytes = 0

    def admit(self, body: bytes | bytearray) -> None:
        """Raises ``QueueFull`` if only flex has room and ``body`` does not ask for flex."""
        self.size = len(body)
        if self.flex_alone and b"flex" not in body:
            self._admission.check(self, 1)

    def hold_images(self, size: int) -> None:
        """Hold ``size`` more bytes of images until the request leaves.

        Raises ``InvalidRequest`` if they exceed the limit of one request, and ``QueueFull`` if
        other requests leave no room.
        """
        images = self._admission.images
        if (total := self.image_bytes + size) > images.alone:
            raise InvalidRequest(
                f"the images of this request take {total} bytes and the limit is {images.alone}; "
                "send fewer or smaller ones",
                role="prompt",
            )
        what = "bytes of images of current requests"
        self._hold(images, size, what, IMAGE_RETRY, "images_full")
        self.image_bytes += size

    def hold_upload(self) -> None:
        """Hold a place for an upload until the request leaves. Raises ``QueueFull``."""
        uploads = self._admission.uploads
        self._hold(uploads, 1, "files being uploaded", 5, "bodies_full")
        self.on_leave(lambda: uploads.give(self.tenant, 1))

    def _hold(self, quota: TenantQuota, size: int, what: str, retry: float, code: Overload) -> None:
        if quota.missing(self.tenant, size) > 0:
            self._admission.refuse(
                f"there are {quota.used} {what} and the limit is {quota.alone}; retry later",
                retry,
                code,
            )
        quota.take(self.tenant, size)

    def release_images(self, size: int) -> None:
        """Give back ``size`` bytes of images; no effect after ``leave``."""
        if not self.left:
            self.image_bytes -= size
            self._admission.images.give(self.tenant, size)

    def take(self, answers: int, asked: ServiceTier = ServiceTier.DEFAULT) -> None:
        """Take places for so many answers. Called once; raises ``QueueFull`` or ``Draining``.

        ``asked``: tier that the client asks for, lowered to ``highest``. Batch lines keep their
        tier.
        """
        assert not self.answers, "places are taken once"
        assert not self.left, "it has left"
        if self.tier != ServiceTier.BATCH:
            self.tier = min(asked, self.highest)
        self._admission.check(self, answers)
        queue = self._admission.queue_of(self)
        self.answers = answers
        queue.places.take(self.tenant, answers)
        queue.waiting[self.tenant] = queue.waiting.get(self.tenant, 0) + answers
        self._admission.note(queue)

    def claim(self, tokens: int, within: float) -> None:
        """Claim room for the tokens of the answers and their prompts. Called once.

        Raises ``QueueFull`` if too many tokens are waiting, or if the answers would not start
        ``within`` so many seconds.
        """
        assert self.answers, "only what has its places waits"
        assert not self.tokens, "tokens are claimed once"
        queue = self._admission.queue_of(self)
        seconds, within = self._admission.expected_wait(queue, self), max(within, 0.0)
        if seconds is not None and seconds > within:
            self._admission.refuse(
                f"the answer would not start in time: in about {math.ceil(seconds)} s, and the "
                f"request's timeout leaves {within:.3g} s; raise timeout or retry later",
                seconds - within,
                "wait_too_long",
            )
        missing = queue.tokens.missing(self.tenant, tokens)
        if queue.tokens.used and missing > 0:
            self._admission.refuse(
                f"the queue is full: {queue.tokens.used} tokens are waiting (prompts and "
                f"max_tokens), this request adds {tokens} and the limit is {queue.tokens.alone}; "
                "shorten it or retry later",
                queue.rate.seconds_for_tokens(missing),
                "queue_tokens_full",
            )
        self.tokens = tokens
        queue.tokens.take(self.tenant, tokens)

    def start(self) -> None:
        """One of the answers runs. Further calls than there are answers do nothing."""
        if self.started < self.answers and not self.left:
            before = self.waiting_tokens
            self.started += 1
            self._no_longer_wait(1, before - self.waiting_tokens)

    def on_leave(self, release: Callable[[], None]) -> None:
        """Call ``release`` when it leaves."""
        self._releases.append(release)

    def leave(self) -> None:
        """Give everything back. Calling it again does nothing."""
        if self.left:
            return
        self.left = True
        self._forget_body()
        self._admission.images.give(self.tenant, self.image_bytes)
        self.image_bytes = 0
        if self.answers:
            left_tokens = self.waiting_tokens
            self._no_longer_wait(self.answers - self.started, left_tokens)
            queue = self._admission.queue_of(self)
            # Only answers that ran count for the rate.
            queue.rate.count(self.started, self.tokens - left_tokens)
            queue.places.give(self.tenant, self.answers)
            self._admission.note(queue)
        for release in self._releases:
            release()

    def _no_longer_wait(self, answers: int, tokens: int) -> None:
        queue = self._admission.queue_of(self)
        left = queue.waiting.pop(self.tenant, 0) - answers
        assert left >= 0, "an answer stopped waiting twice"
        if left:
            queue.waiting[self.tenant] = left
        queue.tokens.give(self.tenant, tokens)


@dataclass(slots=True)
class _Queue:
    """Places and waiting answers of the tiers that share a queue."""

    places: TenantQuota
    tokens: TenantQuota
    """Tokens of the waiting answers."""
    rate: DrainRate
    waiting: dict[str, int] = field(default_factory=dict)
    """Answers that wait, by tenant."""
    returning: dict[int, int] = field(default_factory=dict)
    """Places of refused requests that are expected back, by second of the clock."""


class Admission:
    """Bounds on live answers (compiling, queued and running), and the door for shutting down.

    ``capacity`` counts answers, not requests: a request with n choices takes n places. ``running``
    of them run at a time. ``max_queue_tokens`` bounds the tokens of those that wait; a request
    that finds none waiting is not held to it. ``max_body_bytes`` bounds the bodies that are being
    read, ``max_image_bytes`` the images of the requests that are served. One tenant alone can take
    all of each, several together somewhat more, see ``TenantQuota``. Flex requests and lines of
    batches have a queue of their own, as large, so that they take no room from others. Used on the
    event loop's thread alone.
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
        self._queue, self._background = (
            _Queue(
                TenantQuota(capacity, tenant_share),
                TenantQuota(max_queue_tokens or sys.maxsize, tenant_share),
                DrainRate(clock, window_seconds),
            )
            for _ in range(2)
        )
        self.bodies = TenantQuota(max_body_bytes, tenant_share)
        self.images = TenantQuota(max_image_bytes, tenant_share)
        self.uploads = TenantQuota(UPLOADS, tenant_share)
        self.draining = False
        """Whether nothing is admitted any more: see ``drain``."""
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def live(self) -> int:
        """Answers that hold a place."""
        return self._queue.places.used + self._background.places.used

    def enter(
        self,
        tenant: str = "",
        *,
        queues: bool = True,
        batch: bool = False,
        highest: ServiceTier = ServiceTier.DEFAULT,
    ) -> Ticket:
        """A ticket for a request that arrives now. It holds nothing yet.

        ``batch``: the request is a batch line; ``highest``: highest tier its client may ask for.

        Raises ``QueueFull`` or ``Draining`` if not even one answer has room: in an overload,
        reading bodies only to refuse them would take time from accepted requests. A request that
        does not ``queue`` is never refused. If only flex has room the request is not refused yet,
        since its body may ask for flex: see ``Ticket.admit``.
        """
        tier = ServiceTier.BATCH if batch else ServiceTier.DEFAULT
        ticket = Ticket(self, tenant, self.clock(), tier, highest)
        if queues:
            full, flex_full = (
                each.places.missing(tenant, 1) > 0 for each in (self._queue, self._background)
            )
            ticket.flex_alone = not batch and full and not flex_full
            if self.draining or not ticket.flex_alone:
                self.check(ticket, 1)
        return ticket

    def drain(self) -> None:
        """From now on admit nothing."""
        self.draining = True

    async def wait_idle(self) -> None:
        """Return once no answer holds a place."""
        await self._idle.wait()

    def queue_of(self, ticket: Ticket) -> _Queue:
        return self._queue if ticket.tier >= ServiceTier.DEFAULT else self._background

    def check(self, ticket: Ticket, size: int) -> None:
        """Raises ``QueueFull`` or ``Draining`` if there is no room for ``size`` more answers."""
        if self.draining:
            error = Draining("the server is shutting down; retry later", retry_after=5)
            self._on_rejection(error.code)
            raise error
        queue = self.queue_of(ticket)
        places = queue.places
        assert size <= places.alone, "no request asks for more places than there are"
        missing = places.missing(ticket.tenant, size)
        if missing > 0:
            self.refuse(
                f"the queue is full: {places.used} answers are queued or running and the limit is "
                f"{places.alone}; retry later",
                self._spread_retry(queue, size, missing),
            )

    def note(self, queue: _Queue) -> None:
        """Note that places of ``queue`` were taken or given back."""
        queue.rate.note(overloaded=queue.places.used > self._running)
        if self.live == 0:
            self._idle.set()
        else:
            self._idle.clear()

    def expected_wait(self, queue: _Queue, ticket: Ticket) -> float | None:
        """Seconds until the ticket's first answer should start; None where nothing is known.

        Tenants take turns, so before it come its tenant's own and as many of each other tenant.
        """
        if queue.places.used <= self._running:
            return 0.0
        others = sum(queue.waiting.values()) - ticket.answers
        own = queue.waiting[ticket.tenant] - ticket.answers
        ahead = min(others, (own + 1) * len(queue.waiting))
        share = ahead / others if others else 0.0
        return queue.rate.seconds_for(ahead, share * queue.tokens.used)

    def _spread_retry(self, queue: _Queue, size: int, missing: int) -> float | None:
        """Seconds until ``size`` places should be free, where ``missing`` have to be given back.

        If all retried when the next place gets free, a burst would come back at once, so each
        retry is scheduled after those of earlier refusals. None: nothing is known.
        """
        seconds = queue.rate.seconds_for_answers(missing)
        if seconds is None:
            return None
        now = self.clock()
        queue.returning = {each: queue.returning[each] for each in queue.returning if each > now}
        before = sum(queue.returning.values())
        seconds = max(seconds, min(queue.rate.seconds_for_answers(missing + before) or 0, HORIZON))
        if seconds <= HORIZON:
            second = int(now + seconds) + 1
            queue.returning[second] = queue.returning.get(second, 0) + size
        return seconds

    def refuse(
        self, message: str, seconds: float | None, code: Overload = "queue_full"
    ) -> NoReturn:
        """``seconds``: time until a retry; None: unknown."""
        seconds = self._window if seconds is None else seconds
        retry_after = max(1, min(LONGEST_RETRY, math.ceil(seconds)))
        self._on_rejection(code)
        raise QueueFull(message, retry_after=retry_after, code=code)
