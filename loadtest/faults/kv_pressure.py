"""A KV cache that is much too small: answers are preempted, but none is lost or changed."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from loadtest.faults.client import chat, content, regex, streamed
from loadtest.faults.findings import Report
from loadtest.faults.setting import Setting
from loadtest.faults.watch import metric, settle

CONTEXT = 640
"""Maximum tokens of a prompt and its answer together."""
TOKEN_BYTES = 4096
"""For the demo model in float32: 4 layers, keys and values, 2 heads, 64 numbers each."""
CACHES = {"ample": 64 * CONTEXT * TOKEN_BYTES, "small": CONTEXT * 3 // 2 * TOKEN_BYTES}


async def run(setting: Setting, report: Report) -> None:
    count = setting.count(64)
    texts: list[list[str]] = []
    for which, size in CACHES.items():
        with setting.server(
            kv_cache_bytes=str(size), max_model_len=str(CONTEXT), max_queue="512"
        ) as server:
            url = server.url
            start = time.perf_counter()
            async with asyncio.timeout(500):
                answers = await asyncio.gather(*(_answer(url, each) for each in range(count)))
            texts.append(list(answers))
            report.note(f"{which} cache, tokens", size // TOKEN_BYTES)
            report.note(f"{which} cache: {count} answers took, s", time.perf_counter() - start)
            preemptions = await metric(url, "preemptions_total")
            if which == "ample":
                report.equal("ample cache: preemptions", preemptions, 0.0)
            else:
                report.check("small cache: preemptions", preemptions, "> 0", preemptions > 0)
            report.note(f"{which} cache: time until empty, s", await settle(url))
    ample, small = texts
    report.equal("answers", len(small), count)
    report.equal("different answers", sum(a != b for a, b in zip(ample, small, strict=True)), 0)


async def _answer(url: str, number: int) -> str:
    get = streamed if number % 2 else content
    return await get(url, _question(number))


def _question(number: int) -> dict[str, Any]:
    low = 150 + number % 5 * 60
    return chat(
        f"Write {number}.",
        response_format=regex(f"[a-z ]{{{low},{low + 100}}}"),
        seed=number,
        max_tokens=CONTEXT - 100,
    )
