"""Processes that compile constraints, so that a bad schema costs its own request alone.

A worker is an ordinary child of the event loop (``asyncio`` subprocess) rather than one of
``multiprocessing``: it can be awaited with a time limit and killed without a thread, and it
imports the compiler and nothing of the server's main module.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from app.core.constraint import ConstraintSpec
from app.core.errors import CompilerStuck, ConstraintTooComplex, LeapjsonError, RequestError
from app.serving.compiling.fair_pool import FairPool
from app.serving.compiling.unpickling import load_paced
from app.serving.compiling.worker_process import LENGTH, OUT_OF_MEMORY, OUT_OF_TIME, PATIENCE, Job

logger = logging.getLogger(__name__)

_BIG_ANSWER = 1 << 15
"""Bytes from which a worker's answer is read on a thread: less takes under a millisecond."""

KILLED = -signal.SIGKILL
"""Exit status: somebody has killed the process, the kernel for lack of memory if nobody else."""

STUCK_RETRY = 5
"""Seconds after which a request may try again that no worker could serve: one's restart."""


@dataclass(frozen=True, slots=True)
class CompileLimits:
    """Bounds on one compilation; passing one is the request's ``ConstraintTooComplex``."""

    seconds: float = 10.0
    """Processor time. Waiting for it ends after ``PATIENCE`` times as long in any case."""
    memory_bytes: int = 1 << 30
    """Memory a worker may map beyond what its imports have mapped."""
    program_bytes: int = 64 << 20
    """Size of the compiled program on its way back."""
    start_seconds: float = 60.0
    """How long a new worker may take to import the compiler."""


class _WorkerEnded(Exception):
    """The process ended before it answered; ``status`` is its exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"exit status {status}")
        self.status = status


_NOT_STARTED = (_WorkerEnded, TimeoutError, OSError, LeapjsonError)
"""What the start of a worker may raise, its first compilation included."""


class _Worker:
    """One child process that does one job at a time."""

    def __init__(self, process: asyncio.subprocess.Process, max_bytes: int) -> None:
        """``max_bytes``: the largest answer that is taken from it."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._max_bytes = max_bytes

    @classmethod
    async def start(cls, target: str, limits: CompileLimits, warm_up: Job | None) -> _Worker:
        """A worker that has imported ``target`` and done ``warm_up``."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "app.serving.compiling.worker_process",
            target,
            str(limits.memory_bytes),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(),
        )
        worker = cls(process, limits.program_bytes)
        try:
            async with asyncio.timeout(limits.start_seconds):
                await worker._receive()
            if warm_up is not None:
                await worker.ask(warm_up)
        except BaseException:
            await worker.kill()
            raise
        return worker

    async def ask(self, job: Job) -> bytes:
        """The pickled answer.

        Raises ``TimeoutError``, ``_WorkerEnded`` or ``ConstraintTooComplex`` (too long an answer),
        after which the worker is of no use.
        """
        message = pickle.dumps(job)
        async with asyncio.timeout(PATIENCE * job.seconds):
            if not self._stdin.is_closing():  # uvloop refuses to write to what is closed
                with contextlib.suppress(ConnectionError):  # reading tells how the process ended
                    self._stdin.write(LENGTH.pack(len(message)) + message)
                    await self._stdin.drain()
            return await self._receive()

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        # The pipe is read to its end, or asyncio would not report the exit.
        with contextlib.suppress(Exception):
            while await self._stdout.read(1 << 16):
                pass
        await self._process.wait()
        self._stdin.close()
        with contextlib.suppress(ConnectionError):
            await self._stdin.wait_closed()

    async def _receive(self) -> bytes:
        try:
            (length,) = LENGTH.unpack(await self._stdout.readexactly(LENGTH.size))
            if length > self._max_bytes:
                raise ConstraintTooComplex(
                    f"compiled it has {length} bytes and the limit is {self._max_bytes}"
                )
            return await self._stdout.readexactly(length)
        except asyncio.IncompleteReadError:
            raise _WorkerEnded(await self._process.wait()) from None


class CompilePool:
    """``workers`` processes that run ``target`` (``"module:function"``) on specifications.

    A worker that exceeds a limit or crashes is killed and replaced; its request alone fails. The
    job of one that was killed from outside is given to another, as often as there are workers.
    Waiting for a free worker does not count against the time limit.
    """

    def __init__(
        self,
        target: str,
        *arguments: Any,
        workers: int,
        limits: CompileLimits,
        warm_up: ConstraintSpec | None = None,
    ) -> None:
        """``arguments``: what ``target`` gets after each specification; they are pickled.

        ``warm_up`` is compiled by each new worker before it takes its first job.
        """
        self._target = target
        self._arguments = arguments
        self._size = workers
        self._limits = limits
        self._warm_up = None if warm_up is None else self._job(target, warm_up, limits.seconds)
        self._idle: FairPool[_Worker | None] = FairPool()
        """None stands for a worker that could not be started: whoever acquires it tries again."""
        self._workers: set[_Worker] = set()
        self._replacing: set[asyncio.Task[None]] = set()
        self.restarts = 0
        """Workers that were killed or crashed, and had to be replaced."""
        # One thread, so that any number of big programs slow the engine no more than one does.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="leapjson-programs")

    async def start(self) -> None:
        """Start every worker and wait until each is ready, so that the first schema is quick."""
        try:
            workers = await asyncio.gather(*(self._new_worker() for _ in range(self._size)))
        except _NOT_STARTED as error:
            raise LeapjsonError(f"the compile workers could not be started: {error}") from error
        for worker in workers:
            self._idle.release(worker)

    async def close(self) -> None:
        """Kill the workers; compilations that still run fail."""
        for task in self._replacing:
            task.cancel()
        await asyncio.gather(*self._replacing, return_exceptions=True)
        workers, self._workers = self._workers, set()
        await asyncio.gather(*(worker.kill() for worker in workers))
        self._reader.shutdown(wait=False, cancel_futures=True)

    async def compile(self, spec: ConstraintSpec, tenant: str = "") -> Any:
        """``target(spec, *arguments)``. Tenants take turns, by how long theirs took.

        Raises the ``RequestError`` it raised, or ours for a limit, or ``CompilerStuck``.
        Cancelling the call while a worker does the job kills the worker.
        """
        return await self.run(self._target, spec, tenant, seconds=self._limits.seconds)

    async def run(self, target: str, argument: Any, tenant: str = "", *, seconds: float) -> Any:
        """Like ``compile``, with another function, argument and processor time."""
        job = self._job(target, argument, seconds)
        for dead in range(self._size + 1):
            try:
                return _result(await self._read(await self._ask(job, tenant)))
            except _WorkerEnded as ended:
                # Every worker may have been killed while it waited; the job has done that to none.
                if ended.status != KILLED or dead == self._size:
                    raise self._crash(ended, job) from None
        raise AssertionError("the last try returns or raises")

    def _job(self, target: str, argument: Any, seconds: float) -> Job:
        return Job(target, (argument, *self._arguments), seconds)

    async def _ask(self, job: Job, tenant: str) -> bytes:
        worker = await self._acquire(tenant)
        clock = asyncio.get_running_loop().time
        started, healthy = clock(), False
        try:
            answer = await worker.ask(job)
            healthy = True
            return answer
        except TimeoutError:
            raise _stuck("no processor time was left for it") from None
        finally:
            self._idle.charge(tenant, clock() - started)
            if healthy:
                self._idle.release(worker)
            else:
                self._replace(worker)

    async def _read(self, answer: bytes) -> Any:
        if len(answer) < _BIG_ANSWER:
            return pickle.loads(answer)
        return await asyncio.get_running_loop().run_in_executor(self._reader, load_paced, answer)

    async def _acquire(self, tenant: str) -> _Worker:
        worker = await self._idle.acquire(tenant)
        if worker is not None:
            return worker
        try:
            worker = await self._new_worker()
        except _NOT_STARTED as error:
            logger.error("a compile worker could not be started: %r", error)
            raise _stuck("no compile worker could be started") from None
        finally:
            if worker is None:
                self._idle.release(None)
        return worker

    def _crash(self, ended: _WorkerEnded, job: Job) -> ConstraintTooComplex:
        if ended.status == OUT_OF_TIME:
            return ConstraintTooComplex(f"time: more than {job.seconds:g} s")
        logger.warning("a compile worker ended: %s", ended)
        if ended.status == OUT_OF_MEMORY:
            return ConstraintTooComplex(f"memory: more than {self._limits.memory_bytes >> 20} MiB")
        return ConstraintTooComplex("the compiler crashed on it")

    async def _new_worker(self) -> _Worker:
        worker = await _Worker.start(self._target, self._limits, self._warm_up)
        self._workers.add(worker)
        return worker

    def _replace(self, worker: _Worker) -> None:
        self.restarts += 1
        task = asyncio.create_task(self._kill_and_restart(worker))
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _kill_and_restart(self, worker: _Worker) -> None:
        await worker.kill()
        self._workers.discard(worker)
        fresh: _Worker | None = None
        try:
            fresh = await self._new_worker()
        except Exception:
            logger.exception("a compile worker could not be restarted; the next request tries")
        self._idle.release(fresh)


def _environment() -> dict[str, str]:
    """Ours, so that it finds the same modules; what reads schemas need not know the API keys."""
    kept = {name: value for name, value in os.environ.items() if name != "LEAPJSON_API_KEYS"}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _stuck(why: str) -> CompilerStuck:
    return CompilerStuck(
        f"the schema could not be compiled: {why}; retry later", retry_after=STUCK_RETRY
    )


def _result(answer: Any) -> Any:
    kind, value = answer
    if kind == "refused":
        assert isinstance(value, RequestError)
        raise value
    if kind == "failed":
        # The message may quote the schema: only its class is for every log.
        kind, _, _ = value.partition(":")
        logger.error("the compiler failed: %s", kind, extra={"content": value})
        raise LeapjsonError("the constraint compiler failed; this is a fault of the server")
    return value
