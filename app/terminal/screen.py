"""What standard error is: a terminal that a person watches, or a log that is kept."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TextIO, cast

from app.core.progress import SILENCE, Progress, Stage

_log = logging.getLogger(__name__)


class LogLines:
    """Stages in the log; how far they are is not told."""

    @contextlib.contextmanager
    def stage(self, name: str, of: int | None = None, *, unit: str = "") -> Iterator[Stage]:
        _log.info(name, extra={} if of is None else {"of": of})
        with SILENCE.stage(name, of) as stage:
            yield stage


@dataclass(frozen=True, slots=True)
class Screen:
    """Where progress is told, and where a log may be written beside it."""

    progress: Progress
    log: TextIO
    say: Callable[[str], None]
    """Tells a person who watches; nobody else."""


def open_screen(stream: TextIO, *, still: bool = False) -> Screen:
    """Bars where ``stream`` is a terminal that can move its cursor, else lines in the log.

    ``still`` bars cost nothing between two things that are reached: beside what is measured.
    """
    if not is_watched(stream):
        return Screen(LogLines(), stream, say=lambda text: None)
    # Imported where it is needed: not by what writes into files and pipes.
    from rich.console import Console

    from app.terminal.bars import AboveBars, Bars

    console = Console(file=stream, highlight=False)
    bars = Bars(console, still=still)
    log = AboveBars(bars, console, stream)

    def say(text: str) -> None:
        log.write(f"\r{text}\n")  # from the line's beginning, where the terminal has put a ^C
        log.flush()

    return Screen(bars, cast(TextIO, log), say)


def is_watched(stream: TextIO) -> bool:
    """Whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
