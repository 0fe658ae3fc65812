"""The form of JSON answers, from the request or the settings to the enforced constraint.

The tests use the real compiler in its worker process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.constraint import Compiler, JsonSchema
from app.core.constraint import ConstraintSpec, ConstraintState
from app.core.errors import RejectedToken
from app.server.composition import assemble
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from tests.fakes import ByteVocabulary
from tests.server.backend import backend
from tests.serving.fakes import FakeEngine

CHAT = "/v1/chat/completions"
NUMBERS = {"type": "array", "items": {"type": "number"}}


class Served:
    """A server on a fake engine; returns the constraints that the engine gets."""

    def __init__(self, engine: FakeEngine, client: httpx.AsyncClient) -> None:
        self._engine = engine
        self.client = client

    async def constraint(self, schema: Any, **fields: Any) -> ConstraintState:
        body = {
            "model": "leapjson-demo",
            "messages": [{"role": "user", "content": "hi"}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": schema},
                **fields,
            },
        }
        response = await self.client.post(CHAT, json=body)
        assert response.status_code == 200, response.text
        constraint = self._engine.added[-1].constraint
        assert constraint is not None
        return constraint.start()

    async def admits(self, text: bytes, schema: Any, **fields: Any) -> bool:
        state = await self.constraint(schema, **fields)
        try:
            state.accept_bytes(text)
        except RejectedToken:
            return False
        return state.is_complete


@asynccontextmanager
async def served(settings: Settings, **preloads: ConstraintSpec) -> AsyncIterator[Served]:
    engine = FakeEngine()
    parts = replace(
        backend(engine),
        compile_target="app.constraint:compile_program",
        compile_arguments=(settings.constraint_limits(),),
        link=Compiler(ByteVocabulary()).link,
    )
    assembly = assemble(settings, parts, Metrics(), preloads)
    transport = httpx.ASGITransport(assembly.app)
    async with (
        assembly.app.router.lifespan_context(assembly.app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield Served(engine, client)


@pytest.fixture(autouse=True)
def _workers_find_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


async def test_a_request_says_where_white_space_stands() -> None:
    async with served(Settings(compile_workers=1)) as server:
        for whitespace, text in {
            "spaced": b"[1, 2]",
            "compact": b"[1,2]",
            "indent:1": b"[\n 1,\n 2\n]",
            "flexible": b"[ 1,2\n]",
        }.items():
            assert await server.admits(text, NUMBERS, whitespace=whitespace)
            assert await server.admits(text, NUMBERS) == (whitespace == "spaced")


async def test_the_server_has_a_default_that_a_request_overrides() -> None:
    async with served(Settings(compile_workers=1, whitespace="compact")) as server:
        assert await server.admits(b"[1,2]", NUMBERS)
        assert not await server.admits(b"[1, 2]", NUMBERS)
        assert await server.admits(b"[1, 2]", NUMBERS, whitespace="spaced")


async def test_a_preloaded_type_is_compiled_in_the_server_s_form() -> None:
    numbers = JsonSchema(NUMBERS, close_objects=True)
    async with served(Settings(compile_workers=1, whitespace="compact"), numbers=numbers) as server:
        assert await server.admits(b"[1,2]", NUMBERS)
        exposition = (await server.client.get("/metrics")).text
    assert "leapjson_schema_cache_misses_total 1.0" in exposition


async def test_unbounded_numbers_have_as_many_digits_as_the_settings_say() -> None:
    few = Settings(compile_workers=1, max_integer_digits=3, max_fraction_digits=2)
    async with served(few) as server:
        assert await server.admits(b"[999, 0.25]", NUMBERS)
        assert not await server.admits(b"[1000]", NUMBERS)
        assert not await server.admits(b"[0.125]", NUMBERS)
        bounded = {"type": "integer", "minimum": 0, "maximum": 123456}
        assert await server.admits(b"123456", bounded), "a bound overrides the setting"


@pytest.mark.parametrize(("digits", "admitted"), [(100, True), (99, False)])
async def test_numbers_have_no_more_digits_than_the_limit(digits: int, admitted: bool) -> None:
    settings = Settings(compile_workers=1, max_integer_digits=digits, max_fraction_digits=digits)
    async with served(settings) as server:
        number = b"9" * 100
        assert await server.admits(number, {"type": "integer"}) == admitted
        assert await server.admits(b"0." + number, {"type": "number"}) == admitted
