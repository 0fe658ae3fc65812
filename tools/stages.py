"""Set-up and checks in stages, for the Makefile: a line for each, with its time.

    python3 tools/stages.py set-up run      # what the server needs
    python3 tools/stages.py set-up test     # what the tests need, too
    .venv/bin/python tools/stages.py test   # or test-all, wide; then options and paths of pytest

Needs the standard library alone, as it runs before anything is installed. The output of a command
is shown if it fails. The times of the last run are kept in ``.cache/stages.json``, for an estimate
of the minutes left.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
TIMES = ROOT / ".cache" / "stages.json"
PYTHON = str(VENV / "bin" / "python")
# Only modules that are imported get compiled to byte code: this halves the time of pip.
PIP = [PYTHON, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
PURPOSES = ("run", "test")
LARGE_FOR_TESTS = ["mypy", "openai", "playwright", "pyarrow", "ruff", "schemathesis", "triton"]
"""The largest packages that only tests need: unpacked in parallel, as pip uses one core."""
KERNELS = [PYTHON, "-m", "tests.warm_up"]
LINT = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "import rules": ["lint-imports"],
}
_PERCENT = re.compile(rb"\[ *(\d+)%\]")


class Times:
    """Seconds of the stages in the last run; those of the tests are kept for each percent."""

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
        """Text with the minutes left of a run of tests, "" if they are unknown."""
        total, now = (self.seconds.get(f"{name} {each}%") for each in (100, percent))
        if total is None or now is None:
            return ""
        minutes = (total - now) / 60
        return f"{minutes:.0f} min left" if minutes >= 1 else "less than a minute left"


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)


@dataclass
class Stage:
    """A command that starts at once; its output is kept."""

    name: str
    command: Sequence[str]
    _output: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    _start: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        streams: dict[str, Any] = {"stdout": self._output, "stderr": self._output}
        self.process = subprocess.Popen(self.command, cwd=ROOT, **streams)
        self._watch = threading.Thread(target=self._time, daemon=True)
        self._watch.start()

    def _time(self) -> None:
        self.process.wait()
        self._took = time.monotonic() - self._start

    def end(self) -> int:
        """Wait for the exit status; prints the duration, and the output if it failed."""
        self._watch.join()
        status = self.process.wait()
        say(f"{self.name:<34}{self._took:5.0f} s{'  failed:' if status else ''}")
        if status:
            self._output.seek(0)
            say(" ".join(self.command))
            say(self._output.read().decode(errors="replace"))
        return status


def run(name: str, command: Sequence[str]) -> None:
    """Run a stage; exits with the command's status if it fails."""
    if sys.stdout.isatty():
        say(f"{name} ...", end="\r")
    if status := Stage(name, command).end():
        sys.exit(status)


def set_up(purpose: str) -> None:
    if not Path(PYTHON).exists():
        run("making .venv", [sys.executable, "-m", "venv", str(VENV)])
    pinned = [*PIP, "-c", "constraints.txt"]
    if not any((VENV / f".{each}").exists() for each in PURPOSES):
        run("installing torch", [*pinned, "torch"])
    nothing = subprocess.DEVNULL
    silent: dict[str, Any] = {"cwd": ROOT, "stdin": nothing, "stdout": nothing, "stderr": nothing}
    if purpose == "test":
        large = subprocess.Popen([*pinned, "--no-deps", *LARGE_FOR_TESTS], **silent)
    run("installing what the server needs", [*pinned, "-e", ".[otel,quantized]"])
    (VENV / ".run").touch()
    if purpose == "test":
        # In parallel with pip; the tests wait until it has ended.
        subprocess.Popen(KERNELS, **silent)
        large.wait()  # if it failed, the next stage says why
        # Without "-e .[test]", which builds the project once more.
        run("installing what the tests need", [*pinned, *_requirements("test")])
        (VENV / ".test").touch()


def _requirements(extra: str) -> list[str]:
    """Requirements of an extra of the project, and of the extras that it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: list[str] = []
    for each in project["optional-dependencies"][extra]:
        named = re.fullmatch(rf"{project['name']}\[(.*)\]", each)
        for name in named[1].split(",") if named else []:
            found += _requirements(name)
        found += [] if named else [each]
    return found


def test(name: str, options: Sequence[str]) -> int:
    """Lint, kernels and tests, with types in parallel; returns the first status that is not 0."""
    times = Times()
    if left := times.left(name, 0):
        say(f"{left}, by the last run")
    for check, command in LINT.items():
        run(check, [str(VENV / "bin" / command[0]), *command[1:]])
    start = time.monotonic()
    types = Stage("types", [str(VENV / "bin/mypy")])
    try:
        say("checking types beside the tests ...")
        run("compiling kernels", KERNELS)
        status = _pytest(name, options, times)
        status = types.end() or status
    finally:
        types.process.kill()
    say(f"{'types and tests':<34}{time.monotonic() - start:5.0f} s")
    return status


def _pytest(name: str, options: Sequence[str], times: Times) -> int:
    """Run pytest; adds the minutes left, by the last run, to its percentages."""
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
    if name == "wide" and status == 5:  # pytest collected no test
        status = 0
    if status == 0 and f"{name} 100%" in took:
        times.keep(took)
    return status


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["set-up", purpose] if purpose in PURPOSES:
            set_up(purpose)
            return 0
        case ["test" | "test-all" | "wide" as name, *options]:
            return test(name, options)
    say(__doc__ or "")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
