"""Registered schemas: computation of ids, eviction, and limits."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from app.core.errors import (
    CompilerStuck,
    ConstraintTooComplex,
    DeadlineExceeded,
    Draining,
    InvalidRequest,
    LeapjsonError,
    QueueFull,
    UnknownSchema,
    UnsupportedSchema,
)
from app.core.specs import JsonSchema
from app.serving.compiling.schema_registry import RegisteredSchema, SchemaRegistry
from app.serving.workers.pool import WorkerLimits, WorkerPool
from tests.serving.fakes import Bench, until

EXPLAIN = "app.explain.report:explain_schema"


def spec(number: int, **fields: Any) -> JsonSchema:
    return JsonSchema({"const": number}, **fields)


async def test_an_id_follows_from_the_schema_and_the_form_of_its_answers_alone() -> None:
    first, second = Bench(), Bench()
    ids = []
    for each in (spec(1), spec(2), spec(1, close_objects=True), spec(1, whitespace="compact")):
        registered = await first.register(each, "a name")
        assert registered.id == (await second.register(each, "another")).id
        assert registered.id.startswith("schema_")
        ids.append(registered.id)
    assert len(set(ids)) == 4


async def test_a_registered_schema_is_compiled_as_requests_ask_for_it() -> None:
    bench = Bench()
    registered = await bench.register(spec(1))
    assert bench.schemas.schema(registered.id) == spec(1)
    await bench.constraints.get(bench.schemas.schema(registered.id))
    assert (bench.constraints.misses, bench.constraints.hits) == (1, 1)


async def test_a_schema_is_explained_once_however_often_it_is_registered() -> None:
    bench = Bench()
    found = await asyncio.gather(*(bench.register(spec(1), f"n{i}") for i in range(5)))
    assert len(bench.explained) == len(bench.compiled) == len(bench.schemas._schemas) == 1
    assert {each.id for each in found} == {found[0].id}
    assert {each.created for each in found} == {1700000001}
    assert bench.schemas.find(found[0].id).name == "n4"


async def test_the_least_recently_used_schema_is_forgotten_and_told_how_to_come_back() -> None:
    bench = Bench()
    registry = bench.schemas = SchemaRegistry(
        constraints=bench.constraints,
        explain=bench._explain,
        wall_clock=lambda: 0.0,
        max_bytes=10_000,
        max_schemas=3,
    )
    ids = [(await bench.register(spec(number))).id for number in range(3)]
    registry.schema(ids[0])
    await bench.register(spec(3))
    assert registry.schema(ids[0]) == spec(0)
    with pytest.raises(UnknownSchema, match="register it again"):
        registry.schema(ids[1])
    assert (await bench.register(spec(1))).id == ids[1]


async def test_memory_is_bounded_whatever_is_registered() -> None:
    bench = Bench(max_schema_bytes=20_000)
    for number in range(200):
        await bench.register(JsonSchema({"enum": list(range(number % 40))}))
        assert bench.schemas._schemas.nbytes <= 20_000
    assert 1 < len(bench.schemas._schemas) < 40
    with pytest.raises(InvalidRequest, match="too large to be registered"):
        await bench.register(JsonSchema({"enum": list(range(1000))}))


async def test_a_schema_that_is_refused_is_not_kept() -> None:
    bench = Bench()
    bench.compile_error = UnsupportedSchema("format", "/a")
    with pytest.raises(UnsupportedSchema):
        await bench.register(spec(1))
    assert len(bench.schemas._schemas) == bench.admission.live == len(bench.explained) == 0


async def test_a_schema_too_complex_to_explain_is_usable_all_the_same() -> None:
    bench = Bench()
    bench.explain_error = ConstraintTooComplex("time: more than 5 s")
    registered = await bench.register(spec(1))
    report = json.loads(registered.explanation)
    assert report["error"]["code"] == "schema_too_complex"
    assert bench.schemas.schema(registered.id) == spec(1)


async def test_registrations_take_places_in_the_queue() -> None:
    bench = Bench(capacity=1)
    ticket = bench.held(1)
    with pytest.raises(QueueFull):
        await bench.register(spec(1))
    ticket.leave()
    await bench.register(spec(1))
    bench.admission.drain()
    with pytest.raises(Draining):
        await bench.register(spec(2))
    assert bench.observer.rejections == ["queue_full", "draining"]
    assert bench.admission.live == 0


async def test_a_registration_has_the_deadline_of_a_request() -> None:
    async def never(spec: Any, *_: object) -> Any:
        await asyncio.Event().wait()

    slow_to_compile = Bench(compile=never, request_seconds=0.01)
    slow_to_explain = Bench(request_seconds=0.01)
    slow_to_explain.schemas._explain = never
    for bench in (slow_to_compile, slow_to_explain):
        with pytest.raises(DeadlineExceeded, match=r"schema had not been compiled within 0\.01 s"):
            await bench.register(spec(1))
        await bench.schemas.tasks.close()
        await bench.constraints.tasks.close()
        assert bench.admission.live == 0


async def test_a_tenants_many_registrations_are_not_all_explained_before_anothers() -> None:
    bench, explained, gate = Bench(tenant_share=0.9), list[str](), asyncio.Event()

    async def explain(asked: Any, tenant: str) -> bytes:
        explained.append(tenant)
        await gate.wait()
        return b"null"

    bench.schemas._explain = explain

    async def register(number: int, tenant: str) -> None:
        ticket = bench.admission.enter(tenant)
        await bench.schemas.register(spec(number), None, ticket)
        ticket.leave()

    many = [asyncio.create_task(register(number, "many")) for number in range(6)]
    await until(lambda: bool(explained))
    await asyncio.sleep(0.01)
    one = asyncio.create_task(register(6, "one"))
    await asyncio.sleep(0.01)
    gate.set()
    await asyncio.gather(one, *many)
    assert explained.index("one") == 1


class SlowToHash(str):
    """A string that starts the thread ``meanwhile`` when it is hashed for the second time."""

    meanwhile: threading.Thread
    hashed = 0

    def __hash__(self) -> int:
        self.hashed += 1
        if self.hashed == 2:
            self.meanwhile.start()
            self.meanwhile.join(0.1)  # it may have to wait for this look-up
        return super().__hash__()

    __eq__ = str.__eq__


def test_an_id_is_looked_up_while_another_thread_forgets_it() -> None:
    registry = Bench().schemas
    registry._schemas._most = 1
    one, other = (RegisteredSchema(f"schema_{i}", 0, None, spec(i), b"", 1) for i in range(2))
    registry._keep(one)
    looked_up = SlowToHash(one.id)
    looked_up.meanwhile = threading.Thread(target=registry._keep, args=(other,))
    assert registry.find(looked_up) is one
    looked_up.meanwhile.join()
    with pytest.raises(UnknownSchema):
        registry.find(one.id)


@pytest.fixture
def _workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


@pytest.mark.usefixtures("_workers_find_the_tests")
async def test_the_report_comes_from_a_worker_bounded_in_time_and_size() -> None:
    limits = WorkerLimits(seconds=60, memory_bytes=1 << 30)
    pool = WorkerPool("tests.serving.compile_targets:compile", workers=1, limits=limits)
    await pool.start()
    try:
        names = {f"p{number}": {"type": "string", "description": "x"} for number in range(300)}
        wide = {"type": "object", "properties": names, "required": list(names)}
        data = await pool.run(JsonSchema(wide), target=EXPLAIN, seconds=60)
        assert len(data) < 1 << 20
        report = json.loads(data)
        assert report["whole"] is False
        assert len(report["shortest"]) == 200
        assert len(report["keywords"]) == 400
        # The shortest answer in the report is valid.
        small = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        report = json.loads(await pool.run(JsonSchema(small), target=EXPLAIN, seconds=60))
        jsonschema.validate(json.loads(report["shortest"]), small)
        assert report["whole"] is True
        assert {use["keyword"] for use in report["keywords"]} == {"type", "properties", "required"}
        # Such a long string is walked byte by byte, which takes longer than a second.
        long = JsonSchema({"type": "string", "minLength": 500_000})
        # CompilerStuck on a machine that is too busy for a worker to use up its processor time.
        with pytest.raises((ConstraintTooComplex, CompilerStuck)):
            await pool.run(long, target=EXPLAIN, seconds=0.5)
        assert json.loads(await pool.run(JsonSchema(small), target=EXPLAIN, seconds=60)) == report
    finally:
        await pool.close()


@pytest.mark.usefixtures("_workers_find_the_tests")
async def test_a_client_that_leaves_while_its_schema_is_explained_costs_no_worker(
    tmp_path: Path,
) -> None:
    target = "tests.serving.compile_targets:wait_for_file"
    pool = WorkerPool(target, workers=1, limits=WorkerLimits(seconds=60))
    await pool.start()
    bench = Bench()
    began: list[JsonSchema] = []

    async def explain(spec: JsonSchema, tenant: str) -> bytes:
        began.append(spec)
        report: bytes = await pool.run(spec, tenant, target=target, seconds=60)
        return report

    bench.schemas._explain = explain
    try:
        files = [JsonSchema({"const": str(tmp_path / name)}) for name in "abc"]
        leaving = [asyncio.create_task(bench.register(each)) for each in files]
        await until(lambda: began)
        for task in leaving:
            task.cancel()
        await asyncio.wait(leaving)
        assert bench.admission.live == 0
        staying = asyncio.create_task(bench.register(files[1]))
        for name in "ab":
            (tmp_path / name).touch()
        await staying
        assert began == files[:2], "no report is made for a client that left the queue"
        assert len(bench.schemas._schemas) == 2
        assert pool.restarts == 0
    finally:
        await bench.schemas.tasks.close()
        await pool.close()


@pytest.mark.usefixtures("_workers_find_the_tests")
async def test_a_job_that_does_not_exist_is_our_mistake_and_costs_no_worker() -> None:
    pool = WorkerPool(
        "tests.serving.compile_targets:compile", workers=1, limits=WorkerLimits(seconds=60)
    )
    await pool.start()
    try:
        with pytest.raises(LeapjsonError, match="internal error"):
            await pool.run(spec(1), target="tests.serving.compile_targets:missing", seconds=60)
        with pytest.raises(LeapjsonError):
            await pool.run(spec(1))  # a kind that this compiler does not take
    finally:
        await pool.close()
