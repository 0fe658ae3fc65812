"""A device that fails in a step: the real engine on a runner that raises torch's errors."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
import torch

from app.core.errors import DeviceFailed
from app.core.step import Draw, PendingDraws, Span, StepResult
from app.engine import Engine
from app.engine.config import EngineConfig
from app.server.composition import assemble
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from tests.fakes import ByteTokenizer, ByteVocabulary, ScriptedModel, ScriptedRunner
from tests.server.backend import backend, started
from tests.serving.fakes import FakeEngine, until

VOCABULARY = ByteVocabulary()
CHAT = "/v1/chat/completions"
TOKENS = 200


class FailingRunner(ScriptedRunner):
    """Raises ``error`` at ``place`` (launch, sample or wait) once ``failing`` is set."""

    def __init__(self, error: Exception, place: str) -> None:
        super().__init__(ScriptedModel(VOCABULARY), num_blocks=256)
        self.error = error
        self.place = place
        self.failing = threading.Event()
        self.allowed = threading.Semaphore(0)

    def launch(self, plan: Sequence[Span]) -> None:
        if not self.failing.is_set():
            self.allowed.acquire()  # the test allows each step before the failure
        self._fail_in("launch")
        super().launch(plan)

    def sample(self, draws: Sequence[Draw | None]) -> Any:
        self._fail_in("sample")
        return _Pending(super().sample(draws), lambda: self._fail_in("wait"))

    def _fail_in(self, place: str) -> None:
        if self.failing.is_set() and place == self.place:
            raise self.error


class _Pending:
    def __init__(self, draws: PendingDraws, before: Callable[[], None]) -> None:
        self._draws, self._before = draws, before

    def wait(self) -> StepResult:
        self._before()
        return self._draws.wait()


@pytest.mark.parametrize(
    ("error", "place"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "launch"),
        (torch.AcceleratorError("CUDA error: an illegal memory access"), "sample"),
        (RuntimeError("CUDA error: unspecified launch failure"), "wait"),
        (DeviceFailed("the device failed: CUDA error: the GPU has fallen off the bus"), "wait"),
    ],
)
async def test_everybody_gets_503_when_the_device_fails(
    error: Exception, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    runner = FailingRunner(error, place)
    engine = Engine(runner, VOCABULARY, ByteTokenizer(VOCABULARY), EngineConfig(max_running=2))
    parts = replace(backend(FakeEngine()), engine=engine, max_sequence_tokens=500)
    assembly = assemble(Settings(compile_workers=1), parts, Metrics())

    def body(stream: bool) -> dict[str, Any]:
        messages = [{"role": "user", "content": "hi"}]
        fields = {"max_tokens": TOKENS, "ignore_eos": True, "stream": stream}
        return {"model": "leapjson-demo", "messages": messages, **fields}

    async def post(stream: bool) -> httpx.Response:
        return await client.post(CHAT, json=body(stream))

    async with started(assembly) as client:
        running = [asyncio.ensure_future(post(stream)) for stream in (True, False)]
        while sum(len(plan) == 2 for plan in runner.plans) < 2:
            runner.allowed.release()  # the second request may join some steps later
            await asyncio.sleep(0.01)
        waiting = [asyncio.ensure_future(post(stream)) for stream in (True, False)]
        await until(lambda: assembly.admission.live == 4)
        runner.failing.set()
        runner.allowed.release()
        streamed, whole, *queued = await asyncio.wait_for(asyncio.gather(*running, *waiting), 300)
        late = await post(False)
        health = (await client.get("/health")).status_code

    assert streamed.status_code == 200  # the stream had started
    events = [line.removeprefix("data: ") for line in streamed.text.splitlines() if line]
    assert json.loads(events[-1])["error"]["code"] == "engine_died"
    for answer in (whole, *queued, late):
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] == "engine_died"
        assert int(answer.headers["retry-after"]) >= 1
    assert health == 503
    assert not assembly.worker.alive
    died = next(record for record in caplog.records if record.levelname == "CRITICAL")
    # Only the texts of errors that cannot quote a request are logged.
    assert ("off the bus" in died.getMessage()) == isinstance(error, DeviceFailed)
