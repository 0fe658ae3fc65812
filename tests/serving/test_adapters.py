"""Adapters at run time: look-up, use by answers, loading between steps, unloading."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.core.errors import InvalidAdapter, InvalidRequest, LeapjsonError, UnknownModel
from app.core.request import Adapter
from app.serving.adapters import Adapters
from tests.serving.fakes import Bench, FakeEngine, FakeSlots, ask, until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("first", "second", "third", "bad"):
        (tmp_path / name).mkdir()
    return tmp_path


def bench_of(folder: Path | None, engine: FakeEngine | None = None, slots: int = 2) -> Bench:
    place = None if folder is None else str(folder)
    return Bench(engine, slots=FakeSlots(slots), adapter_folder=place)


def adapters_of(bench: Bench) -> Adapters:
    return bench.service.adapters


async def test_an_answer_runs_in_the_slot_and_the_scope_of_its_adapter(folder: Path) -> None:
    async with bench_of(folder).running() as bench:
        adapter = await adapters_of(bench).load("a", "first")
        await bench.texts(ask("with", adapter=adapter))
        await bench.texts(ask("without"))
        again = await reloaded(bench, adapter)
        await bench.texts(ask("again", adapter=again))
    with_, without, again_ = bench.engine.added
    assert (with_.adapter, without.adapter, again_.adapter) == (adapter.slot, 0, again.slot)
    assert len({with_.scope, without.scope, again_.scope}) == 3


async def reloaded(bench: Bench, adapter: Adapter) -> Adapter:
    await adapters_of(bench).unload(adapter)
    return await adapters_of(bench).load(adapter.name, adapter.root)


async def test_unloading_waits_for_the_last_answer_and_its_slot_stays_taken_until_then(
    folder: Path,
) -> None:
    engine = FakeEngine()
    async with bench_of(folder, engine, slots=1).running() as bench:
        adapters = adapters_of(bench)
        adapter = await adapters.load("a", "first")
        engine.gate.clear()
        generation = await bench.open(ask(adapter=adapter))
        leaving = asyncio.create_task(adapters.unload(adapter))
        await asyncio.sleep(0.01)
        assert not leaving.done()
        assert adapters.find("a") is None
        with pytest.raises(UnknownModel):
            await bench.open(ask("late", adapter=adapter))
        with pytest.raises(InvalidAdapter, match="1 of them until their answers end"):
            await adapters.load("b", "second")
        engine.gate.set()
        texts = [piece async for batch in generation.batches() for piece in batch]
        assert texts
        await leaving
        generation.close()
        assert (await adapters.load("b", "second")).slot == adapter.slot
    assert not engine.aborted


async def test_a_second_unload_leaves_the_adapter_that_has_taken_the_name(folder: Path) -> None:
    async with bench_of(folder).running() as bench:
        adapters = adapters_of(bench)
        first = await adapters.load("a", "first")
        await adapters.unload(first)
        second = await adapters.load("a", "second")
        with pytest.raises(UnknownModel, match="was just unloaded"):
            await adapters.unload(first)
        assert adapters.find("a") == second


async def test_a_cancelled_unload_still_unloads_the_adapter(folder: Path) -> None:
    engine = FakeEngine()
    async with bench_of(folder, engine, slots=1).running() as bench:
        adapters = adapters_of(bench)
        adapter = await adapters.load("a", "first")
        engine.gate.clear()
        generation = await bench.open(ask(adapter=adapter))
        leaving = asyncio.create_task(adapters.unload(adapter))
        await asyncio.sleep(0)
        leaving.cancel()
        generation.close()
        assert (await adapters.load("b", "second")).slot == adapter.slot


async def test_a_refused_request_holds_no_adapter(folder: Path) -> None:
    async with bench_of(folder).running() as bench:
        adapter = await adapters_of(bench).load("a", "first")
        bench.engine.refusal = lambda request: InvalidRequest("no")
        with pytest.raises(InvalidRequest):
            await bench.open(ask(adapter=adapter))
        with pytest.raises(LeapjsonError):
            await bench.open(ask("long", adapter=adapter, max_tokens=10**6))
        async with asyncio.timeout(300):
            await adapters_of(bench).unload(adapter)


async def test_a_load_that_fails_changes_nothing(folder: Path) -> None:
    async with bench_of(folder).running() as bench:
        adapters = adapters_of(bench)
        slots = adapters._slots
        assert isinstance(slots, FakeSlots)
        first = await adapters.load("a", "first")
        with pytest.raises(InvalidAdapter, match="bad: r is missing"):
            await adapters.load("b", "bad")
        slots.put_error = LeapjsonError("differs from plain matrix products")
        with pytest.raises(LeapjsonError, match="plain matrix products"):
            await adapters.load("b", "second")
        slots.put_error = None
        with pytest.raises(InvalidRequest, match="'a' is already loaded; unload it first"):
            await adapters.load("a", "second")
        assert adapters.loaded == (first,)
        assert slots.held == {first.slot: "first"}
        assert await bench.texts(ask(adapter=first)) == ["Hello"]
        second = await adapters.load("b", "second")
        assert (second.slot, second.created) == (2, 1700000002)


async def test_places_and_paths_are_bounded(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "file").touch()
    async with bench_of(folder).running() as bench:
        adapters = adapters_of(bench)
        for path in ("../outside", "link", "file", "none", str(outside), "a\0b", "x" * 999):
            with pytest.raises(InvalidAdapter, match="not a folder inside"):
                await adapters.load("a", path)
        await adapters.load("a", "first")
        await adapters.load("b", str(folder / "second"))
        with pytest.raises(InvalidAdapter, match="2 adapters are loaded, the limit; unload"):
            await adapters.load("c", "third")


async def test_without_a_folder_nothing_is_loaded_or_unloaded_by_request() -> None:
    loaded = Adapter("a", 1, 0, "org/a", "id", 5)
    bench = Bench(slots=FakeSlots(), loaded=[loaded])
    async with bench.running():
        with pytest.raises(InvalidRequest, match="set LEAPJSON_ADAPTER_FOLDER"):
            await adapters_of(bench).load("b", "/tmp")
        with pytest.raises(InvalidRequest, match="set LEAPJSON_ADAPTER_FOLDER"):
            await adapters_of(bench).unload(loaded)
        assert await bench.texts(ask(adapter=loaded)) == ["Hello"]


async def test_a_load_between_steps_does_not_end_answers(folder: Path) -> None:
    engine = FakeEngine(lambda request: [b"x"] * 50)
    engine.pause_at = 2
    async with bench_of(folder, engine).running() as bench:
        answer = asyncio.create_task(bench.texts(ask()))
        await until(lambda: not engine.gate.is_set())
        await adapters_of(bench).load("a", "first")
        engine.pause_at = None
        engine.gate.set()
        assert await answer == ["x" * 50]
