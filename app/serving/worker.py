"""The engine's own thread, and the event loop's side of it.

    event loop                                  engine's thread
    submit, abort ──── queue of commands ─────▶ add, abort
                                                step
    inboxes ◀───── a call or two a turn ─────── what was refused, scheduled, generated

The thread sleeps while the engine has no work. If a step raises, every request is failed with
``EngineDied`` and no new request is accepted: the process must be restarted. The same holds for a
step that hangs, which shows only in ``step_age``, the time since the last step ended.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from app.core.errors import DeviceFailed, EngineDied, LeapjsonError, RequestError, ShutDown
from app.core.events import StepOutput, TokenChunk
from app.core.request import EngineRequest, ServiceTier

T = TypeVar("T")


class Engine(Protocol):
    """The synchronous loop. Only the engine's thread calls ``add``, ``abort`` and ``step``."""

    urgent: Callable[[], bool]
    """Whether a request of a tier above flex waits to be added; set by the worker."""
    given_up: int
    """Number of steps interrupted for such requests. Any thread may read it."""

    def add(self, request: EngineRequest, /) -> None:
        """Queue a request, or raise a ``RequestError`` and leave the engine as it was."""

    def abort(self, request_id: str, /) -> object:
        """Forget a request; no effect on unknown ids."""

    def step(self) -> Iterator[StepOutput]:
        """Run one step, as far as what it yields is taken.

        Openings that need no computation come first, then what the step added.
        """

    @property
    def has_work(self) -> bool:
        """Whether another step would do anything."""

    @property
    def num_running(self) -> int:
        """Sequences that hold cache blocks. Any thread may read it."""

    @property
    def num_waiting(self) -> int:
        """Sequences queued for their first or next blocks. Any thread may read it."""

    @property
    def kv_usage(self) -> float:
        """Share of cache blocks that live sequences hold, 0 to 1. Any thread may read it."""

    @property
    def state_usage(self) -> float:
        """Share of the slots for recurrent states that they hold, 0 to 1; 0 for a model without.
        Any thread may read it."""


class Inbox(Protocol):
    """Where a request's chunks arrive; called on the event loop's thread."""

    def on_scheduled(self, moment: float) -> None:
        """A step that began at ``moment`` (of the worker's clock) scheduled a choice."""

    def on_chunk(self, chunk: TokenChunk, moment: float) -> None:
        """``moment``: when the step that made it reached the event loop."""

    def on_failure(self, error: LeapjsonError) -> None:
        """Nothing more will come."""


logger = logging.getLogger(__name__)

DEATH_NOTICE = "the engine died; the server must be restarted"

CUT_OFF = "the server shut down before the answer was complete"

RETRY_SECONDS = 5
"""Seconds until a retry of a request that was cut off: on another server, or after a restart."""

STALL_SECONDS = 120.0
"""Time without a finished step after which the engine counts as stuck."""


def _is_urgent(requests: Sequence[EngineRequest]) -> bool:
    return any(request.tier >= ServiceTier.DEFAULT for request in requests)


class EngineWorker:
    """Owns the engine and its thread, which runs ``_serve`` and the commands; every other method
    belongs to the event loop's thread, the properties to any."""

    def __init__(
        self, engine: Engine, *, clock: Callable[[], float], stall_seconds: float = STALL_SECONDS
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._stall_seconds = stall_seconds
        engine.urgent = self.has_urgent
        self._commands: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        """Run between steps, in order; None ends the thread."""
        self._busy_since: float | None = None
        """End of the thread's last turn, or time of its wake-up; None while it sleeps."""
        self._urgent_added = 0
        """Calls of ``_add`` with requests above flex. Written by the engine's thread alone."""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inboxes: dict[str, Inbox] = {}
        """Inboxes of unfinished choices, by request id."""
        self._waiting: set[asyncio.Future[Any]] = set()
        """Futures of pending ``between_steps`` calls."""
        self._ran: list[tuple[asyncio.Future[Any], object, Exception | None]] = []
        """Finished ``between_steps`` calls with results or errors, until the next hand-over."""
        self._urgent_submitted = 0
        self._dead = False
        self._death_lock = threading.Lock()
        self._death_reported = False

    @property
    def alive(self) -> bool:
        """Whether the engine's thread runs."""
        return not self._dead and self._thread is not None and self._thread.is_alive()

    @property
    def step_age(self) -> float:
        """Seconds since the engine's last step ended, while there is work; else 0."""
        since = self._busy_since
        return 0.0 if since is None or not self.alive else max(0.0, self._clock() - since)

    @property
    def stalled(self) -> bool:
        """Whether there is work and no step has ended for ``stall_seconds``."""
        return self.step_age > self._stall_seconds

    def has_urgent(self) -> bool:
        """Whether a request above flex waits to be added to the engine. Any thread."""
        return self._urgent_submitted > self._urgent_added

    def start(self) -> None:
        """Start the engine's thread; called on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="leapjson-engine", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Fail what is left and end the thread after the step it is in.

        One that is stuck is abandoned once ``stall_seconds`` have passed since its last step; at
        once, if the engine was ``lost``.
        """
        self.cut_off()
        self._commands.put(None)
        if self._thread is not None:
            left = 0.0 if self._dead else max(0.0, self._stall_seconds - self.step_age)
            await asyncio.to_thread(self._thread.join, left)
            if self._thread.is_alive() and not self._dead:
                logger.critical("the engine thread is stuck in a step; abandoning it")

    async def submit(self, requests: Sequence[EngineRequest], inbox: Inbox) -> None:
        """Add all of the requests or none; their chunks go to ``inbox``.

        Raises what the engine raised when it refused one of them, ``EngineDied`` or ``ShutDown``.
        Cancelling the call aborts the requests.
        """
        self._inboxes.update((request.request_id, inbox) for request in requests)
        self._urgent_submitted += _is_urgent(requests)
        try:
            await self.between_steps(functools.partial(self._add, requests))
        except BaseException:
            self.abort([request.request_id for request in requests])
            raise

    async def between_steps(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the engine's thread before its next step, even if this call is cancelled.
        Returns its result. Raises its error, ``EngineDied`` or ``ShutDown``."""
        if not self.alive:
            raise EngineDied(DEATH_NOTICE, retry_after=RETRY_SECONDS)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def command() -> None:
            try:
                self._ran.append((done, work(), None))
            except Exception as error:
                self._ran.append((done, None, error))

        self._waiting.add(done)
        self._commands.put(command)
        try:
            return await done
        finally:
            self._waiting.discard(done)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forget requests; nothing more reaches their inbox. Unknown ids are passed over."""
        known = [each for each in request_ids if self._inboxes.pop(each, None) is not None]
        if known:
            self._commands.put(lambda: [self._engine.abort(each) for each in known])

    def cut_off(self) -> None:
        """End every request with ``ShutDown``, or ``EngineDied`` if the engine hangs."""
        self._fail_all(EngineDied if self.stalled else ShutDown, CUT_OFF)

    def lose(self, why: str) -> None:
        """Fail every request with ``EngineDied``: no step will end any more. Any thread may call.

        ``why`` must not contain request data.
        """
        self._report_death(f": {why}")

    def _fail_all(self, kind: type[EngineDied | ShutDown], message: str) -> None:
        inboxes = dict.fromkeys(self._inboxes.values())
        self.abort(list(self._inboxes))
        for done in self._waiting:
            if not done.done():
                done.set_exception(kind(message, retry_after=RETRY_SECONDS))
        for inbox in inboxes:
            inbox.on_failure(kind(message, retry_after=RETRY_SECONDS))

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            # By default the log omits messages; this one contains no request data.
            self._report_death(f": {error}" if isinstance(error, DeviceFailed) else "", error)

    def _serve(self) -> None:
        """Run commands and steps until a command ends the thread; raises errors of a step."""
        engine = self._engine
        while True:
            is_idle = not engine.has_work
            if is_idle:
                self._busy_since = None
            while is_idle or not self._commands.empty():  # no other thread takes one
                command = self._commands.get()
                if is_idle:
                    self._busy_since, is_idle = self._clock(), False
                if command is None:
                    return
                command()
            began = self._clock()
            for output in engine.step() if engine.has_work else ():
                self._hand_over(output, began)
            if self._ran:
                self._hand_over(StepOutput(), began)
            self._busy_since = self._clock()

    def _add(self, requests: Sequence[EngineRequest]) -> None:
        """Add all or none, on the engine's thread."""
        self._urgent_added += _is_urgent(requests)
        try:
            for request in requests:
                self._engine.add(request)
        except Exception as error:
            for request in requests:
                self._engine.abort(request.request_id)
            if isinstance(error, RequestError):
                raise
            logger.error("a request could not be added", exc_info=error)
            fault = "internal error: the request could not be added to the engine"
            raise LeapjsonError(fault) from None

    def _hand_over(self, output: StepOutput, began: float) -> None:
        ran, self._ran = self._ran, []
        self._on_loop(self._receive, ran, output, began)

    def _report_death(self, why: str, error: BaseException | None = None) -> None:
        with self._death_lock:
            first, self._death_reported = not self._death_reported, True
        if first:
            logger.critical("the engine died%s", why, exc_info=error)
            self._on_loop(self._die)

    def _on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        # Once the loop is closed no inbox is left, and no future is waited for.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)

    def _receive(
        self,
        ran: Sequence[tuple[asyncio.Future[Any], object, Exception | None]],
        output: StepOutput,
        began: float,
    ) -> None:
        """Take what one turn of the engine's thread has; its step ``began`` at that moment."""
        for done, result, error in ran:
            if done.done():
                continue
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)
        for request_id in output.scheduled:
            if (inbox := self._inboxes.get(request_id)) is not None:
                inbox.on_scheduled(began)
        now = self._clock()
        for chunk in output.chunks:
            if (inbox := self._inboxes.get(chunk.request_id)) is None:
                continue
            if chunk.finish_reason is not None:
                del self._inboxes[chunk.request_id]
            inbox.on_chunk(chunk, now)

    def _die(self) -> None:
        self._dead = True
        self._fail_all(EngineDied, DEATH_NOTICE)
