"""Set-up and checks in stages, for the Makefile: a line for each, with its time.

    python3 tools/stages.py set-up run      # what the server needs
    python3 tools/stages.py set-up test     # what the tests need, too
    .venv/bin/python tools/stages.py test [--workers N] [options and paths of pytest ...]

Needs the standard library alone, as it runs before anything is installed. What a command prints is
shown where it fails. The times of the last run are kept in ``.cache/stages.json``; they tell how
many minutes are left.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
TIMES = ROOT / ".cache" / "stages.json"
PYTHON = str(VENV / "bin" / "python")
# What is never imported is not compiled to byte code: half of the time that pip takes.
PIP = [PYTHON, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
EXTRAS = {"run": ".[otel,quantized]", "test": ".[test]"}
LINT = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "import rules": ["lint-imports"],
}
TYPES = "types (mypy)"
_PERCENT = re.compile(rb"\[ *(\d+)%\]")


class Times:
    """Seconds that stages took in the last run; the tests' are kept for each percent."""

    def __init__(self, path: Path = TIMES) -> None:
        self._path = path
        try:
            self.seconds: dict[str, float] = json.loads(path.read_text())
        except (OSError, ValueError):
            self.seconds = {}

    def keep(self, times: Mapping[str, float]) -> None:
        self.seconds |= {name: round(value, 1) for name, value in times.items()}
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps(self.seconds, indent=1))

    def left(self, name: str, percent: int) -> str:
        """Words for what a run of tests has before it, "" where none is known."""
        total, now = (self.seconds.get(f"{name} {each}%") for each in (100, percent))
        if total is None or now is None:
            return ""
        minutes = (total - now) / 60
        return f"{minutes:.0f} min left" if minutes >= 1 else "less than a minute left"


def say(name: str, end: str = "\n") -> None:
    print(name, end=end, flush=True)


def stage(name: str, command: Sequence[str]) -> None:
    """Run a command behind a line with its name and time. Exits with its status if it fails."""
    say(f"{name:<34}", end="")
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    say(f"{time.monotonic() - start:5.0f} s" if not done.returncode else "failed:")
    if done.returncode:
        say(" ".join(command))
        say(done.stdout.decode(errors="replace"))
        sys.exit(done.returncode)


def set_up(purpose: str) -> None:
    if not Path(PYTHON).exists():
        stage("making .venv", [sys.executable, "-m", "venv", str(VENV)])
    pinned = [*PIP, "-c", "constraints.txt"]
    stage("installing torch", [*pinned, "torch"])
    stage(f"installing what to {purpose} needs", [*pinned, "-e", EXTRAS[purpose]])
    for done in EXTRAS if purpose == "test" else [purpose]:
        (VENV / f".{done}").touch()


def test(name: str, options: Sequence[str]) -> int:
    """Lint, then types beside the tests. The exit status of the first of them that failed."""
    times = Times()
    if left := times.left(name, 0):
        say(f"{left}, by the last run")
    for check, command in LINT.items():
        stage(check, [str(VENV / "bin" / command[0]), *command[1:]])
    with tempfile.TemporaryFile() as output:
        start = time.monotonic()
        types = subprocess.Popen([str(VENV / "bin/mypy")], cwd=ROOT, stdout=output, stderr=output)
        try:
            say(f"{TYPES:<34}beside the tests")
            status = _pytest(name, options, times)
            if types.poll() is None:
                say("waiting for mypy")
            failed = types.wait()
        finally:
            types.kill()
        say(f"{TYPES:<34}{'failed:' if failed else 'right'}")
        if failed:
            output.seek(0)
            say(output.read().decode(errors="replace"))
    say(f"{'all':<34}{time.monotonic() - start:5.0f} s")
    return status or failed


def _pytest(name: str, options: Sequence[str], times: Times) -> int:
    """Run pytest; behind its percentages stand the minutes that the last run took from there."""
    command = [PYTHON, "-m", "pytest", *options]
    if sys.stdout.isatty():
        command.append("--color=yes")
    start, took = time.monotonic(), {f"{name} 0%": 0.0}
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert running.stdout is not None
    for line in running.stdout:
        if found := _PERCENT.search(line):
            percent = int(found[1])
            took[f"{name} {percent}%"] = time.monotonic() - start
            if left := times.left(name, percent):
                line = line.rstrip(b"\n") + f"  {left}\n".encode()
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    status = running.wait()
    if status == 0 and f"{name} 100%" in took:
        times.keep(took)
    return status


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["set-up", purpose] if purpose in EXTRAS:
            set_up(purpose)
            return 0
        case ["test" | "test-all" | "wide" as name, *options]:
            return test(name, options)
    say(__doc__ or "")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
