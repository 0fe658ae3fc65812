"""Schemas under ids: what an id follows from, what is forgotten, and what is bounded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from app.core.constraint import JsonSchema
from app.core.errors import (
    ConstraintTooComplex,
    Draining,
    InvalidRequest,
    LeapjsonError,
    QueueFull,
    UnknownSchema,
    UnsupportedSchema,
)
from app.serving.compile_pool import CompileLimits, CompilePool
from app.serving.schema_registry import SchemaRegistry
from tests.serving.fakes import Bench

EXPLAIN = "app.constraint.explain.report:explain_schema"


def spec(number: int, **fields: Any) -> JsonSchema:
    return JsonSchema({"const": number}, **fields)


async def test_an_id_follows_from_the_schema_and_the_form_of_its_answers_alone() -> None:
    first, second = Bench().schemas, Bench().schemas
    ids = []
    for each in (spec(1), spec(2), spec(1, close_objects=True), spec(1, whitespace="compact")):
        registered = await first.register(each, "a name")
        assert registered.id == (await second.register(each, "another")).id
        assert registered.id.startswith("schema_")
        ids.append(registered.id)
    assert len(set(ids)) == 4


async def test_a_registered_schema_is_compiled_as_requests_ask_for_it() -> None:
    bench = Bench()
    registered = await bench.schemas.register(spec(1))
    assert bench.schemas.schema(registered.id) == spec(1)
    await bench.constraints.get(bench.schemas.schema(registered.id))
    assert (bench.constraints.misses, bench.constraints.hits) == (1, 1)


async def test_a_schema_is_explained_once_however_often_it_is_registered() -> None:
    bench = Bench()
    found = await asyncio.gather(*(bench.schemas.register(spec(1), f"n{i}") for i in range(5)))
    assert len(bench.explained) == len(bench.compiled) == len(bench.schemas) == 1
    assert {each.id for each in found} == {found[0].id}
    assert {each.created for each in found} == {1700000001}
    assert bench.schemas.find(found[0].id).name == "n4"


async def test_the_least_recently_used_schema_is_forgotten_and_told_how_to_come_back() -> None:
    bench = Bench()
    registry = SchemaRegistry(
        constraints=bench.constraints,
        explain=bench._explain,
        admission=bench.admission,
        observer=bench.observer,
        wall_clock=lambda: 0.0,
        max_bytes=10_000,
        max_schemas=3,
    )
    ids = [(await registry.register(spec(number))).id for number in range(3)]
    registry.schema(ids[0])
    await registry.register(spec(3))
    assert registry.schema(ids[0]) == spec(0)
    with pytest.raises(UnknownSchema, match="register it again"):
        registry.schema(ids[1])
    assert (await registry.register(spec(1))).id == ids[1]


async def test_memory_is_bounded_whatever_is_registered() -> None:
    bench = Bench(max_schema_bytes=20_000)
    for number in range(200):
        await bench.schemas.register(JsonSchema({"enum": list(range(number % 40))}))
        assert bench.schemas.nbytes <= 20_000
    assert 1 < len(bench.schemas) < 40
    with pytest.raises(InvalidRequest, match="too large to be kept"):
        await bench.schemas.register(JsonSchema({"enum": list(range(1000))}))


async def test_a_schema_that_is_refused_is_not_kept() -> None:
    bench = Bench()
    bench.compile_error = UnsupportedSchema("format", "/a")
    with pytest.raises(UnsupportedSchema):
        await bench.schemas.register(spec(1))
    assert len(bench.schemas) == bench.admission.live == len(bench.explained) == 0


async def test_a_schema_too_complex_to_explain_is_usable_all_the_same() -> None:
    bench = Bench()
    bench.explain_error = ConstraintTooComplex("time: more than 5 s")
    registered = await bench.schemas.register(spec(1))
    report = json.loads(registered.explanation)
    assert report["error"]["code"] == "schema_too_complex"
    assert bench.schemas.schema(registered.id) == spec(1)


async def test_registrations_take_places_in_the_queue() -> None:
    bench = Bench(capacity=1)
    ticket = bench.admission.admit(1)
    with pytest.raises(QueueFull):
        await bench.schemas.register(spec(1))
    ticket.release()
    await bench.schemas.register(spec(1))
    bench.admission.drain()
    with pytest.raises(Draining):
        await bench.schemas.register(spec(2))
    assert bench.observer.rejections == ["queue_full", "draining"]
    assert bench.admission.live == 0


@pytest.fixture
def _workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


@pytest.mark.usefixtures("_workers_find_the_tests")
async def test_the_report_comes_from_a_worker_bounded_in_time_and_size() -> None:
    limits = CompileLimits(seconds=60, memory_bytes=1 << 30)
    pool = CompilePool("tests.serving.compile_targets:compile", workers=1, limits=limits)
    await pool.start()
    try:
        names = {f"p{number}": {"type": "string", "description": "x"} for number in range(300)}
        wide = {"type": "object", "properties": names, "required": list(names)}
        data = await pool.run(EXPLAIN, JsonSchema(wide), seconds=60)
        assert len(data) < 1 << 20
        report = json.loads(data)
        assert report["whole"] is False
        assert len(report["shortest"]) == 200
        assert len(report["keywords"]) == 400
        # What it calls the shortest answer is one.
        small = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        report = json.loads(await pool.run(EXPLAIN, JsonSchema(small), seconds=60))
        jsonschema.validate(json.loads(report["shortest"]), small)
        assert report["whole"] is True
        assert {use["keyword"] for use in report["keywords"]} == {"type", "properties", "required"}
        # A string of so many characters is walked byte by byte: that takes longer than a second.
        long = JsonSchema({"type": "string", "minLength": 500_000})
        with pytest.raises(ConstraintTooComplex, match=r"more than 0\.5 s"):
            await pool.run(EXPLAIN, long, seconds=0.5)
        assert json.loads(await pool.run(EXPLAIN, JsonSchema(small), seconds=60)) == report
    finally:
        await pool.close()


@pytest.mark.usefixtures("_workers_find_the_tests")
async def test_a_job_that_does_not_exist_is_our_mistake_and_costs_no_worker() -> None:
    pool = CompilePool(
        "tests.serving.compile_targets:compile", workers=1, limits=CompileLimits(seconds=60)
    )
    await pool.start()
    try:
        with pytest.raises(LeapjsonError, match="a fault of the server"):
            await pool.run("tests.serving.compile_targets:missing", spec(1), seconds=60)
        with pytest.raises(LeapjsonError):
            await pool.compile(spec(1))  # of another kind than this compiler takes
    finally:
        await pool.close()
