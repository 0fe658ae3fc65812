from __future__ import annotations

import asyncio

import pytest

from app.serving.workers.fair_pool import FairPool


async def acquired(pool: FairPool[str], tenants: str) -> list[asyncio.Task[str]]:
    tasks = []
    for tenant in tenants:
        tasks.append(asyncio.create_task(pool.acquire(tenant)))
        await asyncio.sleep(0)
    return tasks


def order(tasks: list[asyncio.Task[str]], tenants: str) -> str:
    return "".join(name for name, task in zip(tenants, tasks, strict=True) if task.done())


async def test_a_newcomer_goes_before_the_rest_of_one_that_has_had_its_turn() -> None:
    pool: FairPool[str] = FairPool()
    pool.release("worker")
    assert await pool.acquire("a") == "worker"
    tasks = await acquired(pool, "aaab")
    pool.charge("a", 5.0)
    pool.release("worker")
    await asyncio.sleep(0)
    assert order(tasks, "aaab") == "b"
    pool.charge("b", 0.1)
    for served in (1, 2, 3):
        pool.release("worker")
        await asyncio.sleep(0)
        assert order(tasks[:3], "aaa") == "a" * served


async def test_a_cancelled_wait_costs_no_other_tenant_its_turn() -> None:
    pool: FairPool[str] = FairPool()
    first, second, third = await acquired(pool, "abc")
    second.cancel()
    await asyncio.sleep(0)
    pool.release("one")
    pool.release("two")
    assert list(await asyncio.gather(first, third)) == ["one", "two"]


async def test_a_worker_for_a_cancelled_wait_goes_to_the_next() -> None:
    pool: FairPool[str] = FairPool()
    first, second = await acquired(pool, "ab")
    pool.release("worker")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == "worker"
    pool.release("worker")
    assert await pool.acquire("c") == "worker"
