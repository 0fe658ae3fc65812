"""Input files of batches, and batch runners, for tests."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from app.http.requests.body import check_size
from app.serving.batches import Ask, BatchLimits, BatchRunner
from app.store.rows import NewFile, fresh_id
from app.store.store import Store, open_store

CHAT = "/v1/chat/completions"
LIMITS = BatchLimits(
    running=8,
    line_bytes=10_000,
    batch_requests=1000,
    key_requests=2000,
    response_seconds=3600,
    check=check_size,
)


def line(name: str, **fields: Any) -> dict[str, Any]:
    """A line of an input file, which ``echo`` answers with its name."""
    body = {"model": "demo", "messages": [{"role": "user", "content": name}]}
    return {"custom_id": name, "method": "POST", "url": CHAT, "body": body, **fields}


def jsonl(count: int) -> bytes:
    return b"".join(json.dumps(line(f"r{number}")).encode() + b"\n" for number in range(count))


async def echo(owner: str, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
    """Answer a line with its name."""
    said = json.loads(body)["messages"][0]["content"]
    return 200, {"x-request-id": "req_1"}, json.dumps({"echo": said}).encode()


def open_folder(folder: Path, clock: Callable[[], float] | None = None) -> Store:
    return open_store(str(folder), None, **({} if clock is None else {"clock": clock}))


@asynccontextmanager
async def running(
    store: Store,
    ask: Ask = echo,
    limits: BatchLimits = LIMITS,
    owners: tuple[str, ...] = ("",),
    halted: Callable[[], bool] = lambda: False,
) -> AsyncIterator[BatchRunner]:
    runner = BatchRunner(store, ask, limits, owners=owners, halted=halted)
    runner.start()
    try:
        yield runner
    finally:
        await runner.close()


async def keep_file(store: Store, data: bytes, owner: str = "") -> Mapping[str, Any]:
    file_id = fresh_id("file-")
    await store.run(store.state.reserve_file, owner, file_id, len(data), 1 << 30)
    await store.copy(store.files.put, file_id, io.BytesIO(data))
    new = NewFile(file_id, "batch", "in.jsonl", len(data), 86_400)
    return await store.run(store.state.complete_file, new)


async def make_batch(
    store: Store, data: bytes, owner: str = "", *, window: int = 86_400, most: int = 100
) -> str:
    """The id of a new batch over ``data``."""
    file = await keep_file(store, data, owner)
    row = {
        "endpoint": CHAT,
        "input_file_id": file["id"],
        "input_bytes": file["bytes"],
        "completion_window": "24h",
        "window_seconds": window,
        "output_seconds": 86_400,
        "metadata": None,
    }
    batch = await store.run(store.state.add_batch, owner, row, most)
    name: str = batch["id"]
    return name


async def until(reached: Callable[[], Awaitable[bool]], seconds: float = 120) -> None:
    async with asyncio.timeout(seconds):
        while not await reached():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def ended(store: Store, batch_id: str, owner: str = "") -> Mapping[str, Any]:
    """Wait until the batch has ended; returns it."""
    found: Mapping[str, Any] = {}

    async def has_ended() -> bool:
        nonlocal found
        batch = await store.run(store.state.find_batch, owner, batch_id)
        assert batch is not None
        found = batch
        return batch["status"] in ("completed", "failed", "expired", "cancelled")

    await until(has_ended)
    return found


async def lines_of(store: Store, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    data = await store.copy(store.files.read, file_id, 0, 1 << 30)
    return [json.loads(each) for each in data.splitlines()]


def run_to_the_end(folder: Path, batch_id: str, log: Path) -> None:
    """Run the batch slowly; each line that is asked adds a line to ``log``."""

    async def ask(owner: str, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        with log.open("ab", buffering=0) as file:
            file.write(b"asked\n")
        await asyncio.sleep(0.002)
        return await echo(owner, path, body)

    async def run() -> None:
        async with running(store := open_folder(folder), ask):
            await ended(store, batch_id)

    asyncio.run(run())
