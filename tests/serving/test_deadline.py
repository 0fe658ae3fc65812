"""Requests past their deadline: the error that clients get, and the end of all their work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.core.constraint import ConstraintSpec
from app.core.errors import DeadlineExceeded, InvalidRequest, QueueFull
from app.core.specs import JsonObject
from app.serving.admission.admission import Deadline
from tests.serving.fakes import Bench, FakeEngine, ask, text_of, until

SHORT = 0.01


def now() -> Deadline:
    """A deadline that passes immediately."""
    return Deadline(asyncio.get_running_loop().time(), 5.0, asked=True)


async def test_an_answer_that_no_step_scheduled_in_time_leaves_nothing() -> None:
    async with Bench(FakeEngine(slots=0)).running() as bench:
        with pytest.raises(DeadlineExceeded, match=r"within 0\.01 s, its timeout"):
            await bench.texts(ask(timeout=SHORT, n=2))
        await until(lambda: len(bench.engine.aborted) == len(bench.engine.added))
        await until(lambda: not bench.engine.has_work)
        assert bench.admission.live == 0


async def test_the_error_of_a_queued_answer_says_that_it_never_started() -> None:
    async with Bench(FakeEngine(slots=0)).running() as bench:
        generation = await bench.open(ask(n=2))
        generation.expire(now())
        with pytest.raises(DeadlineExceeded, match="no answer had started within 5 s, its timeout"):
            await generation.begun()
        await until(lambda: not bench.engine.has_work)
        assert sorted(bench.engine.aborted) == ["r-0", "r-1"]
        (stats,) = bench.observer.requests
        assert (stats.status, stats.finish_reason) == (504, "error")


async def test_the_servers_own_limit_holds_without_a_timeout() -> None:
    async with Bench(FakeEngine(slots=0), request_seconds=SHORT).running() as bench:
        with pytest.raises(DeadlineExceeded, match="the limit LEAPJSON_REQUEST_SECONDS"):
            await bench.texts(ask())
        with pytest.raises(
            InvalidRequest, match=r"timeout is 7 and the limit is 0\.01 s"
        ) as caught:
            await bench.texts(ask(timeout=7))
        assert caught.value.param == "timeout"


async def test_compiling_counts() -> None:
    async def never(spec: ConstraintSpec, *_: object) -> Any:
        await asyncio.Event().wait()

    async with Bench(compile=never).running() as bench:
        with pytest.raises(DeadlineExceeded, match="not reached the engine's queue"):
            await bench.texts(ask(content=JsonObject(), timeout=SHORT))
        assert bench.constraints.waiting == bench.admission.live == 0
        assert bench.engine.added == []


async def test_text_from_before_the_deadline_is_sent_before_the_error() -> None:
    async with Bench(FakeEngine(lambda request: [b"a", b"b"])).running() as bench:
        bench.engine.pause_at = 1
        generation = await bench.open(ask())
        await generation.begun()
        generation.expire(now())
        await until(lambda: generation._failure)
        batches = generation.batches()
        assert [text_of(chunk) for chunk in await anext(batches)] == ["a"]
        with pytest.raises(DeadlineExceeded, match="the answer was not complete within 5 s"):
            await anext(batches)
        assert bench.admission.live == 0
        await until(lambda: bench.engine.aborted == ["r-0"])
        await until(lambda: not bench.engine.has_work)


async def test_an_answer_that_has_ended_is_past_its_deadline() -> None:
    async with Bench().running() as bench:
        assert await bench.texts(ask(timeout=3000)) == ["Hello"]
        generation = await bench.open(ask("again"))
        texts = [text_of(chunk) async for batch in generation.batches() for chunk in batch]
        generation.expire(now())
        await asyncio.sleep(0)
        generation.close()
        assert "".join(texts) == "Hello"
        assert [stats.status for stats in bench.observer.requests] == [200, 200]


async def test_tokens_in_the_queue_are_counted_with_the_room_that_was_asked_for() -> None:
    async with Bench(FakeEngine(slots=0), context=5000, max_queue_tokens=1200).running() as bench:
        waiting = [asyncio.create_task(bench.texts(ask("a")))]  # 2 tokens, and 1024 for the answer
        await until(lambda: len(bench.engine.added) == 1)
        with pytest.raises(QueueFull, match=r"1026 tokens are waiting.*adds 202"):
            await bench.texts(ask("b", max_tokens=200))
        waiting.append(asyncio.create_task(bench.texts(ask("c", max_tokens=100))))
        await until(lambda: len(bench.engine.added) == 2)
        assert bench.observer.rejections == ["queue_tokens_full"]
        bench.engine.slots = 64
        assert [text for (text,) in await asyncio.gather(*waiting)] == ["Hello"] * 2
        assert await bench.texts(ask("d", max_tokens=2000)) == ["Hello"]
