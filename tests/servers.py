"""Servers and commands of the tests, forked from one process that has imported the libraries.

Imports take four of the six seconds of a start. ``tests/terminal`` starts the command without a
fork.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import IO

from loadtest import server
from loadtest.server import Process, Server

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.imported"])


def share() -> None:
    """Start the fork server now, so that this process and its forks share it."""
    _ENVIRONMENT.clear()
    _ENVIRONMENT.update(_others(os.environ))
    # Servers that tests kill leave semaphores behind, of which the tracker warns.
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    resource_tracker.ensure_running()
    sys.warnoptions.pop()
    forkserver.ensure_running()
    # A fork cannot check whether the fork server runs, as it is not its parent.
    vars(forkserver._forkserver)["ensure_running"] = lambda: None


def _others(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without the variables of Leapjson, read at its start, pytest and torch."""
    ours = ("LEAPJSON_", "PYTEST_CURRENT_TEST", "TORCHINDUCTOR_")
    return {name: value for name, value in environment.items() if not name.startswith(ours)}


_ENVIRONMENT = _others(os.environ)
"""Environment of the tests before any of them changes it; the fork server has the same."""


class Forked:
    """A fork that calls a function, with methods like those of ``subprocess.Popen``."""

    def __init__(self, target: Callable[..., None], *given: object) -> None:
        self._process = _FORKS.Process(target=target, args=given)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        status = self._process.exitcode
        if status is None:
            raise subprocess.TimeoutExpired("app", timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(command: Sequence[str], environment: Mapping[str, str], output: IO[bytes]) -> Process:
    """A process of ``command`` whose output is appended to the file.

    It is a fork if it runs ``python -m app`` in the environment of the tests; another environment
    needs a new process, as libraries may read variables at their import.
    """
    if [*command[:3]] == [sys.executable, "-m", "app"] and _others(environment) == _ENVIRONMENT:
        return Forked(_run, command[3:], dict(environment), output.name)
    return subprocess.Popen(command, env=dict(environment), stdout=output, stderr=output)


def _run(arguments: Sequence[str], environment: Mapping[str, str], output: str) -> None:
    log = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["leapjson", *arguments]
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    from app.__main__ import main

    sys.exit(main(list(arguments)))


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def running_server(
    model: Path | None, log: Path, settings: Mapping[str, str], timeout: float = 600.0
) -> Iterator[Server]:
    """``loadtest.server.running_server`` with a fork for its process, and one compile worker."""
    settings = {"COMPILE_WORKERS": "1", **settings}
    with server.running_server(model, log, settings, timeout, start=start) as running:
        yield running
