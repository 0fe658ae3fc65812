"""Hundreds of requests of one client and one of another: HTTP, keys, service and engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from app.core.events import StepOutput
from app.core.request import EngineRequest
from app.engine import Engine, EngineConfig
from app.http.keys import ApiKeys
from tests.engine.harness import TOKENIZER, VOCABULARY
from tests.fakes import ScriptedModel, ScriptedRunner
from tests.http.harness import CHAT, CONFIG, chat, client_of
from tests.serving.fakes import Bench, FakeEngine, until


class HeldEngine(Engine):
    """The real engine on a scripted model; it runs one answer at a time, while its gate is open."""

    def __init__(self) -> None:
        runner = ScriptedRunner(ScriptedModel(VOCABULARY), num_blocks=64)
        super().__init__(runner, VOCABULARY, TOKENIZER, EngineConfig(max_running=1))
        self.gate = threading.Event()
        self.tenants: dict[str, str] = {}
        self.ended: list[str] = []

    def add(self, request: EngineRequest) -> None:
        super().add(request)
        self.tenants[request.request_id] = request.tenant

    def step(self) -> Iterator[StepOutput]:
        if self.gate.wait(timeout=0.002):
            for output in super().step():
                ended = [each.request_id for each in output.chunks if each.finish_reason]
                self.ended += [self.tenants[each] for each in ended]
                yield output


async def test_the_one_request_is_answered_before_what_is_left_of_hundreds() -> None:
    engine = HeldEngine()
    bench = Bench(cast(FakeEngine, engine), capacity=301)
    keys = ApiKeys(["many", "one"])

    async with client_of(bench, replace(CONFIG, api_keys=keys)) as client:

        def ask(key: str) -> asyncio.Task[Any]:
            headers = {"authorization": f"Bearer {key}"}
            return asyncio.create_task(client.post(CHAT, json=chat(max_tokens=2), headers=headers))

        asked = [ask("many") for _ in range(300)]
        await until(lambda: len(engine.tenants) == 300)
        asked.append(ask("one"))
        await until(lambda: len(engine.tenants) == 301)
        engine.gate.set()
        answers = await asyncio.gather(*asked)
    assert {answer.status_code for answer in answers} == {200}
    assert engine.ended.index("key 2") == 1
    assert len(engine.ended) == 301
