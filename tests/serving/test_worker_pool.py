from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from app.core.errors import (
    CompilerStuck,
    ConstraintTooComplex,
    LeapjsonError,
    UnsupportedSchema,
)
from app.core.request import ServiceTier
from app.core.specs import JsonSchema, Regex
from app.serving.compiling.cache import ConstraintCache
from app.serving.workers.pool import WorkerLimits, WorkerPool
from tests.serving.fakes import RecordingObserver

TOO_SLOW = (ConstraintTooComplex, CompilerStuck)
"""``CompilerStuck`` if the machine is too busy for a worker to use up its processor time."""
TARGET = "tests.serving.compile_targets:compile"
LIMITS = WorkerLimits(seconds=60, memory_bytes=256 << 20, answer_bytes=1 << 20)
IMPATIENT = WorkerLimits(seconds=1, memory_bytes=256 << 20)


@asynccontextmanager
async def started(
    limits: WorkerLimits, workers: int = 2, tenant_share: float = 1.0
) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(TARGET, workers=workers, limits=limits, tenant_share=tenant_share)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()


@pytest.fixture(autouse=True)
def _workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with started(LIMITS) as pool:
        yield pool


@pytest.fixture
async def impatient_pool() -> AsyncIterator[WorkerPool]:
    async with started(IMPATIENT) as pool:
        yield pool


async def compiled(pool: WorkerPool, pattern: str) -> Any:
    return await pool.run(Regex(pattern))


async def patiently(pool: WorkerPool, pattern: str) -> Any:
    """Run a small job in a pool with a short limit, which it could exceed on a busy machine."""
    return await pool.run(Regex(pattern), target=TARGET, seconds=LIMITS.seconds)


async def test_a_newcomers_schema_goes_before_the_rest_of_anothers_many() -> None:
    async with started(LIMITS, workers=1) as pool:
        ended: list[str] = []

        async def compile(tenant: str, pattern: str) -> None:
            await pool.run(Regex(pattern), tenant)
            ended.append(tenant)

        many = [asyncio.create_task(compile("many", f"{number}")) for number in range(5)]
        await asyncio.sleep(0)
        await asyncio.gather(*many, compile("one", "a"))
        assert ended.index("one") <= 2


async def test_workers_have_low_priority_and_the_batch_policy(pool: WorkerPool) -> None:
    niceness, policy = await compiled(pool, "standing")
    assert niceness >= min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
    assert policy == os.SCHED_BATCH


async def test_every_worker_is_warm_before_its_first_job() -> None:
    pool = WorkerPool(TARGET, workers=2, limits=LIMITS, warm_up=Regex("warm"))
    await pool.start()
    try:
        assert await asyncio.gather(*(compiled(pool, "warm?") for _ in range(2))) == [True, True]
        with pytest.raises(ConstraintTooComplex):
            await compiled(pool, "abort")
        assert [await compiled(pool, "warm?") for _ in range(3)] == [True] * 3
    finally:
        await pool.close()


SECRETS = ("LEAPJSON_API_KEYS", "LEAPJSON_STORE", "AWS_SECRET_ACCESS_KEY")


async def test_a_worker_knows_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LEAPJSON_OTHER", "shared")
    async with started(LIMITS) as pool:
        environment = await compiled(pool, "environment")
    assert not environment.keys() & set(SECRETS)
    assert environment["LEAPJSON_OTHER"] == "shared"


async def test_a_program_comes_back_from_another_process(pool: WorkerPool) -> None:
    kind, pattern, process = await compiled(pool, "a+")
    assert (kind, pattern) == ("compiled", "a+")
    assert process != os.getpid()


async def test_what_the_pool_was_given_comes_with_each_specification() -> None:
    pool = WorkerPool(TARGET, {"digits": 3}, None, workers=1, limits=LIMITS)
    await pool.start()
    try:
        assert await compiled(pool, "arguments") == ({"digits": 3}, None)
        assert await compiled(pool, "arguments") == ({"digits": 3}, None)
    finally:
        await pool.close()


async def test_a_refusal_crosses_the_border_whole(pool: WorkerPool) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        await compiled(pool, "refuse")
    assert (caught.value.keyword, caught.value.pointer) == ("format", "/a")


async def test_a_stuck_worker_is_killed_and_replaced_while_others_go_on(
    impatient_pool: WorkerPool,
) -> None:
    stuck = asyncio.create_task(compiled(impatient_pool, "hang"))
    await asyncio.sleep(0)
    assert (await patiently(impatient_pool, "a"))[1] == "a"
    assert not stuck.done()
    with pytest.raises(TOO_SLOW):
        await stuck
    assert [(await patiently(impatient_pool, p))[1] for p in ("b", "c", "d")] == ["b", "c", "d"]


async def test_every_worker_may_be_stuck_and_the_next_request_still_succeeds(
    impatient_pool: WorkerPool,
) -> None:
    stuck = [asyncio.create_task(compiled(impatient_pool, "hang")) for _ in range(2)]
    await asyncio.sleep(0)
    assert (await patiently(impatient_pool, "a"))[1] == "a"
    results = await asyncio.gather(*stuck, return_exceptions=True)
    assert all(isinstance(result, TOO_SLOW) for result in results)


async def test_a_worker_that_was_stopped_is_replaced_and_its_request_may_try_again() -> None:
    async with started(WorkerLimits(seconds=0.1, memory_bytes=256 << 20)) as pool:
        with pytest.raises(CompilerStuck) as caught:
            await compiled(pool, "stop")
        assert caught.value.retry_after == 5
        assert [(await patiently(pool, p))[1] for p in ("a", "b", "c")] == ["a", "b", "c"]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("noticed", [True, False])
def test_workers_that_were_killed_while_they_waited_cost_no_request_its_answer(
    new_loop: Callable[[], asyncio.AbstractEventLoop], noticed: bool
) -> None:
    async def kill_both() -> None:
        async with started(LIMITS) as pool:
            before = {(await compiled(pool, p))[2] for p in ("a", "b", "c", "d")}
            assert len(before) == 2
            for process in before:
                os.kill(process, signal.SIGKILL)
            while noticed and any(map(exists, before)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            after = [await compiled(pool, p) for p in ("e", "f")]
            assert [pattern for _, pattern, _ in after] == ["e", "f"]
            assert before.isdisjoint(process for _, _, process in after)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(kill_both())


def exists(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("abort", "worker process crashed"),
        ("hog", "memory: more than 256 MiB"),
        ("deep", "nested too deeply"),
        ("large", "the limit is 1048576"),
    ],
)
async def test_a_crash_or_a_limit_fails_its_own_request_only(
    pool: WorkerPool, pattern: str, message: str
) -> None:
    with pytest.raises(ConstraintTooComplex, match=message):
        await compiled(pool, pattern)
    results = await asyncio.gather(*(compiled(pool, p) for p in ("a", "b", "c")))
    assert [result[1] for result in results] == ["a", "b", "c"]


async def test_a_bug_of_the_compiler_is_not_blamed_on_the_caller(pool: WorkerPool) -> None:
    with pytest.raises(LeapjsonError, match="internal error"):
        await compiled(pool, "bug")
    assert (await compiled(pool, "a"))[1] == "a"


async def test_what_a_library_prints_does_not_mix_with_the_answers(pool: WorkerPool) -> None:
    assert (await compiled(pool, "chatty"))[1] == "chatty"


async def test_a_cancelled_call_costs_no_worker() -> None:
    async with started(LIMITS, workers=1) as pool:
        for turns in range(6):  # before its job has begun, and later
            task = asyncio.create_task(compiled(pool, "a"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with asyncio.timeout(60):
                assert (await compiled(pool, "b"))[1] == "b"
        assert pool.restarts == 0


async def test_a_signal_to_all_processes_fails_no_job(tmp_path: Path) -> None:
    """As systemd stops a service, while the server still finishes what runs."""
    async with started(LIMITS, workers=1) as pool:
        process = (await compiled(pool, "a"))[2]
        waiting = asyncio.create_task(_wait_for(pool, tmp_path / "file"))
        await asyncio.sleep(0.05)
        os.kill(process, signal.SIGTERM)
        (tmp_path / "file").touch()
        assert await waiting == b"{}"


async def _wait_for(pool: WorkerPool, file: Path, *of: Any) -> Any:
    target = "tests.serving.compile_targets:wait_for_file"
    return await pool.run(JsonSchema({"const": str(file)}), *of, target=target)


@pytest.mark.parametrize("fault", ["ends", "hangs", "is missing"])
async def test_a_worker_that_cannot_start_again_is_no_fault_of_the_schema(
    fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    if fault != "is missing":
        python.write_text("#!/bin/sh\n" + ("exec sleep 60" if fault == "hangs" else "exit 1"))
        python.chmod(0o700)
    observer = RecordingObserver()
    async with started(LIMITS, workers=1) as pool:
        cache: Any = ConstraintCache(pool.run, max_bytes=1, observer=observer, clock=lambda: 0)
        process = (await compiled(pool, "a"))[2]
        with monkeypatch.context() as broken:
            broken.setattr(sys, "executable", str(python))
            broken.setattr(pool, "_limits", replace(LIMITS, start_seconds=0.1))
            os.kill(process, signal.SIGKILL)
            for _ in range(2):
                with pytest.raises(CompilerStuck, match="no worker process") as caught:
                    await cache.get(Regex("size"))
                assert caught.value.retry_after == 5
        assert (await cache.get(Regex("size"))).nbytes == 1
    assert [result for _, result in observer.compilations] == ["error", "error", "ok"]


async def test_a_worker_that_cannot_start_fails_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool("tests.nowhere:compile", workers=1, limits=LIMITS)
    with pytest.raises(LeapjsonError, match="could not be started"):
        await pool.start()
    await pool.close()


async def test_one_tenant_leaves_a_worker_to_the_others(tmp_path: Path) -> None:
    async with started(LIMITS, workers=2, tenant_share=0.9) as pool:
        tiers = ServiceTier.BATCH, ServiceTier.BATCH, ServiceTier.DEFAULT
        file = tmp_path / "file"
        stuck = [asyncio.create_task(_wait_for(pool, file, "many", tier)) for tier in tiers]
        await asyncio.sleep(0)
        for _ in range(3):  # without waiting for the hanging jobs
            assert (await pool.run(Regex("a"), "one"))[0] == "compiled"
        assert not any(task.done() for task in stuck)
        file.touch()
        assert await asyncio.gather(*stuck) == [b"{}"] * 3
        assert (await pool.run(Regex("a"), "many"))[0] == "compiled"


async def test_schemas_of_a_higher_tier_are_compiled_first() -> None:
    async with started(LIMITS, workers=1) as pool:
        ended: list[ServiceTier] = []

        async def compile(tier: ServiceTier, pattern: str) -> None:
            await pool.run(Regex(pattern), "", tier)
            ended.append(tier)

        lines = [asyncio.create_task(compile(ServiceTier.BATCH, f"{n}")) for n in range(5)]
        await asyncio.sleep(0)
        await asyncio.gather(*lines, compile(ServiceTier.DEFAULT, "a"))
        assert ended.index(ServiceTier.DEFAULT) <= 1
