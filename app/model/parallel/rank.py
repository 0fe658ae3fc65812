"""The program of every rank but the first: loads its share, then computes the steps it is sent.

Started by ``rank_processes`` as ``python -m`` this module STEPS LIFE, two open sockets.
Ends on a message from rank 0, or when that is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from app.core.errors import LeapjsonError
from app.model.inputs import Ints, StepArrays
from app.model.parallel.group import Group, leave
from app.model.parallel.message import unpack
from app.model.parallel.rank_processes import LENGTH, Job

_LOSS_SECONDS = 1.0
"""Wait after a failed exchange: it may fail before the loss of rank 0 is noticed."""


def main(arguments: list[str]) -> NoReturn:
    # A terminal and some supervisors signal all processes: rank 0 drains first, and needs this one.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    steps, life = (socket.socket(fileno=int(each)) for each in arguments)
    logging.disable(logging.WARNING)  # rank 0 logs the same
    job: Job = pickle.loads(receive(life))
    watch = threading.Thread(target=_exit_with_rank_0, args=(life, job), name="life", daemon=True)
    watch.start()
    try:
        from app.model.composition import load_follower

        _follow(*load_follower(job), steps)
    except Exception as error:
        watch.join(_LOSS_SECONDS)  # ends this process if rank 0 is gone
        if isinstance(error, LeapjsonError):
            reason = str(error)
        else:
            traceback.print_exc()
            reason = f"{type(error).__name__} (traceback above)"
        with contextlib.suppress(OSError):
            life.sendall(reason.encode())
        _leave(1)
    _leave(0)


def receive(connection: socket.socket) -> bytearray:
    """The next message; empty: no more follow. Raises ``EOFError`` if the sender is gone."""
    (length,) = LENGTH.unpack(_exactly(connection, LENGTH.size))
    return _exactly(connection, length)


Compute = Callable[[StepArrays, Tensor | None], object]
"""``TorchRunner.compute`` of this rank's runner."""


def _follow(compute: Compute, group: Group, steps: socket.socket) -> None:
    while message := receive(steps):
        values: Ints = np.frombuffer(message, dtype=np.int64)
        run_step(compute, group, *unpack(values))
    leave(alone=False)


@torch.inference_mode()
def run_step(compute: Compute, group: Group, step: StepArrays, drawn: int) -> None:
    """Compute this rank's part of every layer; the logits are not used.

    ``drawn``: number of ids drawn by the previous step that rank 0 broadcasts.
    """
    compute(step, group.broadcast(group.empty_ids(drawn)) if drawn else None)


def _exactly(connection: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view, got = memoryview(data), 0
    while got < length:
        read = connection.recv_into(view[got:])
        if not read:
            raise EOFError("rank 0 is gone")
        got += read
    return data


def _exit_with_rank_0(life: socket.socket, job: Job) -> None:
    """Exit, even in a blocked call, when rank 0 is gone."""
    with contextlib.suppress(OSError):
        while life.recv(1):
            pass
    shutil.rmtree(Path(job.store).parent, ignore_errors=True)  # no other process is left to do it
    os._exit(0)


def _leave(status: int) -> NoReturn:
    """Exit without Python's own shutdown, which may wait for a device or for other ranks."""
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
