"""A pseudo-terminal that runs a program and keeps its output as bytes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A program on a terminal. ``written`` is all of its output so far."""

    def __init__(self, arguments: Sequence[str], columns: int, settings: Mapping[str, str]) -> None:
        self._keys, screen = pty.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "COLORTERM")
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            env={**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **settings},
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(screen)
        self.written = b""

    @property
    def text(self) -> str:
        """The output without control sequences; overwritten lines are kept as lines."""
        plain = _CONTROL.sub(b"", self.written).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return plain.decode(errors="replace")

    def press(self, keys: bytes) -> None:
        os.write(self._keys, keys)

    def wait_for(self, text: str) -> str:
        """Wait until the output has ``text``; returns all output so far."""
        deadline = time.monotonic() + 300
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            if not self._read():
                raise AssertionError(f"the program ended without {text!r}:\n{self.text}")
        return self.text

    def wait(self) -> int:
        """Wait for the end of the program; returns its exit status."""
        while self._read():
            pass
        return self.process.wait(300)

    def _read(self) -> bool:
        if not select.select([self._keys], [], [], 300)[0]:
            raise AssertionError(f"no output for five minutes:\n{self.text}")
        try:
            part = os.read(self._keys, 1 << 16)
        except OSError:  # on Linux: the other side is closed
            return False
        self.written += part
        return bool(part)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._keys)


@contextmanager
def terminal(
    *arguments: str, columns: int = 100, settings: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """Run ``python -m`` with ``arguments`` on a terminal; ``settings``: environment variables."""
    opened = Terminal(arguments, columns, settings or {})
    try:
        yield opened
    finally:
        opened.close()
