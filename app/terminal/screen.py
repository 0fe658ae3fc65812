"""Output for a person at a terminal (progress, colours, a greeting), or for a log that is kept."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TextIO, cast

from app.core.progress import SILENCE, Progress, Stage

_log = logging.getLogger(__name__)


class LogLines:
    """Stages as lines of the log, without their progress."""

    @contextlib.contextmanager
    def stage(self, name: str, of: int | None = None, *, unit: str = "") -> Iterator[Stage]:
        _log.info(name, extra={} if of is None else {"of": of})
        with SILENCE.stage(name, of) as stage:
            yield stage


@dataclass(frozen=True, slots=True)
class Screen:
    """The outputs for progress, the log beside it, and messages."""

    progress: Progress
    log: TextIO
    say: Callable[[str], None]
    """Prints a message on a terminal only."""


def open_screen(stream: TextIO, *, still: bool = False) -> Screen:
    """Bars where ``stream`` is a terminal that can move its cursor, else lines in the log.

    ``still`` bars cost nothing between progress updates: for use during measurements.
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


Paint = Callable[[str, str], str]
"""Function of a text and a style (``"bold red"``, as in rich); returns the text to print."""


def paint_for(stream: TextIO) -> Paint:
    """Colours where ``stream`` is a terminal that has them, or ``FORCE_COLOR`` is set.

    Not with ``NO_COLOR`` (no-color.org), and not on a dumb terminal.
    """
    if os.environ.get("NO_COLOR") or not (stream.isatty() or os.environ.get("FORCE_COLOR")):
        return plain
    # Imported where it is needed: what writes into files and pipes starts quicker without it.
    from rich.console import COLOR_SYSTEMS, Console
    from rich.style import Style

    name = Console(file=stream).color_system
    if name is None:
        return plain
    system = COLOR_SYSTEMS[name]

    def paint(text: str, style: str) -> str:
        return Style.parse(style).render(text, color_system=system) if text else text

    return paint


def plain(text: str, style: str) -> str:
    """No colours."""
    return text


_EVERYWHERE = {"http://0.0.0.0:": "http://127.0.0.1:", "http://[::]:": "http://[::1]:"}
"""Addresses to listen on, and those to connect to on this machine."""


def greeting(model: str, url: str, stream: TextIO, *, page: bool, keys: bool) -> str:
    """A few lines where ``stream`` is a terminal, else one.

    ``page``: whether the page is served; ``keys``: whether requests need a key.
    """
    address = url  # for programs on this machine
    for anywhere, here in _EVERYWHERE.items():
        if url.startswith(anywhere):
            address = here + url.removeprefix(anywhere)
    messages = [{"role": "user", "content": "Hello"}]
    body = json.dumps({"model": model, "messages": messages}, ensure_ascii=False)
    key = " -H 'authorization: Bearer YOUR-KEY'" if keys else ""
    command = (
        f"curl {address}/v1/chat/completions{key} -H 'content-type: application/json' "
        f"-d {shlex.quote(body)}"
    )
    if not is_watched(stream):
        browser = f", try it in a browser at {address}/" if page else ""
        return f"Leapjson serves {model} at {address}/v1{browser} - try: {command}"
    paint = paint_for(stream)
    rows = [("page", f"{address}/")] if page else []
    rows += [("API", f"{address}/v1"), ("try", command)]
    return "\n".join(
        [
            "",
            f"Leapjson serves {paint(model, 'bold')}",
            *(f"  {paint(f'{name:<4}', 'dim')}  {paint(text, 'cyan')}" for name, text in rows),
            paint("Press Ctrl-C to stop.", "dim"),
            "",
        ]
    )
