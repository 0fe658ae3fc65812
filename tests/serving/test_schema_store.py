"""Schemas and compiled programs in a store that replicas share."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.constraint.limits import Limits
from app.constraint.program import Program
from app.constraint.stored import identity
from app.core.constraint import ConstraintSpec
from app.core.errors import InvalidSchema, UnknownSchema
from app.core.request import ServiceTier
from app.core.specs import Choice, JsonSchema, Regex
from app.serving.compiling.schema_registry import SchemaRegistry
from app.serving.compiling.schema_store import SchemaStore, StoredPrograms
from app.serving.workers.pool import WorkerLimits, WorkerPool
from app.store.rows import SCHEMA
from app.store.store import Store, open_schema_store
from tests.serving.fakes import Bench, until

LIMITS = Limits()
SPEC = JsonSchema({"type": "array", "items": {"enum": [1, "a", None]}}, close_objects=True)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = open_schema_store(str(tmp_path / "schemas"))
    yield store
    await store.close()


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    target = "app.constraint:compile_program"
    pool = WorkerPool(target, LIMITS, workers=1, limits=WorkerLimits())
    await pool.start()
    yield pool
    await pool.close()


def programs(store: Store, pool: WorkerPool, name: str = "") -> StoredPrograms:
    shared = SchemaStore(store, {"key 1": "ann"}, 1 << 20)
    return StoredPrograms(shared, pool, name or identity(LIMITS))


def registry(store: Store, bench: Bench) -> SchemaRegistry:
    return SchemaRegistry(
        constraints=bench.constraints,
        explain=bench._explain,
        wall_clock=lambda: 7.0,
        max_bytes=1 << 20,
        store=SchemaStore(store, {}, 1 << 20),
    )


def kept(store: Store) -> int:
    with store.state._engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM leapjson_kept").scalar() or 0)


async def test_a_program_is_compiled_by_one_replica_alone(store: Store, pool: WorkerPool) -> None:
    first, second = programs(store, pool), programs(store, pool)
    compiled: Program = await first.compile(SPEC, "key 1", ServiceTier.DEFAULT)
    await until(lambda: kept(store) == 1)
    loaded: Program = await second.compile(SPEC, "key 2", ServiceTier.DEFAULT)
    assert (first.loaded, second.loaded) == (0, 1)
    assert loaded.root == compiled.root
    assert loaded.derivatives.pool.operands == compiled.derivatives.pool.operands
    await first.compile(SPEC, "key 1", ServiceTier.DEFAULT)
    assert first.loaded == 1


async def test_programs_of_other_versions_and_invalid_ones_are_compiled_again(
    store: Store, pool: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    await programs(store, pool).compile(SPEC, "", ServiceTier.DEFAULT)
    await until(lambda: kept(store) == 1)
    other = programs(store, pool, "another version")
    await other.compile(SPEC, "", ServiceTier.DEFAULT)
    assert other.loaded == 0
    await until(lambda: kept(store) == 2)
    with store.state._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE leapjson_kept SET body = '{}'")
    again = programs(store, pool)
    assert isinstance(await again.compile(SPEC, "", ServiceTier.DEFAULT), Program)
    assert again.loaded == 0
    assert "cannot be used" in caplog.text


async def test_a_store_that_is_away_costs_no_request(
    store: Store, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: object) -> None:
        raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr(store.state, "find_kept", away)
    monkeypatch.setattr(store.state, "keep", away)
    without = programs(store, pool)
    assert isinstance(await without.compile(SPEC, "", ServiceTier.DEFAULT), Program)
    with pytest.raises(InvalidSchema):
        await without.compile(JsonSchema({"type": 7}), "", ServiceTier.DEFAULT)


async def test_a_store_that_hangs_collects_no_programs_and_holds_up_no_registration(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(store.state, "keep", lambda *row: answers.wait())
    monkeypatch.setattr("app.serving.compiling.schema_registry.LONGEST_WAIT", 0.01)
    bench = Bench()
    bench.schemas = registry(store, bench)
    for pattern in "abc":
        ticket = bench.admission.enter()
        async with asyncio.timeout(60):
            assert (await bench.schemas.register(Regex(pattern), None, ticket)).id
        ticket.leave()
    shared = SchemaStore(store, {}, 1 << 20)
    for number in range(100):
        shared.keep(SCHEMA, "", f"schema_{number}", b"body")
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(shared.tasks) < 20
    answers.set()


@pytest.mark.parametrize("spec", [SPEC, Regex("a+"), Choice(("a", "b"))], ids=lambda s: s.kind)
async def test_a_replica_knows_what_another_has_registered(
    store: Store, spec: ConstraintSpec
) -> None:
    bench, other = Bench(), Bench()
    bench.schemas = registry(store, bench)
    ticket = bench.admission.enter()
    registered = await bench.schemas.register(spec, "a name", ticket)
    ticket.leave()
    second = registry(store, other)
    with pytest.raises(UnknownSchema):
        second.find(registered.id)
    assert await second.fetch(registered.id)
    found = second.find(registered.id)
    assert found.spec.cache_key() == spec.cache_key()
    assert (found.id, found.created, found.name) == (registered.id, 7, "a name")
    assert found.explanation == registered.explanation
    assert not await second.fetch("schema_0")


async def test_an_id_is_checked_against_the_schema_that_is_kept_under_it(store: Store) -> None:
    shared = SchemaStore(store, {}, 1 << 20)
    body = json.dumps(["regex", {"pattern": "evil"}, 1, None, "null"]).encode()
    await shared.keep(SCHEMA, "", "schema_of_something_else", body)
    assert not await registry(store, Bench()).fetch("schema_of_something_else")
    for number, wrong in enumerate((b"{", b"[]", b"7", b'["eval",{},1,"","null"]', body[:-9])):
        await shared.keep(SCHEMA, "", f"schema_{number}", wrong)
        assert not await registry(store, Bench()).fetch(f"schema_{number}")


async def test_an_owner_loses_what_it_used_least_and_no_other_owner_does(store: Store) -> None:
    shared = SchemaStore(store, {"a": "ann", "b": "bob"}, 3000)
    await shared.keep(SCHEMA, "b", "b0", bytes(1000))
    for number in range(5):
        await shared.keep(SCHEMA, "a", f"a{number}", bytes(1000))
    await shared.keep(SCHEMA, "a", "large", bytes(4000))
    assert await shared.find(SCHEMA, "b0") is not None
    found = [await shared.find(SCHEMA, f"a{number}") for number in range(5)]
    assert len([each for each in found if each is not None]) == 3
    assert await shared.find(SCHEMA, "large") is None
