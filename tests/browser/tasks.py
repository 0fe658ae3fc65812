"""Time of a page's tasks relative to a fixed piece of work, for machines of any speed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page

_TASKS = "disabled-by-default-devtools.timeline"
_FRAMES = "disabled-by-default-devtools.timeline.frame"
_NAMED = "__metadata"
_MARKED = "blink.user_timing"
CATEGORIES = ["-*", "toplevel", _TASKS, _FRAMES, _NAMED, _MARKED]
"""Categories of the trace that are read here."""
_YARDSTICK = "yardstick"
_FIXED_WORK = f"""
() => {{
  performance.mark("{_YARDSTICK}");
  let values = Array.from({{ length: 10000 }}, (_, number) => ({{ [`name ${{number}}`]: number }}));
  for (let round = 0; round < 3; round++) values = JSON.parse(JSON.stringify(values));
}}
"""
"""The fixed piece of work: some 50 ms on the machine that this was written on."""


@dataclass
class Tasks:
    """Tasks of a page's main thread, in milliseconds of CPU time: wall-clock time would include
    other work of the machine."""

    longest: float = 0.0
    at_second: float = 0.0
    """Start of the longest task, in seconds after the first one."""
    yardstick: float = 0.0
    """Median time of the fixed work in the same thread, in milliseconds."""

    @property
    def weight(self) -> float:
        """Time of the longest task divided by that of the fixed work."""
        return self.longest / self.yardstick


def weigh(page: Page) -> None:
    """Runs the fixed work; needed several times in each ``watched_tasks``."""
    page.evaluate(_FIXED_WORK)


@contextmanager
def watched_tasks(page: Page) -> Iterator[Tasks]:
    """Traces tasks during the block; the result is filled in when the block has ended."""
    tasks = Tasks()
    browser = page.context.browser
    assert browser is not None
    browser.start_tracing(page=page, categories=CATEGORIES)
    try:
        weigh(page)
        yield tasks
        weigh(page)
    finally:
        trace = browser.stop_tracing()
    _read(json.loads(trace)["traceEvents"], tasks)


@dataclass(frozen=True)
class Frames:
    """Rate and cost of the frames of a page."""

    a_second: float
    work: float
    """CPU time of the main thread for each frame, in milliseconds."""


def frames_of(trace: bytes, began: str, ended: str) -> Frames:
    """The frames between two marks that the page has set."""
    events = json.loads(trace)["traceEvents"]
    start, end = (next(e["ts"] for e in events if e["name"] == name) for name in (began, ended))
    inside = [event for event in events if start <= event["ts"] < end]
    work = sum(task["tdur"] for task in _tasks_of(events) if start <= task["ts"] < end)
    drawn = sum(event["name"] == "DrawFrame" for event in inside)
    return Frames(drawn / ((end - start) / 1e6), work / 1000 / max(1, drawn))


def _read(events: list[dict[str, Any]], tasks: Tasks) -> None:
    found = _tasks_of(events)
    marks = [event for event in events if event["name"] == _YARDSTICK]
    fixed = [task for task in found if any(_holds(task, mark) for mark in marks)]
    own = [task for task in found if task not in fixed]
    assert own, "the trace has no task of the page"
    began = min(task["ts"] for task in own)
    worst = max(own, key=lambda task: task["tdur"])
    tasks.longest = worst["tdur"] / 1000
    tasks.at_second = (worst["ts"] - began) / 1e6
    tasks.yardstick = statistics.median(task["tdur"] for task in fixed) / 1000


def _tasks_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tasks of the main threads of pages."""
    pages = {
        _thread(event)
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [
        event
        for event in events
        if event["name"] == "RunTask" and _thread(event) in pages and "tdur" in event
    ]


def _thread(event: Mapping[str, Any]) -> tuple[int, int]:
    return event["pid"], event["tid"]


def _holds(task: Mapping[str, Any], mark: Mapping[str, Any]) -> bool:
    inside = task["ts"] <= mark["ts"] < task["ts"] + task["dur"]
    return inside and _thread(task) == _thread(mark)
