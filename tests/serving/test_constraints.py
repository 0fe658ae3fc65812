from __future__ import annotations

import asyncio

import pytest

from app.core.constraint import ConstraintSpec
from app.core.errors import ConstraintTooComplex, UnsupportedSchema
from app.core.specs import JsonSchema, Regex
from app.serving.compiling.cache import ConstraintCache
from tests.serving.fakes import FakeConstraint, RecordingObserver


class Workshop:
    """A cache over a compiler of 10-byte constraints, which waits until ``gate`` is set."""

    def __init__(self, *, max_bytes: int = 30) -> None:
        self.now = 0.0
        self.calls: list[ConstraintSpec] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.observer = RecordingObserver()
        self.cache = ConstraintCache(
            self._compile,
            max_bytes=max_bytes,
            observer=self.observer,
            clock=lambda: self.now,
            max_failures=2,
            failure_seconds=60,
        )

    async def _compile(self, spec: ConstraintSpec, *_: object) -> FakeConstraint:
        self.calls.append(spec)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return FakeConstraint(10)

    async def get(self, name: str) -> FakeConstraint:
        constraint = await self.cache.get(Regex(name))
        assert isinstance(constraint, FakeConstraint)
        return constraint


async def test_the_same_specification_is_compiled_once() -> None:
    shop = Workshop()
    assert await shop.get("a") is await shop.get("a")
    assert len(shop.calls) == 1
    assert (shop.cache.hits, shop.cache.misses) == (1, 1)
    assert shop.observer.compilations == [("regex", "ok")]


async def test_concurrent_requests_for_one_specification_share_one_compilation() -> None:
    shop = Workshop()
    shop.gate.clear()
    asking = [asyncio.create_task(shop.get("a")) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert shop.cache.waiting == 5
    shop.gate.set()
    results = await asyncio.gather(*asking)
    assert len(shop.calls) == 1
    assert len({id(result) for result in results}) == 1
    assert shop.cache.waiting == 0


async def test_a_client_that_leaves_does_not_cancel_the_compilation_for_the_others() -> None:
    shop = Workshop()
    shop.gate.clear()
    first, second = (asyncio.create_task(shop.get("a")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    shop.gate.set()
    assert (await second).nbytes == 10
    assert len(shop.calls) == 1


async def test_the_order_of_properties_is_part_of_the_specification() -> None:
    shop = Workshop()
    await shop.cache.get(JsonSchema({"a": 1, "b": 2}))
    await shop.cache.get(JsonSchema({"b": 2, "a": 1}))
    assert len(shop.calls) == 2


async def test_the_least_recently_used_is_dropped_over_the_byte_bound() -> None:
    shop = Workshop(max_bytes=30)
    for name in ("a", "b", "c"):
        await shop.get(name)
    await shop.get("a")
    await shop.get("d")
    assert (len(shop.cache), shop.cache.nbytes, shop.cache.evictions) == (3, 30, 1)
    shop.calls.clear()
    await shop.get("a")
    assert shop.calls == []
    await shop.get("b")
    assert shop.calls == [Regex("b")]


async def test_growth_while_in_use_is_accounted_for_on_the_next_access() -> None:
    shop = Workshop(max_bytes=30)
    await shop.get("a")
    b = await shop.get("b")
    b.nbytes = 25
    assert shop.cache.nbytes == 20
    await shop.get("b")
    assert (shop.cache.nbytes, len(shop.cache)) == (25, 1)


async def test_growth_of_any_is_accounted_for_when_one_is_inserted() -> None:
    shop = Workshop(max_bytes=30)
    (await shop.get("a")).nbytes = 25
    await shop.get("b")
    assert (shop.cache.nbytes, len(shop.cache)) == (10, 1)


async def test_one_constraint_over_the_bound_is_still_served() -> None:
    shop = Workshop(max_bytes=5)
    assert (await shop.get("a")).nbytes == 10
    assert len(shop.cache) == 1
    assert (await shop.get("a")).nbytes == 10
    assert (len(shop.cache), shop.cache.nbytes) == (1, 10)


async def test_one_that_outgrows_the_whole_cache_is_compiled_afresh() -> None:
    shop = Workshop(max_bytes=30)
    grown = await shop.get("a")
    grown.nbytes = 31
    fresh = await shop.get("a")
    assert fresh is not grown
    assert grown.nbytes == 31, "requests that use it keep it"
    assert (len(shop.cache), shop.cache.nbytes, shop.cache.evictions) == (1, 10, 1)
    assert (shop.cache.hits, shop.cache.misses) == (0, 2)
    assert await shop.get("a") is fresh


async def test_one_at_the_bound_stays() -> None:
    shop = Workshop(max_bytes=30)
    grown = await shop.get("a")
    grown.nbytes = 30
    assert await shop.get("a") is grown


async def test_requests_for_one_that_was_outgrown_share_its_compilation() -> None:
    shop = Workshop(max_bytes=30)
    (await shop.get("a")).nbytes = 100
    shop.gate.clear()
    asking = [asyncio.create_task(shop.get("a")) for _ in range(3)]
    await asyncio.sleep(0)
    assert shop.cache.nbytes == 0
    shop.gate.set()
    assert len({id(each) for each in await asyncio.gather(*asking)}) == 1
    assert len(shop.calls) == 2


async def test_nothing_else_is_dropped_for_one_that_outgrows_the_whole_cache() -> None:
    shop = Workshop(max_bytes=30)
    kept = await shop.get("a")
    (await shop.get("b")).nbytes = 100
    await shop.get("c")
    assert (len(shop.cache), shop.cache.nbytes, shop.cache.evictions) == (2, 20, 1)
    assert await shop.get("a") is kept


async def test_failures_are_remembered_for_a_while_and_bounded() -> None:
    shop = Workshop()
    shop.error = ConstraintTooComplex("time")
    errors = []
    for _ in range(2):
        with pytest.raises(ConstraintTooComplex) as caught:
            await shop.get("a")
        errors.append(caught.value)
    assert len(shop.calls) == 1
    assert errors[0] is not errors[1]
    assert shop.observer.compilations == [("regex", "schema_too_complex")]

    shop.now = 61
    with pytest.raises(ConstraintTooComplex):
        await shop.get("a")
    assert len(shop.calls) == 2

    for name in ("b", "c"):
        with pytest.raises(ConstraintTooComplex):
            await shop.get(name)
    shop.error = None
    assert (await shop.get("a")).nbytes == 10


async def test_a_remembered_failure_says_the_same_as_the_first() -> None:
    shop = Workshop()
    shop.error = UnsupportedSchema("format", "/a", "why")
    messages = set()
    for _ in range(3):
        with pytest.raises(UnsupportedSchema) as caught:
            await shop.get("a")
        messages.add((str(caught.value), caught.value.pointer, caught.value.param))
    assert len(messages) == 1


async def test_an_unplanned_error_is_not_remembered() -> None:
    shop = Workshop()
    shop.error = OSError("the disk")
    with pytest.raises(OSError, match="the disk"):
        await shop.get("a")
    shop.error = None
    assert (await shop.get("a")).nbytes == 10


async def test_states_and_masks_are_counted_for_what_is_kept() -> None:
    shop = Workshop()
    constraint = await shop.get("a")
    await shop.get("b")
    constraint.num_states = 100
    assert (shop.cache.num_states, shop.cache.num_masks) == (103, 4)


async def test_the_cost_of_a_new_constraint_does_not_grow_with_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, measured = Workshop(max_bytes=1 << 20), 0
    measure = bench.cache._constraints._measure

    def counted(key: bytes) -> None:
        nonlocal measured
        measured += 1
        measure(key)

    monkeypatch.setattr(bench.cache._constraints, "_measure", counted)
    first = await bench.get("first")
    for number in range(200):
        before = measured
        await bench.get(f"a{number}")
        assert measured - before <= 33
    first.nbytes = 5000
    for number in range(200 // 16 + 2):
        await bench.get(f"b{number}")
    assert bench.cache.nbytes > 5000, "its growth is measured in its turn"
