"""Starts the server under test as a separate process, and stops it by its process id."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import httpx


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process(Protocol):
    """The used part of ``subprocess.Popen``."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


Start = Callable[[Sequence[str], Mapping[str, str], IO[bytes]], Process]
"""A function that starts a command with an environment, and writes its output to a file."""


def _start(command: Sequence[str], environment: Mapping[str, str], output: IO[bytes]) -> Process:
    return subprocess.Popen(command, env=environment, stdout=output, stderr=output)


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    process: Process


@contextmanager
def running_server(
    model: Path | None,
    log: Path,
    settings: Mapping[str, str],
    timeout: float = 600.0,
    command: Sequence[str] = (sys.executable, "-m", "app", "serve"),
    start: Start = _start,
) -> Iterator[Server]:
    """Run a server of ``model`` (None: the demo model) during the block.

    ``settings`` are ``LEAPJSON_`` variables without the prefix; ``command`` starts the server.
    Raises RuntimeError with the end of the log if it is not ready after ``timeout`` seconds.
    """
    port = free_port()
    environment = {**os.environ, "LEAPJSON_PORT": str(port), "LEAPJSON_HOST": "127.0.0.1"}
    if model is not None:
        environment["LEAPJSON_MODEL"] = str(model)
    environment.update({f"LEAPJSON_{name}": value for name, value in settings.items()})
    url = f"http://127.0.0.1:{port}"
    with running_process(command, environment, log, f"{url}/ready", timeout, start) as process:
        yield Server(url, process)


@contextmanager
def running_process(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    ready: str,
    timeout: float,
    start: Start = _start,
) -> Iterator[Process]:
    """Run a server's process during the block, which starts when GET ``ready`` returns 200.

    Its output goes to ``log``. Raises RuntimeError with its last part after ``timeout`` seconds.
    """
    with log.open("wb") as output:
        process = start(command, environment, output)
    try:
        _wait_until_ready(process, ready, log, timeout)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: Process, ready: str, log: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    with httpx.Client(
        verify=False
    ) as client:  # one client for all requests: loading certificates takes milliseconds
        while time.monotonic() < deadline and process.poll() is None:
            try:
                if client.get(ready).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    text = log.read_text(errors="replace")
    raise RuntimeError(f"the server did not become ready:\n{text[-3000:]}")
