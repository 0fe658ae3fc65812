from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from app.answer.pieces import Content, Delta
from app.http.answering import in_slices

CHUNKS = [Delta(0, [Content(str(number))]) for number in range(100)]


async def batches() -> AsyncIterator[Sequence[Delta]]:
    yield CHUNKS[:90]
    yield CHUNKS[90:]


async def test_slices_of_batches_hold_the_same_chunks_in_order() -> None:
    slices = [part async for part in in_slices(batches())]
    assert [chunk for part in slices for chunk in part] == CHUNKS
    assert max(map(len, slices)) == 32


async def test_other_tasks_run_between_slices_of_one_batch() -> None:
    seen = 0

    async def count() -> None:
        nonlocal seen
        while True:
            seen += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    turns = [seen async for _ in in_slices(batches())]
    other.cancel()
    assert turns[0] < turns[1] < turns[2]
