"""The assembled server: on a fake engine, with a client and nothing between, or in a process."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
import pytest
import uvicorn

from app.constraint import Compiler, read_document
from app.core.request import EngineRequest
from app.server.backend import Backend
from app.server.composition import Assembly, assemble
from app.server.serve import DrainingServer
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from tests.fakes import ByteVocabulary
from tests.serving.fakes import PLAIN, FakeConstraint, FakeEngine, FakeTokenizer


def backend(engine: FakeEngine) -> Backend:
    return Backend(
        engine=engine,
        tokenizer=FakeTokenizer(),
        chat_format=PLAIN,
        vocabulary=ByteVocabulary(),
        compile_target="tests.serving.compile_targets:compile",
        link=lambda program: FakeConstraint(),
        read_document=read_document,
        max_sequence_tokens=10**6,
        fingerprint="fp_test",
        products="torch",
    )


def compiling(engine: FakeEngine) -> Backend:
    """A backend with the real compiler, in its worker process."""
    return replace(
        backend(engine),
        compile_target="app.constraint:compile_program",
        link=Compiler(ByteVocabulary()).link,
    )


@asynccontextmanager
async def started(assembly: Assembly) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a started server; its workers can import the tests."""
    transport = httpx.ASGITransport(assembly.app, raise_app_exceptions=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(Path(__file__).parents[2]))
        async with (
            assembly.app.router.lifespan_context(assembly.app),
            httpx.AsyncClient(transport=transport, base_url="http://test", timeout=300) as client,
        ):
            yield client


def serve(
    told: Connection, drain_seconds: float, pieces: int, stall_seconds: float = 120.0
) -> None:
    """Serve, tell the URL, and exit with a status.

    ``long`` gets ``pieces`` pieces, ``never`` hangs the engine.
    """

    def script(request: EngineRequest) -> list[bytes]:
        if request.prompt[0] == ord("n"):
            threading.Event().wait()
        return [b"x"] * (pieces if request.prompt[0] == ord("l") else 1)

    logging.disable()  # forks write to the terminal
    engine = FakeEngine(script)
    settings = Settings(
        port=0, drain_seconds=drain_seconds, compile_workers=1, stall_seconds=stall_seconds
    )
    assembly = assemble(settings, backend(engine), Metrics())
    config = uvicorn.Config(
        assembly.app, port=0, log_config=None, ws="none", timeout_graceful_shutdown=5
    )
    server = DrainingServer(
        config,
        drain=lambda: assembly.drain(drain_seconds),
        announce=told.send,
        alive=lambda: assembly.worker.alive,
        hangs=lambda: assembly.worker.stalled,
        patience=stall_seconds,
    )
    server.run()
    sys.exit(1 if server.failed else 0)
