"""Counts by API key: written to the store once, whoever waits for the write."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.events import AnswerUsage
from app.serving.timeline import Timeline
from app.serving.usage import UsageByKey
from tests.serving.fakes import RecordingObserver
from tests.store.lines import open_folder


async def test_a_write_that_nobody_waits_for_any_more_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_folder(tmp_path)
    usage, observer = UsageByKey(store), RecordingObserver()
    timeline = Timeline("/v1/completions", "r", observer, lambda: 0.0, owner="ann")
    timeline.submitted(3)
    timeline.chunk(0, AnswerUsage(completion_tokens=2), 0.0)
    timeline.end(status=200, finish_reason="stop")
    usage.observe(observer.requests[0])
    began, go_on, add = threading.Event(), threading.Event(), store.state.add_usage

    def add_slowly(rows: Sequence[Mapping[str, Any]]) -> None:
        began.set()
        go_on.wait(10)
        add(rows)

    monkeypatch.setattr(store.state, "add_usage", add_slowly)
    asked = asyncio.create_task(usage.find("ann", "0", "9"))
    await asyncio.to_thread(began.wait, 10)
    asked.cancel()
    await asyncio.sleep(0.01)
    go_on.set()
    await usage.close()
    [day] = await usage.find("ann", "0", "9")
    assert (day["requests"], day["prompt_tokens"], day["completion_tokens"]) == (1, 3, 2)
    await store.close()
