"""How long a page's tasks take."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playwright.sync_api import Page

_TASKS = "disabled-by-default-devtools.timeline"
_NAMED = "__metadata"


@dataclass
class Longest:
    """The longest task of a page's main thread: of the processor's time, not of the clock's, which
    also counts what else the machine does."""

    milliseconds: float = 0.0
    at_second: float = 0.0


@contextmanager
def longest_task(page: Page) -> Iterator[Longest]:
    """What is known of the tasks while the block runs, once it has ended."""
    longest = Longest()
    browser = page.context.browser
    assert browser is not None
    browser.start_tracing(page=page, categories=["-*", "toplevel", _TASKS, _NAMED])
    try:
        yield longest
    finally:
        trace = browser.stop_tracing()
    events = json.loads(trace)["traceEvents"]
    pages = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        event
        for event in events
        if event["name"] == "RunTask" and (event["pid"], event["tid"]) in pages and "tdur" in event
    ]
    assert tasks, "the browser has told of no task"
    began = min(task["ts"] for task in tasks)
    worst = max(tasks, key=lambda task: task["tdur"])
    longest.milliseconds = worst["tdur"] / 1000
    longest.at_second = (worst["ts"] - began) / 1e6
