"""A thousand streams at once: each complete, valid and equal to the answer alone."""

from __future__ import annotations

import asyncio
import json
import time

import jsonschema

from loadtest.faults.client import content, streamed
from loadtest.faults.findings import Report, quantile
from loadtest.faults.setting import Setting
from loadtest.faults.watch import descriptors, probing, question, resident, settle
from loadtest.tasks import task

QUESTIONS = 10


async def run(setting: Setting, report: Report) -> None:
    count = setting.count(1000)
    with setting.server(max_queue="1000") as server:
        url, pid = server.url, server.process.pid
        wanted = [await content(url, question(number)) for number in range(QUESTIONS)]
        for number, text in enumerate(wanted):
            jsonschema.validate(json.loads(text), task(number).schema)
        before = resident(pid)
        first: list[float] = []
        start = time.perf_counter()
        async with probing(url) as probe:
            tasks = [
                asyncio.create_task(_stream(url, number % QUESTIONS, first))
                for number in range(count)
            ]
            await asyncio.sleep(2)
            report.note("streams", count)
            report.note("descriptors used", descriptors(pid))
            texts = await asyncio.gather(*tasks)
        report.note("time until the last one ended, s", time.perf_counter() - start)
        different = sum(text != wanted[number % QUESTIONS] for number, text in enumerate(texts))
        report.equal("streams different from the answer alone", different, 0)
        report.note("first event, median s", quantile(first, 0.5))
        report.note("first event, longest s", max(first))
        probe.report(report, 1.0)
        report.note("time until idle, s", await settle(url))
        report.note("memory growth, MiB", resident(pid) - before)


async def _stream(url: str, number: int, first: list[float]) -> str:
    """The stream's text; appends the seconds to its first event with text to ``first``."""
    start = time.perf_counter()
    times: list[float] = []
    text = await streamed(url, question(number), times)
    first.append(times[0] - start)
    return text
