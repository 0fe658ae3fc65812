"""Bodies that are read at the same time share one limit of bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from app.http.keys import ApiKeys
from app.server.settings import Settings
from tests.http.harness import CHAT, CONFIG, chat, client_of
from tests.serving.fakes import Bench, until

WHOLE = json.dumps(chat()).encode()
ROOM = 10_000


def padded(size: int) -> bytes:
    return WHOLE[:-1] + b" " * (size - len(WHOLE)) + b"}"


class SlowBody:
    """Sends all but its last byte at once, and the last one after ``let_go``."""

    def __init__(self, size: int) -> None:
        self._data = padded(size)
        self.let_go = asyncio.Event()

    async def parts(self) -> AsyncIterator[bytes]:
        yield self._data[:-1]
        await self.let_go.wait()
        yield self._data[-1:]


def post(client: httpx.AsyncClient, content: Any, key: str = "a") -> Any:
    headers = {"authorization": f"Bearer {key}"}
    return asyncio.ensure_future(client.post(CHAT, content=content, headers=headers))


async def test_bodies_that_are_read_together_are_bounded_together() -> None:
    bench = Bench(max_bodies_bytes=ROOM)
    async with client_of(bench, replace(CONFIG, api_keys=ApiKeys(["a"]))) as client:
        slow = SlowBody(ROOM - len(WHOLE))
        waiting = post(client, slow.parts())
        await until(lambda: bench.admission.bodies.used == ROOM - len(WHOLE) - 1)
        refused = await post(client, padded(len(WHOLE) + 2))
        error = refused.json()["error"]
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (error["type"], error["code"]) == ("rate_limit_error", "bodies_full")
        assert "the limit is 10000" in error["message"]
        assert (await post(client, padded(len(WHOLE) + 1))).status_code == 200
        slow.let_go.set()
        assert (await waiting).status_code == 200
        assert (await post(client, padded(len(WHOLE) + 2))).status_code == 200
    assert bench.observer.rejections == ["bodies_full"]


async def test_one_keys_slow_bodies_leave_room_for_anothers() -> None:
    bench = Bench(max_bodies_bytes=ROOM, tenant_share=0.9)
    async with client_of(bench, replace(CONFIG, api_keys=ApiKeys("ab"))) as client:
        slow = SlowBody(ROOM)
        waiting = post(client, slow.parts(), "a")
        await until(lambda: bench.admission.bodies.used == ROOM - 1)
        assert (await post(client, WHOLE, "a")).status_code == 429
        assert (await post(client, WHOLE, "b")).status_code == 200
        slow.let_go.set()
        assert (await waiting).status_code == 200


@pytest.mark.parametrize("content", [WHOLE, b"no JSON", b" " * 20_001, padded(9_000)])
async def test_whatever_becomes_of_a_body_its_room_is_given_back(content: bytes) -> None:
    bench = Bench(max_bodies_bytes=ROOM)

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 500):
            yield content[start : start + 500]

    async with client_of(bench) as client:
        for _ in range(3):
            await client.post(CHAT, content=parts())
        await until(lambda: bench.admission.bodies.used == 0)
        assert (await client.post(CHAT, content=padded(ROOM))).status_code == 200


async def test_a_client_that_leaves_gives_the_room_of_half_a_body_back() -> None:
    bench = Bench(max_bodies_bytes=ROOM)
    async with client_of(bench) as client:
        waiting = asyncio.ensure_future(client.post(CHAT, content=SlowBody(ROOM).parts()))
        await until(lambda: bench.admission.bodies.used > 0)
        waiting.cancel()
        await until(lambda: bench.admission.bodies.used == 0)


def test_room_for_less_than_one_body_is_refused_at_the_start() -> None:
    settings: tuple[dict[str, Any], ...] = (
        {"max_body_bytes": 1000, "max_bodies_bytes": 999},
        {"max_body_bytes": 1 << 30},
    )
    for given in settings:
        with pytest.raises(ValidationError, match="is less than max_body_bytes") as caught:
            Settings(**given)
        assert caught.value.errors()[0]["loc"] == ("max_bodies_bytes",)
