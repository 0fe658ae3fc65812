"""Clock jumps while answers run; Debian's libfaketime is loaded into the server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtest.faults.client import ask, chat, json_schema, outcome
from loadtest.faults.findings import Report
from loadtest.faults.setting import SERVE, Setting
from loadtest.faults.watch import bystanders, metric, resident, settle

DAY = 86_400
JUMPS = (3600, -3600, 10 * 365 * DAY, -20 * 365 * DAY, 0)
"""Offsets from the true time in seconds, applied one after the other."""


def library() -> Path | None:
    """libfaketime for programs with threads, if Debian's package is installed."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return found[0] if found else None


async def run(setting: Setting, report: Report) -> None:
    faketime = library()
    if faketime is None:
        report.note("skipped", "libfaketime is not installed (apt-get install libfaketime)")
        return
    await _wall_clock(setting, report, faketime)
    await _monotonic_clock(setting, report, faketime)


def _command(faketime: Path, offset: Path, *, monotonic: bool) -> Sequence[str]:
    offset.write_text("+0", encoding="ascii")
    return (
        "env",
        f"LD_PRELOAD={faketime}",
        f"FAKETIME_TIMESTAMP_FILE={offset}",
        "FAKETIME_CACHE_DURATION=1",
        f"FAKETIME_DONT_FAKE_MONOTONIC={int(not monotonic)}",
        *SERVE,
    )


async def _wall_clock(setting: Setting, report: Report, faketime: Path) -> None:
    offset = setting.folder / "wall"
    with setting.server(_command(faketime, offset, monotonic=False)) as server:
        url = server.url
        before = resident(server.process.pid)
        errors = []
        async with bystanders(url, report):
            for jump in JUMPS:
                await asyncio.sleep(3 * setting.scale)
                offset.write_text(f"{jump:+d}", encoding="ascii")
                await asyncio.sleep(2)
                status, answer = await ask(url, _fresh(f"wall{jump}"))
                report.equal(f"wall clock {jump:+d} s: a new schema", status, 200)
                errors.append(abs(json.loads(answer)["created"] - time.time() - jump))
        report.at_most("wall clock: error of `created`, s", max(errors), 5)
        longest = await metric(url, "e2e_request_latency_seconds_sum")
        count = await metric(url, "e2e_request_latency_seconds_count")
        report.at_most("wall clock: mean latency in the metrics, s", longest / count, 60)
        report.note("wall clock: memory growth, MiB", resident(server.process.pid) - before)
        await settle(url)


async def _monotonic_clock(setting: Setting, report: Report, faketime: Path) -> None:
    """Move the monotonic clock forward. Linux stops it during suspend, and never moves it back."""
    offset = setting.folder / "monotonic"
    with setting.server(_command(faketime, offset, monotonic=True)) as server:
        url = server.url
        for jump in (60, 3600, 86_400):
            asked = [asyncio.create_task(outcome(url, _long(number), 60)) for number in range(8)]
            await asyncio.sleep(2)
            offset.write_text(f"{jump:+d}", encoding="ascii")
            outcomes = [await each for each in asked]
            what = f"monotonic clock to {jump:+d} s"
            report.note(f"{what}: running answers", ", ".join(sorted(set(outcomes))))
            fresh = await outcome(url, _fresh(f"monotonic{jump}"), 60)
            report.equal(f"{what}: a new schema afterwards", fresh, "200")
            report.equal(f"{what}: /ready", (await ask(url, None, path="/ready"))[0], 200)


def _long(number: int) -> dict[str, Any]:
    pattern = {"type": "regex", "regex": "[a-z ]{900,1000}"}
    return chat("Hello!", response_format=pattern, seed=number)


def _fresh(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {"type": "boolean"}}, "required": [name]}
    return chat("Answer.", response_format=json_schema(schema), max_tokens=100)
