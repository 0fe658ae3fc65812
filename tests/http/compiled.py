"""A server on a fake engine with the real compiler, and the constraints that its engine gets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from app.core.constraint import ConstraintSpec, ConstraintState
from app.core.errors import RejectedToken
from app.server.composition import assemble
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from tests.server.backend import compiling, started
from tests.serving.fakes import FakeEngine, Script, hello

MODEL = {"model": "leapjson-demo"}


class Served:
    def __init__(self, engine: FakeEngine, client: httpx.AsyncClient) -> None:
        self._engine = engine
        self.client = client

    async def constraint(self, path: str, **body: Any) -> ConstraintState:
        """The start state of the constraint that the engine gets for a request."""
        response = await self.client.post(path, json=MODEL | body)
        assert response.status_code == 200, response.text
        constraint = self._engine.added[-1].constraint
        assert constraint is not None
        return constraint.start()

    async def refusal(self, path: str, **body: Any) -> dict[str, Any]:
        response = await self.client.post(path, json=MODEL | body)
        assert response.status_code == 400, response.text
        error: dict[str, Any] = response.json()["error"]
        return error


def admits(state: ConstraintState, text: str) -> bool:
    """Whether ``text`` is a whole answer from ``state``, which is not changed."""
    state = state.copy()
    try:
        state.accept_bytes(text.encode())
    except RejectedToken:
        return False
    return state.is_complete


@asynccontextmanager
async def served(
    script: Script = hello, preloads: Mapping[str, ConstraintSpec] | None = None, **settings: Any
) -> AsyncIterator[Served]:
    engine, chosen = FakeEngine(script), Settings(compile_workers=1, **settings)
    parts = replace(compiling(engine), compile_arguments=(chosen.constraint_limits(),))
    async with started(assemble(chosen, parts, Metrics(), preloads)) as client:
        yield Served(engine, client)
