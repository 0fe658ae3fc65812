"""Work on large requests runs in a thread, not on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.serving.tasks import LARGE, in_thread_if_large


async def test_tenants_take_turns_for_the_thread_of_large_requests() -> None:
    done: list[str] = []

    def work(name: str) -> Callable[[], None]:
        return lambda: done.append(name)

    async with asyncio.TaskGroup() as group:
        for number in range(9):
            group.create_task(in_thread_if_large(LARGE, "many", work(f"many {number}")))
        await asyncio.sleep(0)
        group.create_task(in_thread_if_large(LARGE, "one", work("one")))
    assert done.index("one") <= 3
    assert [name for name in done if "many" in name] == [f"many {number}" for number in range(9)]
