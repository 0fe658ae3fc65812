"""Rank 0's side: starts the other ranks, sends them steps, and notices when one is gone.

    rank 0  ── steps ──▶  rank 1        a length and so many bytes for each step; nothing back
            ◀── life ───                the job to it; back, why it ends; closed when one is gone

Both are sockets that only these two processes have. A step goes through the kernel in some 40 us
where a broadcast of gloo takes 250 and one of NCCL has to pass through the device; a socket that
is closed, by whatever end of its process, is noticed at once.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from app.core.child_environment import child_environment
from app.core.errors import DeviceFailed, LeapjsonError, UnsupportedModel
from app.model.config import ModelConfig
from app.model.inputs import Ints, StepArrays
from app.model.parallel.group import Group, leave
from app.model.parallel.message import pack

LENGTH = struct.Struct("<q")
"""Length of a message in bytes. ``END`` follows the last step."""
END = LENGTH.pack(0)

_LOSS_SECONDS = 3.0
"""Wait after a failed exchange: it may fail before it is known which rank is gone, and why."""
_EXIT_SECONDS = 10.0
"""Time limit, while loading, for this process to end after a rank is gone; then it is ended."""
_LEAVE_SECONDS = 5.0
"""Time limit for ranks to end after the message to do so."""


@dataclass(frozen=True, slots=True)
class Job:
    """Arguments of a rank's process."""

    config: ModelConfig
    rank: int
    store: str
    """Path of the file over which the ranks find each other."""


class _Member:
    """Rank 0's side of another rank."""

    def __init__(self, job: Job) -> None:
        self.rank = job.rank
        self.steps, steps = socket.socketpair()
        self.life, life = socket.socketpair()
        with steps, life:
            ends = (steps.fileno(), life.fileno())
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "app.model.parallel.rank", *map(str, ends)],
                pass_fds=ends,
                stdin=subprocess.DEVNULL,
                env=child_environment(),
            )
        message = pickle.dumps(job)
        self.life.sendall(LENGTH.pack(len(message)) + message)

    def end(self, *, at_once: bool) -> None:
        """Tell the rank to end: after the steps it has been sent, or at once."""
        with contextlib.suppress(OSError):
            if at_once:
                self.life.shutdown(socket.SHUT_WR)  # it can still be read to its end
            else:
                self.steps.sendall(END)

    def wait(self, until: float) -> None:
        """Wait until the rank has ended; kill it at ``until``."""
        try:
            self.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.steps.close()

    def wait_for_reason(self) -> str:
        """Wait until the rank has ended; returns the reason."""
        message = b""
        with contextlib.suppress(OSError):
            while part := self.life.recv(4096):
                message += part
        status = self.process.wait()
        self.life.close()
        if message:
            return message.decode(errors="replace")
        if status < 0:
            return f"it was killed by {signal.Signals(-status).name}"
        return f"it ended with status {status}"


class RankProcesses:
    """The other ranks of a model whose rank 0 is this process. Sent to by one thread."""

    group: Group
    """All ranks, set once they have met."""

    def __init__(self, config: ModelConfig) -> None:
        """Starts them; they load the model while this process does."""
        self._size = config.tensor_parallel
        self._folder = tempfile.mkdtemp(prefix="leapjson-")  # for this user alone
        self.store = str(Path(self._folder) / "ranks")
        self._closing = False
        self._loading = True
        self._changed = threading.Condition()
        self._lost: str | None = None
        self._on_loss: Callable[[str], None] | None = None
        self._members = [_Member(Job(config, rank, self.store)) for rank in range(1, self._size)]
        for member in self._members:
            threading.Thread(
                target=self._watch_member, args=(member,), name=f"rank-{member.rank}", daemon=True
            ).start()

    def send(self, step: StepArrays, drawn: int) -> None:
        """Send ``step`` to all ranks; ``drawn``: number of drawn tokens that it may use."""
        message: Ints = pack(step, drawn)
        data = LENGTH.pack(message.nbytes) + message.tobytes()
        for member in self._members:
            member.steps.sendall(data)

    def lead(self, step: StepArrays, drawn: Tensor | None) -> None:
        """Send ``step``, before rank 0 computes it. ``drawn``: ids drawn by the previous step,
        int64, if they are only on the device; they are broadcast from there if the step uses any.
        """
        if drawn is None or (step.drawn_rows < 0).all():
            self.send(step, 0)
        else:
            self.send(step, len(drawn))
            self.group.broadcast(drawn)

    def watch(self, on_loss: Callable[[str], None]) -> None:
        """Call ``on_loss`` once, from any thread, when a rank is gone; at once if one is."""
        with self._changed:
            self._on_loss = on_loss
            lost = self._lost
        if lost is not None:
            on_loss(lost)

    @contextlib.contextmanager
    def naming_losses(self) -> Iterator[None]:
        """Convert errors of an exchange to ``DeviceFailed`` if a rank is gone."""
        try:
            yield
        except Exception as error:
            if (lost := self.loss()) is None:
                raise
            raise DeviceFailed(lost) from error

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """A block to load the model in. If that fails on any rank, all ranks end.

        Raises ``UnsupportedModel`` with the reason that a failed rank gave.
        """
        try:
            yield
        except BaseException as error:
            own = isinstance(error, LeapjsonError) and error.__cause__ is None
            lost = None if own else self.loss()
            self.close()
            if lost is None:
                raise
            raise UnsupportedModel(lost) from error
        self._loading = False

    def loss(self) -> str | None:
        """Message with the rank that is gone and the reason, if known within ``_LOSS_SECONDS``."""
        with self._changed:
            self._changed.wait_for(lambda: self._lost is not None, _LOSS_SECONDS)
            return self._lost

    def close(self) -> None:
        """End all ranks, and return when they have."""
        self._closing = True
        alone = self._loading or self._lost is not None
        for member in self._members:
            member.end(at_once=alone)
        leave(alone=alone)
        until = time.monotonic() + _LEAVE_SECONDS
        for member in self._members:
            member.wait(until)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _watch_member(self, member: _Member) -> None:
        reason = member.wait_for_reason()
        if self._closing:
            return
        shutil.rmtree(self._folder, ignore_errors=True)  # this process may get no time to do it
        lost = f"rank {member.rank} of {self._size}: {reason}"
        with self._changed:
            first, self._lost = self._lost is None, self._lost or lost
            self._changed.notify_all()
            on_loss = self._on_loss
        if first and on_loss is not None:
            on_loss(lost)
        elif first and self._loading:
            self._exit_if_stuck(lost)

    def _exit_if_stuck(self, lost: str) -> None:
        """Let this process end by itself; if it is stuck waiting for the lost rank, end it."""
        time.sleep(_EXIT_SECONDS)
        if not self._closing:
            print(f"leapjson: {lost}", file=sys.stderr, flush=True)
            for member in self._members:
                member.process.kill()
            os._exit(1)
