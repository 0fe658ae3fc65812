"""The engine's own thread, and the event loop's side of it.

    event loop                                  engine's thread
    submit, abort ──── command queue ─────────▶ add, abort
                                                step
    inboxes ◀──── a HandOver or two a turn ──── what was refused, scheduled, generated

The thread sleeps while the engine has no work. If a step raises, every request is failed with
``EngineDied`` and nothing new is taken: a process that has lost its engine must be restarted.
So must one whose step does not come back, which shows only in how long ago the last one ended.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.core.errors import EngineDied, LeapjsonError, RequestError, ShutDown
from app.core.events import StepOutput, TokenChunk
from app.core.request import EngineRequest
from app.serving.ports import Engine

logger = logging.getLogger(__name__)

DEATH_NOTICE = "the engine died; the server has to be restarted"

CUT_OFF = "the server was shut down before the answer was finished"

SHUT_DOWN_RETRY = 5
"""Seconds until a request that was cut off may try again: on another server, or after a restart."""

STALL_SECONDS = 120.0
"""A step takes so long at most, unless the thread hangs in it."""


class Inbox(Protocol):
    """Where a request's chunks arrive; called on the event loop's thread."""

    def on_scheduled(self, moment: float) -> None:
        """A step that began at ``moment`` (of the worker's clock) scheduled a choice."""

    def on_chunk(self, chunk: TokenChunk) -> None: ...

    def on_failure(self, error: LeapjsonError) -> None:
        """Nothing more will come."""


@dataclass(frozen=True, slots=True)
class _Add:
    ticket: int
    requests: tuple[EngineRequest, ...]


@dataclass(frozen=True, slots=True)
class _Abort:
    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Command = _Add | _Abort | _Stop


_Added = list[tuple[int, LeapjsonError | None]]
"""Tickets of ``_Add`` commands, each with the error that refused it."""


@dataclass(frozen=True, slots=True)
class _HandOver:
    """What one turn of the engine's thread has for the event loop."""

    added: _Added
    output: StepOutput
    step_began: float


class _EngineThread:
    """The thread's side: owns the engine."""

    def __init__(
        self,
        engine: Engine,
        commands: queue.SimpleQueue[_Command],
        deliver: Callable[[_HandOver], None],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._commands = commands
        self._deliver = deliver
        self._clock = clock
        self.busy_since: float | None = None
        """When the last turn ended, or it was woken; None: it sleeps. Any thread may read it."""

    def run(self) -> None:
        """Serve until told to stop; raises what the engine's step raises."""
        while True:
            added: _Added = []
            for command in self._take_commands():
                if isinstance(command, _Stop):
                    return
                self._execute(command, added)
            began = self._clock()
            for output in self._engine.step() if self._engine.has_work else ():
                self._deliver(_HandOver(added, output, began))
                added = []
            if added:
                self._deliver(_HandOver(added, StepOutput(), began))
            self.busy_since = self._clock()

    def _take_commands(self) -> Iterable[_Command]:
        if not self._engine.has_work:
            self.busy_since = None
            first = self._commands.get()
            self.busy_since = self._clock()
            yield first
        while True:
            try:
                yield self._commands.get_nowait()
            except queue.Empty:
                return

    def _execute(self, command: _Add | _Abort, added: _Added) -> None:
        if isinstance(command, _Abort):
            for request_id in command.request_ids:
                self._engine.abort(request_id)
            return
        try:
            for request in command.requests:
                self._engine.add(request)
        except Exception as error:
            for request in command.requests:
                self._engine.abort(request.request_id)
            added.append((command.ticket, _refusal(error)))
        else:
            added.append((command.ticket, None))


def _refusal(error: Exception) -> LeapjsonError:
    if isinstance(error, RequestError):
        return error
    logger.error("a request could not be added", exc_info=error)
    return LeapjsonError("the request could not be added to the engine; a fault of the server")


class EngineWorker:
    """The event loop's side: every method belongs to the loop's thread, the properties to any."""

    def __init__(
        self, engine: Engine, *, clock: Callable[[], float], stall_seconds: float = STALL_SECONDS
    ) -> None:
        self._clock = clock
        self._stall_seconds = stall_seconds
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._engine_thread = _EngineThread(engine, self._commands, self._post, clock)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inboxes: dict[str, Inbox] = {}
        self._submitting: dict[int, asyncio.Future[None]] = {}
        self._tickets = itertools.count()
        self._dead = False

    @property
    def alive(self) -> bool:
        """Whether the engine's thread runs."""
        return not self._dead and self._thread is not None and self._thread.is_alive()

    @property
    def step_age(self) -> float:
        """Seconds since the engine's last step ended, while there is work; else 0."""
        since = self._engine_thread.busy_since
        return 0.0 if since is None or not self.alive else max(0.0, self._clock() - since)

    @property
    def stalled(self) -> bool:
        """Whether there is work and no step has ended for ``stall_seconds``."""
        return self.step_age > self._stall_seconds

    def start(self) -> None:
        """Start the engine's thread; called on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="leapjson-engine", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Fail what is left and end the thread after the step it is in.

        One that hangs is left behind once ``stall_seconds`` have passed since its last step.
        """
        self.cut_off()
        self._commands.put(_Stop())
        if self._thread is not None:
            left = max(0.0, self._stall_seconds - self.step_age)
            await asyncio.to_thread(self._thread.join, left)
            if self._thread.is_alive():
                logger.critical("the engine hangs in a step, and is left behind")

    async def submit(self, requests: Sequence[EngineRequest], inbox: Inbox) -> None:
        """Add all of the requests or none; their chunks go to ``inbox``.

        Raises what the engine raised when it refused one of them, ``EngineDied`` or ``ShutDown``.
        Cancelling the call aborts the requests.
        """
        if not self.alive:
            raise EngineDied(DEATH_NOTICE)
        ticket = next(self._tickets)
        added: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._submitting[ticket] = added
        self._inboxes.update((request.request_id, inbox) for request in requests)
        self._commands.put(_Add(ticket, tuple(requests)))
        try:
            await added
        except BaseException:
            self.abort([request.request_id for request in requests])
            raise
        finally:
            self._submitting.pop(ticket, None)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forget requests; nothing more reaches their inbox. Unknown ids are passed over."""
        known = tuple(each for each in request_ids if self._inboxes.pop(each, None) is not None)
        if known:
            self._commands.put(_Abort(known))

    def cut_off(self) -> None:
        """End every request with ``ShutDown``, or ``EngineDied`` if the engine hangs."""
        if self.stalled:
            self._fail_all(lambda: EngineDied(CUT_OFF))
        else:
            self._fail_all(lambda: ShutDown(CUT_OFF, retry_after=SHUT_DOWN_RETRY))

    def _fail_all(self, error: Callable[[], LeapjsonError]) -> None:
        inboxes = {id(inbox): inbox for inbox in self._inboxes.values()}
        self.abort(list(self._inboxes))
        submitting, self._submitting = self._submitting, {}
        for added in submitting.values():
            if not added.done():
                added.set_exception(error())
        for inbox in inboxes.values():
            inbox.on_failure(error())

    def _run(self) -> None:
        try:
            self._engine_thread.run()
        except BaseException:
            logger.critical("the engine died", exc_info=True)
            self._on_loop(self._die)

    def _post(self, hand_over: _HandOver) -> None:
        self._on_loop(lambda: self._receive(hand_over))

    def _on_loop(self, call: Callable[[], None]) -> None:
        assert self._loop is not None
        # With the loop closed nobody listens any more, and nobody is left waiting either.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def _receive(self, hand_over: _HandOver) -> None:
        for ticket, error in hand_over.added:
            added = self._submitting.get(ticket)
            if added is None or added.done():
                continue
            if error is None:
                added.set_result(None)
            else:
                added.set_exception(error)
        for request_id in hand_over.output.scheduled:
            if (inbox := self._inboxes.get(request_id)) is not None:
                inbox.on_scheduled(hand_over.step_began)
        for chunk in hand_over.output.chunks:
            if (inbox := self._inboxes.get(chunk.request_id)) is None:
                continue
            if chunk.finish_reason is not None:
                del self._inboxes[chunk.request_id]
            inbox.on_chunk(chunk)

    def _die(self) -> None:
        self._dead = True
        self._fail_all(lambda: EngineDied(DEATH_NOTICE))
