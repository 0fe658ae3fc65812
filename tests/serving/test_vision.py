"""The engine's thread sleeps while images are looked at, and is woken when they have been."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.core.errors import LeapjsonError, ShutDown
from app.core.events import TokenChunk
from app.engine import Engine
from app.serving.worker import EngineWorker
from tests.engine.harness import TOKENIZER, VOCABULARY, request
from tests.engine.test_vision_queue import A, seeing
from tests.fakes import FakeEncoder, ScriptedModel, ScriptedRunner
from tests.serving.fakes import until


class Inbox:
    def __init__(self) -> None:
        self.reason: str | None = None
        self.error: LeapjsonError | None = None

    def on_scheduled(self, moment: float) -> None: ...

    def on_chunk(self, chunk: TokenChunk, moment: float) -> None:
        self.reason, self.error = chunk.finish_reason, chunk.error

    def on_failure(self, error: LeapjsonError) -> None:
        self.error = error


@asynccontextmanager
async def sleeping() -> AsyncIterator[tuple[EngineWorker, FakeEncoder, Inbox]]:
    """A worker whose one request waits for the tower, and its inbox."""
    vision_encoder, inbox = FakeEncoder(), Inbox()
    runner = ScriptedRunner(ScriptedModel(VOCABULARY), vision_encoder=vision_encoder)
    worker = EngineWorker(Engine(runner, VOCABULARY, TOKENIZER), clock=time.perf_counter)
    worker.start()
    try:
        await worker.submit([seeing("sees", A)], inbox)
        await until(lambda: worker._engine_thread.busy_since is None)
        yield worker, vision_encoder, inbox
    finally:
        await worker.stop()


async def test_texts_are_answered_meanwhile_and_the_image_once_it_was_looked_at() -> None:
    async with sleeping() as (worker, vision_encoder, inbox):
        text = Inbox()
        await worker.submit([request("reads")], text)
        await until(lambda: text.reason is not None)
        assert (inbox.reason, worker.stalled) == (None, False)
        threading.Thread(target=vision_encoder.finish).start()
        await until(lambda: inbox.reason is not None)
        assert inbox.error is None


async def test_a_tower_that_fails_is_told_to_who_asked() -> None:
    async with sleeping() as (_, vision_encoder, inbox):
        threading.Thread(target=vision_encoder.finish, args=(RuntimeError("no memory"),)).start()
        await until(lambda: inbox.reason is not None)
        assert inbox.reason == "error"
        assert "vision tower failed" in str(inbox.error)


async def test_a_client_that_goes_away_frees_what_it_waits_for() -> None:
    async with sleeping() as (worker, vision_encoder, inbox):
        worker.abort(["sees"])
        await until(lambda: not vision_encoder.looks)
        assert (inbox.reason, inbox.error) == (None, None)


async def test_a_server_that_ends_waits_for_no_image() -> None:
    async with sleeping() as (worker, vision_encoder, inbox):
        await asyncio.wait_for(worker.stop(), 300)
        assert isinstance(inbox.error, ShutDown)
        assert not vision_encoder.looks
        assert not worker.alive
