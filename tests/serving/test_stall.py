"""An engine that hangs in a forward pass: the real engine, on a runner that does not return."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from app.core.errors import DeviceFailed, EngineDied, InvalidRequest, LeapjsonError
from app.core.events import TokenChunk
from app.core.request import EngineRequest, GenerationOptions, SamplingParams, ServiceTier
from app.core.step import Span
from app.engine import Engine
from app.server.composition import assemble
from app.server.settings import Settings
from app.serving.worker import EngineWorker
from app.telemetry.metrics import Metrics
from tests.fakes import ByteTokenizer, ByteVocabulary, ScriptedModel, ScriptedRunner
from tests.server.backend import backend, started
from tests.serving.fakes import FakeEngine, until

VOCABULARY = ByteVocabulary()
CHAT = "/v1/chat/completions"
BODY = {
    "model": "leapjson-demo",
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 2,
}


class HangingRunner(ScriptedRunner):
    """A runner whose forward passes wait until ``gate`` is set."""

    def __init__(self) -> None:
        super().__init__(ScriptedModel(VOCABULARY))
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.entered = threading.Event()

    def launch(self, plan: Sequence[Span]) -> None:
        self.entered.set()
        assert self.gate.wait(timeout=300), "the test did not open the gate"
        if self.error is not None:
            raise self.error
        super().launch(plan)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Ended:
    """An inbox that records the finish reason of the answer."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def on_scheduled(self, moment: float) -> None: ...

    def on_chunk(self, chunk: TokenChunk, moment: float) -> None:
        self.reason = chunk.finish_reason

    def on_failure(self, error: LeapjsonError) -> None: ...


def engine_of(runner: HangingRunner) -> Engine:
    return Engine(runner, VOCABULARY, ByteTokenizer(VOCABULARY))


@asynccontextmanager
async def hanging(
    clock: Clock,
) -> AsyncIterator[tuple[EngineWorker, HangingRunner, asyncio.Future[None], Ended]]:
    """A worker that hangs on a request since time 1000, its runner, the submission, the inbox."""
    runner, inbox = HangingRunner(), Ended()
    worker = EngineWorker(engine_of(runner), clock=clock, stall_seconds=120)
    worker.start()
    clock.now = 1000.0
    assert (worker.step_age, worker.stalled) == (0, False)  # idle: there is no work
    request = EngineRequest(
        "r", prompt=[104, 105], max_tokens=3, options=GenerationOptions(sampling=SamplingParams())
    )
    asked = asyncio.ensure_future(worker.submit([request], inbox))
    try:
        await until(runner.entered.is_set)
        yield worker, runner, asked, inbox
    finally:
        runner.gate.set()
        await asyncio.gather(asked, return_exceptions=True)
        await worker.stop()
        await until(lambda: not worker.alive)


async def test_a_step_that_does_not_end_is_a_stall_until_it_ends() -> None:
    clock = Clock()
    async with hanging(clock) as (worker, runner, asked, inbox):
        clock.now += 120.0
        assert (worker.step_age, worker.stalled) == (120, False)
        clock.now += 0.5
        assert (worker.step_age, worker.stalled) == (120.5, True)
        assert worker.alive
        runner.gate.set()
        await asked
        await until(lambda: inbox.reason is not None)
        await until(lambda: worker._busy_since is None)  # idle
        clock.now += 1000.0
        assert not worker.stalled


async def test_an_engine_that_hangs_does_not_keep_the_server_from_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    async with hanging(clock) as (worker, runner, _, _):
        clock.now += 121.0
        await asyncio.wait_for(worker.stop(), 300)
        assert worker.alive
        assert not runner.gate.is_set()
        assert "stuck in a step; abandoning it" in caplog.text


async def test_requests_of_a_hanging_engine_fail_as_soon_as_the_server_drains() -> None:
    runner = HangingRunner()
    parts = replace(backend(FakeEngine()), engine=engine_of(runner), max_sequence_tokens=100)
    assembly = assemble(Settings(compile_workers=1, stall_seconds=1e-9), parts, Metrics())
    async with started(assembly) as client:
        asked = asyncio.ensure_future(client.post(CHAT, json=BODY))
        try:
            await until(runner.entered.is_set)
            await asyncio.wait_for(assembly.drain(3600), 300)
            answer = await asyncio.wait_for(asked, 300)
        finally:
            runner.gate.set()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_died")


async def test_liveness_and_readiness_say_that_the_engine_hangs() -> None:
    runner, metrics = HangingRunner(), Metrics()
    parts = replace(backend(FakeEngine()), engine=engine_of(runner), max_sequence_tokens=100)
    # So short that a step which waits for the gate exceeds it at once.
    assembly = assemble(Settings(compile_workers=1, stall_seconds=1e-9), parts, metrics)

    def gauge() -> float:
        text = metrics.render()[0].decode()
        return float(re.findall(r"^leapjson_engine_step_age_seconds (\S+)$", text, re.M)[0])

    async with started(assembly) as client:
        assert (await client.get("/health")).status_code == 200
        asked = asyncio.ensure_future(client.post(CHAT, json=BODY))
        try:
            await until(runner.entered.is_set)
            for path in ("/health", "/ready"):
                answer = await client.get(path)
                assert answer.status_code == 503
                assert answer.json()["status"].startswith(
                    "the engine is stuck: its last step ended"
                )
            assert gauge() > 0
        finally:
            runner.gate.set()
        assert (await asked).status_code == 200
        await until(lambda: assembly.worker.step_age == 0)
        assert gauge() == 0
        assert [(await client.get(path)).status_code for path in ("/health", "/ready")] == [200] * 2


async def test_an_engine_that_is_lost_in_a_step_fails_everybody_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For example, a rank is gone, and the step waits for it forever."""
    async with hanging(Clock()) as (worker, runner, asked, _):
        threading.Thread(target=worker.lose, args=("rank 1 of 2: it was killed",)).start()
        with pytest.raises(EngineDied):
            await asyncio.wait_for(asked, 300)
        assert not worker.alive
        await asyncio.wait_for(worker.stop(), 300)  # does not wait for the hanging thread
        runner.gate.set()
    said = [each.getMessage() for each in caplog.records if each.levelname == "CRITICAL"]
    assert said == ["the engine died: rank 1 of 2: it was killed"]


async def test_a_step_that_fails_for_the_same_reason_adds_no_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with hanging(Clock()) as (worker, runner, asked, _):
        runner.error = DeviceFailed("rank 1 of 2: it was killed")
        worker.lose("rank 1 of 2: it was killed")
        runner.gate.set()
        with pytest.raises(EngineDied):
            await asyncio.wait_for(asked, 300)
    said = [each.getMessage() for each in caplog.records if each.levelname == "CRITICAL"]
    assert said == ["the engine died: rank 1 of 2: it was killed"]


async def test_a_request_above_flex_is_urgent_until_it_is_added_or_refused() -> None:
    async with hanging(Clock()) as (worker, runner, _, inbox):
        assert not worker.has_urgent(), "the request was added"
        flex = EngineRequest("flex", prompt=[1], max_tokens=1, tier=ServiceTier.FLEX)
        asked = [asyncio.ensure_future(worker.submit([flex], inbox))]
        await asyncio.sleep(0)
        assert not worker.has_urgent()
        for prompt in ([1], []):  # the second one is refused
            one = EngineRequest(f"r{len(prompt)}", prompt=prompt, max_tokens=1)
            asked.append(asyncio.ensure_future(worker.submit([one], inbox)))
        await asyncio.sleep(0)
        assert worker.has_urgent()
        runner.gate.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in answers] == [type(None), type(None), InvalidRequest]
        assert not worker.has_urgent()
