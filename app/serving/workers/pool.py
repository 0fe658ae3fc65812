"""Processes that compile constraints or read images, so that a bad one costs its request alone.

A worker is an ordinary child of the event loop (``asyncio`` subprocess) rather than one of
``multiprocessing``: it can be awaited with a time limit and killed without a thread, and it
imports what it runs and nothing of the server's main module.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import logging
import pickle
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from app.core.child_environment import child_environment
from app.core.errors import (
    CompilerStuck,
    ConstraintTooComplex,
    LeapjsonError,
    RequestError,
    Unavailable,
)
from app.core.request import ServiceTier
from app.serving.tasks import Tasks
from app.serving.workers.fair_pool import FairPool
from app.serving.workers.worker_process import LENGTH, OUT_OF_MEMORY, OUT_OF_TIME, PATIENCE, Job

_SLICE = 0.001
"""Seconds of work after which a pause is due."""
_PAUSE_RATIO = 4.0
"""Length of a pause relative to the work before it."""
_LONGEST_PAUSE = 0.02


class _PacedFile(io.BytesIO):
    """A file that pauses between reads or writes of a pickle."""

    def __init__(
        self, data: bytes, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        super().__init__(data)
        self._clock = clock
        self._sleep = sleep
        self._resumed = clock()

    def read(self, size: int | None = -1, /) -> bytes:
        self._pause()
        return super().read(size)

    def readinto(self, buffer: Any, /) -> int:
        self._pause()
        return super().readinto(buffer)

    def write(self, data: Any, /) -> int:
        self._pause()
        return super().write(data)

    def _pause(self) -> None:
        worked = self._clock() - self._resumed
        if worked >= _SLICE:
            self._sleep(min(worked * _PAUSE_RATIO, _LONGEST_PAUSE))
            self._resumed = self._clock()


def load_paced(
    data: bytes,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Any:
    """``pickle.loads(data)`` in slices, which takes about five times as long. Trusted data only.

    Unpickling a megabyte holds the GIL for tens of milliseconds; while any thread runs Python code,
    the engine's thread waits for the GIL after every torch operation (up to
    ``sys.getswitchinterval()`` each time). So the data is read frame by frame (64 KiB; PEP 3154),
    with pauses in which the engine has the GIL to itself.

    The result is hidden from the garbage collector (``gc.freeze``): a collection would visit all
    of it with the GIL held, which takes a second for a full cache. Constraints have no reference
    cycles, so reference counts still free them. Not for two threads at a time.
    """
    collects = gc.isenabled()
    gc.collect(1)  # young garbage; what is frozen is not looked at again
    gc.disable()
    try:
        value = pickle.Unpickler(_PacedFile(data, clock, sleep)).load()
        gc.freeze()
    finally:
        if collects:
            gc.enable()
    return value


logger = logging.getLogger(__name__)

_BIG_ANSWER = 1 << 15
"""Bytes from which a worker's answer is read on a thread: less takes under a millisecond."""

_WRITTEN = 1 << 18
"""Bytes of a job that are written at a time, so that the event loop never copies many."""

KILLED = -signal.SIGKILL
"""Exit status: the process was killed, most likely by the kernel for lack of memory."""

STUCK_RETRY = 5
"""Seconds until a retry after a worker failed: the time to restart one."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Bounds on one job; passing one is an error of its request."""

    seconds: float = 10.0
    """CPU time. The wall time is limited to ``PATIENCE`` times as much."""
    memory_bytes: int = 1 << 30
    """Memory a worker may map beyond what its imports have mapped."""
    answer_bytes: int = 64 << 20
    """Maximum size of a result, such as a compiled program."""
    start_seconds: float = 60.0
    """How long a new worker may take to import what it runs."""


@dataclass(frozen=True, slots=True)
class JobErrors:
    """Errors for requests whose jobs fail in a worker."""

    exceeded: Callable[[str], RequestError]
    """Error for an exceeded limit, which is its argument: ``time: more than 10 s``."""
    stuck: Callable[..., Unavailable]
    """Error for a job that could not run through no fault of its own."""
    failure: str
    """Start of the error message: what could not be done."""


COMPILE_ERRORS = JobErrors(ConstraintTooComplex, CompilerStuck, "the schema could not be compiled")


class _WorkerEnded(Exception):
    """The process ended before it answered; ``status`` is its exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"exit status {status}")
        self.status = status


_NOT_STARTED = (_WorkerEnded, TimeoutError, OSError, LeapjsonError)
"""Errors that the start of a worker may raise, its warm-up included."""


class _Worker:
    """One child process that does one job at a time."""

    def __init__(self, process: Process, max_bytes: int, errors: JobErrors) -> None:
        """``max_bytes``: the largest answer that is taken from it."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._max_bytes = max_bytes
        self._errors = errors

    async def start(self, limits: WorkerLimits, warm_up: bytes | None) -> None:
        """Wait until it is ready, and have it do ``warm_up``."""
        try:
            async with asyncio.timeout(limits.start_seconds):
                await self._receive()
            if warm_up is not None:
                await self.ask(warm_up, limits.start_seconds)
        except BaseException:
            await self.kill()
            raise

    async def ask(self, job: bytes, seconds: float) -> bytes:
        """The pickled answer to a pickled job that may take so much processor time.

        Raises ``TimeoutError``, ``_WorkerEnded``, or the pool's error if the answer is too large;
        the worker cannot be used afterwards.
        """
        async with asyncio.timeout(PATIENCE * seconds):
            if not self._stdin.is_closing():  # uvloop refuses to write to what is closed
                with contextlib.suppress(ConnectionError):  # reading shows how the process ended
                    self._stdin.write(LENGTH.pack(len(job)))
                    for at in range(0, len(job), _WRITTEN):
                        self._stdin.write(job[at : at + _WRITTEN])
                        await self._stdin.drain()
            return await self._receive()

    async def kill(self) -> None:
        await end(self._process)

    async def _receive(self) -> bytes:
        try:
            (length,) = LENGTH.unpack(await self._stdout.readexactly(LENGTH.size))
            if length > self._max_bytes:
                raise self._errors.exceeded(
                    f"the result has {length} bytes and the limit is {self._max_bytes}"
                )
            return await self._stdout.readexactly(length)
        except asyncio.IncompleteReadError:
            raise _WorkerEnded(await self._process.wait()) from None


async def spawn(target: str, limits: WorkerLimits) -> Process:
    """Start a worker's process, which then imports ``target``."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "app.serving.workers.worker_process",
        target,
        str(limits.memory_bytes),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(),
    )


async def end(process: Process) -> None:
    """Kill a process of ``spawn``, if it still runs: uvloop does not close before its children."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    # The pipe is read to its end, or asyncio would not report the exit.
    with contextlib.suppress(Exception):
        while await process.stdout.read(1 << 16):
            pass
    await process.wait()
    process.stdin.close()
    with contextlib.suppress(ConnectionError):
        await process.stdin.wait_closed()


class WorkerPool:
    """``workers`` processes that run ``target`` (``"module:function"``), one job each at a time.

    A worker that exceeds a limit or crashes is killed and replaced; its request alone fails. The
    job of one that was killed from outside is given to another, as often as there are workers.
    Waiting for a free worker does not count against the time limit.
    """

    def __init__(
        self,
        target: str,
        *arguments: Any,
        workers: int,
        limits: WorkerLimits,
        errors: JobErrors = COMPILE_ERRORS,
        warm_up: Any = None,
        tenant_share: float = 1.0,
        read: Callable[[bytes], Any] = load_paced,
        spawned: Sequence[Process] = (),
    ) -> None:
        """``arguments``: what ``target`` gets after the argument of a job; they are pickled.

        ``tenant_share``: the share of the workers, rounded down but one at least, that the jobs of
        one tenant may have at a time, those of its higher tiers first. Each new worker does
        ``warm_up`` before it takes its first job. ``read``: what reads a large answer, on a thread.
        ``spawned``: processes of ``spawn``, which become the first workers.
        """
        self._target = target
        self._arguments = arguments
        self._size = workers
        self._limits = limits
        self._errors = errors
        self._load = read
        self._spawned = list(spawned)
        self._asking = Tasks()
        self._warm_up = None
        if warm_up is not None:
            # The first job triggers the target's lazy imports.
            self._warm_up = pickle.dumps(Job(target, (warm_up, *arguments), limits.start_seconds))
        self._most = max(1, int(workers * tenant_share))
        self._shares = WeakValueDictionary[str, FairPool[None]]()
        """Quotas of the tenants whose jobs run or wait."""
        self._idle: FairPool[_Worker | None] = FairPool()
        """None stands for a worker that failed to start: whoever acquires it starts it again."""
        self._workers: set[_Worker] = set()
        self._replacing = Tasks()
        self.restarts = 0
        """Workers that were killed or crashed, and had to be replaced."""
        # One thread, so that any number of big programs slow the engine no more than one does.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="leapjson-programs")

    async def start(self) -> None:
        """Start every worker and wait until each is ready, so that the first schema is quick."""
        try:
            workers = await asyncio.gather(*(self._new_worker() for _ in range(self._size)))
        except _NOT_STARTED as error:
            raise LeapjsonError(f"the worker processes could not be started: {error!r}") from error
        for worker in workers:
            self._idle.release(worker)

    async def close(self) -> None:
        """Kill the workers; jobs that still run fail."""
        await self._asking.close()
        await self._replacing.close()
        workers, self._workers = self._workers, set()
        await asyncio.gather(*(worker.kill() for worker in workers))
        self._reader.shutdown(wait=False, cancel_futures=True)

    async def run(
        self,
        argument: Any,
        tenant: str = "",
        tier: ServiceTier = ServiceTier.DEFAULT,
        *,
        target: str | None = None,
        seconds: float | None = None,
    ) -> Any:
        """``target(argument, *arguments)``. Higher tiers go first, and in a tier tenants take
        turns, by how long theirs took. ``target`` and ``seconds`` (of processor time) are the
        pool's by default.

        Raises the ``RequestError`` it raised, or an error of ``errors``. If the call is cancelled,
        a job that a worker has begun still runs to its end: starting a worker costs more.
        """
        job = Job(
            self._target if target is None else target,
            (argument, *self._arguments),
            self._limits.seconds if seconds is None else seconds,
        )
        for dead in range(self._size + 1):
            try:
                kind, value = await self._read(await self._ask(job, tenant, tier))
                if kind == "refused":
                    assert isinstance(value, RequestError)
                    raise value
                if kind == "exceeded":
                    raise self._errors.exceeded(value)
                if kind == "failed":
                    # The message may quote the request: only its class is for every log.
                    kind, _, _ = value.partition(":")
                    logger.error("a worker failed: %s", kind, extra={"content": value})
                    raise LeapjsonError(f"internal error: {self._errors.failure}")
                return value
            except _WorkerEnded as ended:
                # Workers may be killed while they wait for a job; the job is not to blame for that.
                if ended.status == KILLED and dead < self._size:
                    continue
                if ended.status == OUT_OF_TIME:
                    limit = f"time: more than {job.seconds:g} s of CPU time"
                else:
                    logger.warning("a worker process ended: %s", ended)
                    limit = "the worker process crashed"
                    if ended.status == OUT_OF_MEMORY:
                        limit = f"memory: more than {self._limits.memory_bytes >> 20} MiB"
                raise self._errors.exceeded(limit) from None
        raise AssertionError("the last try returns or raises")

    async def _ask(self, job: Job, tenant: str, tier: ServiceTier) -> bytes:
        if (share := self._shares.get(tenant)) is None:
            self._shares[tenant] = share = FairPool()
            for _ in range(self._most):
                share.release(None)
        await share.acquire(tenant, tier)
        try:
            worker = await self._acquire(tenant, tier)
        except BaseException:
            share.release(None)
            raise
        asked = self._asking.start(
            self._ask_worker(worker, job, tenant, tier), lambda: share.release(None)
        )
        return await asyncio.shield(asked)

    async def _ask_worker(self, worker: _Worker, job: Job, tenant: str, tier: ServiceTier) -> bytes:
        clock = asyncio.get_running_loop().time
        started, healthy = clock(), False
        try:
            # Pickled only now, since many large jobs may be waiting for a worker.
            answer = await worker.ask(await asyncio.to_thread(_written, job), job.seconds)
            healthy = True
            return answer
        except TimeoutError:
            raise self._stuck("the machine had no CPU time for it") from None
        finally:
            self._idle.charge(tenant, clock() - started, tier)
            if healthy:
                self._idle.release(worker)
            else:
                self.restarts += 1
                self._replacing.start(self._replace(worker))

    async def _read(self, answer: bytes) -> Any:
        if len(answer) < _BIG_ANSWER:
            return pickle.loads(answer)
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._load, answer)

    async def _acquire(self, tenant: str, tier: ServiceTier) -> _Worker:
        worker = await self._idle.acquire(tenant, tier)
        if worker is not None:
            return worker
        try:
            worker = await self._new_worker()
        except _NOT_STARTED as error:
            logger.error("a worker process could not be started: %r", error)
            raise self._stuck("no worker process could be started") from None
        finally:
            if worker is None:
                self._idle.release(None)
        return worker

    def _stuck(self, why: str) -> Unavailable:
        message = f"{self._errors.failure}: {why}; retry later"
        return self._errors.stuck(message, retry_after=STUCK_RETRY)

    async def _new_worker(self) -> _Worker:
        process = None
        while self._spawned and process is None:
            spawned = self._spawned.pop()
            process = spawned if spawned.returncode is None else None
        process = process or await spawn(self._target, self._limits)
        worker = _Worker(process, self._limits.answer_bytes, self._errors)
        await worker.start(self._limits, self._warm_up)
        self._workers.add(worker)
        return worker

    async def _replace(self, worker: _Worker) -> None:
        await worker.kill()
        self._workers.discard(worker)
        fresh: _Worker | None = None
        try:
            fresh = await self._new_worker()
        except Exception:
            logger.exception("could not restart a worker process; the next request retries")
        self._idle.release(fresh)


def _written(job: Job) -> bytes:
    """The pickled job, written in slices with pauses as in ``load_paced``."""
    file = _PacedFile(b"", time.perf_counter, time.sleep)
    pickle.Pickler(file).dump(job)
    return file.getvalue()
