"""Runs the commands that install separate environments for peers and clients."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

_SHOWN_LINES = 5


class NotInstalled(Exception):
    """Packages are missing or cannot be installed; the message has the reason."""


def run(arguments: Sequence[str], seconds: float = 3600) -> None:
    """Run a command. If it fails, raises ``NotInstalled`` with the last lines of its output."""
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=seconds, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from error
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise NotInstalled("\n".join(lines[-_SHOWN_LINES:]) or f"status {done.returncode}")
