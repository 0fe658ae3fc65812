"""The program of a worker: jobs in, results out.

Started by ``app.serving.workers.pool`` as ``python -m`` this module ``MODULE:FUNCTION
MEMORY_BYTES``; the function is imported before the worker says that it is ready. Messages on
standard input and output are pickles behind their length (8 bytes, big endian); both ends are
ours. It ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import resource
import signal
import struct
import sys
from dataclasses import dataclass
from typing import Any, BinaryIO

from app.core.errors import RequestError

LENGTH = struct.Struct(">Q")
NICENESS = 10
"""Workers yield to running answers: they get the CPU time that the engine leaves."""
PATIENCE = 6
"""Seconds of wall time per second of CPU time: a niced worker gets less than a core."""
OUT_OF_TIME = -signal.SIGPROF
"""Exit status: the profiling timer, which counts the work alone, has ended the process."""
ALLOCATIONS = 1_000_000
"""Allocations between collections. Objects of a compilation live until it ends, so a collection
would visit all and free none; garbage is collected between jobs instead."""
OUT_OF_MEMORY = 77
"""Exit status: with the heap exhausted, not even an answer can be built."""


@dataclass(frozen=True, slots=True)
class Job:
    """One call of a function, and the processor time it may take."""

    target: str
    """``module:function``."""
    arguments: tuple[Any, ...]
    seconds: float


def main(arguments: list[str]) -> None:
    target, memory_bytes = arguments
    # Terminals and service managers signal all processes; the server drains, then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Yield the CPU to running answers: a smaller share and, with SCHED_BATCH, no preemption of them
    # at wake-up (sched(7)), which niceness alone does not prevent (decision 43).
    os.nice(NICENESS)
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints goes to standard error, not between the messages
    gc.disable()  # imported modules are never freed
    _function(target)
    gc.freeze()
    gc.enable()
    gc.set_threshold(ALLOCATIONS)
    with open("/proc/self/statm", encoding="ascii") as statm:  # on top of what imports have mapped
        allowed = int(statm.read().split()[0]) * resource.getpagesize() + int(memory_bytes)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    _send(answers, pickle.dumps("ready"))
    while header := requests.read(LENGTH.size):
        job: Job = pickle.loads(requests.read(*LENGTH.unpack(header)))
        signal.setitimer(signal.ITIMER_PROF, job.seconds)
        # The alarm enforces the limit on wall time if the server dies.
        signal.setitimer(signal.ITIMER_REAL, (PATIENCE + 1) * job.seconds + 1)
        try:
            answer = _answer(job)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, answer)
        del job, answer
        gc.collect()  # while nobody waits; the imports are frozen


def _answer(job: Job) -> bytes:
    try:
        value = _function(job.target)(*job.arguments)
        return pickle.dumps(("ok", value), protocol=pickle.HIGHEST_PROTOCOL)
    except RequestError as error:
        return pickle.dumps(("refused", error))
    except RecursionError:
        return pickle.dumps(("exceeded", "nested too deeply"))
    except MemoryError:
        raise
    except Exception as error:
        return pickle.dumps(("failed", f"{type(error).__name__}: {error}"))


def _function(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _send(stream: BinaryIO, message: bytes) -> None:
    stream.write(LENGTH.pack(len(message)) + message)
    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
