"""Progress for a person: a line with a bar for each stage, which stays as a line when it is done.

While bars are shown at the end of the terminal, other output has to go above them: rich catches
Python's standard output and error, a log writes to ``AboveBars``.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from app.core.progress import Stage

_NARROW = 60
"""Minimum width of a terminal that shows bars and times beside the text, in columns."""
_BRIEF = 0.1
"""Seconds from which a stage that is done leaves a line."""


class Bars:
    """Stages on a terminal. Threads may have stages at the same time."""

    def __init__(self, console: Console, *, still: bool = False) -> None:
        """``still`` bars are redrawn on progress only, not periodically."""
        self._console = console
        self._still = still
        plain = not console.encoding.startswith("utf")
        self._mark = "*" if plain else "✓"
        columns: list[ProgressColumn] = [
            SpinnerColumn("line" if plain else "dots", style="cyan"),
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(no_wrap=True, overflow="ellipsis", ratio=2, min_width=10),
            ),
            _Reached(table_column=Column(no_wrap=True, overflow="ellipsis", justify="right")),
        ]
        if console.width >= _NARROW:
            columns.insert(2, _KnownLength(table_column=Column(ratio=1)))
            columns.append(TimeElapsedColumn(table_column=Column(no_wrap=True)))
        self._bars = Progress(
            *columns,
            console=console,
            transient=True,
            expand=True,
            auto_refresh=not still,
            redirect_stdout=sys.stdout.isatty(),
        )
        self._running = 0
        self._lock = threading.Lock()

    @property
    def shown(self) -> bool:
        """Whether bars stand on the terminal."""
        return self._running > 0

    @contextlib.contextmanager
    def stage(self, name: str, of: int | None = None, *, unit: str = "") -> Iterator[Stage]:
        with self._lock:
            self._running += 1
            if self._running == 1:
                self._bars.start()
        task = self._bars.add_task(_begun(name), total=of, unit=unit, now="")
        started = time.monotonic()
        try:
            yield _Bar(self._bars, task, still=self._still)
            self._leave_line(name, unit, task, time.monotonic() - started)
        finally:
            self._bars.remove_task(task)
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    self._bars.stop()

    def _leave_line(self, name: str, unit: str, task: TaskID, seconds: float) -> None:
        reached = next(each for each in self._bars.tasks if each.id == task).completed
        if seconds < _BRIEF:
            return
        line = Text.assemble((self._mark, "green"), " ", _begun(name))
        if reached:
            line.append(f"  {_amount(reached, unit)}", "dim")
        line.append(f"  {seconds:.1f} s", "dim")
        self._console.print(line, soft_wrap=True)


class _Bar:
    """The stage of one bar."""

    def __init__(self, bars: Progress, task: TaskID, *, still: bool) -> None:
        self._bars = bars
        self._task = task
        self._still = still

    def reach(self, done: int, of: int | None = None, *, now: str = "") -> None:
        self._bars.update(self._task, completed=done, total=of, now=now, refresh=self._still)


class _KnownLength(ProgressColumn):
    """A bar if the length is known; otherwise it would add nothing to the spinner."""

    _bar = BarColumn(bar_width=None)

    def render(self, task: Task) -> RenderableType:
        return self._bar.render(task) if task.total is not None else ""


class _Reached(ProgressColumn):
    """The amount done, the total, and the current item."""

    def render(self, task: Task) -> Text:
        now, unit, total = task.fields["now"], task.fields["unit"], task.total
        if total is not None:
            done = _amount(task.completed, unit if unit == "B" else "")
            amount = f"{done} of {_amount(total, unit)}"
        else:
            amount = _amount(task.completed, unit) if task.completed else ""
        return Text(" ".join(filter(None, [amount, now])), style="dim")


class AboveBars(io.TextIOBase):
    """A stream of whole lines, printed above the bars."""

    def __init__(self, bars: Bars, console: Console, stream: TextIO) -> None:
        """``stream`` is what ``console`` writes to: lines go there when there is no bar."""
        self._bars = bars
        self._console = console
        self._stream = stream

    def write(self, text: str, /) -> int:
        if self._bars.shown:
            self._console.print(Text(text), soft_wrap=True, end="")
        else:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


def _begun(name: str) -> str:
    return name[:1].upper() + name[1:]


def _amount(number: float, unit: str) -> str:
    if unit != "B":
        return " ".join(filter(None, [f"{number:,.0f}", unit]))
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {prefix}B"
    return f"{number:.0f} B"
