"""500 broken images through one server: no 5xx, the worker survives, memory stays flat."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.http.test_images import CHAT, A, chat, image, text
from tests.serving.broken_images import BOMBS, mutants
from tests.serving.image_targets import PEAK
from tests.serving.seeing import Seeing, seeing
from tests.wide import many

COUNT = many(500, 2)
AT_ONCE = 8


async def asked(server: Seeing, file: bytes) -> httpx.Response:
    body = {"model": "leapjson-demo", **chat(text("x"), image(file))}
    return await server.client.post(CHAT, json=body)


async def peak(server: Seeing) -> int:
    """Peak memory of the worker in bytes; its target reports MiB as a number of tokens."""
    tokens: int = (await server.answer("/tokenize", chat(image(PEAK))))["count"]
    return (tokens - len("[user]")) << 20


@pytest.mark.parametrize("seed", [0])
async def test_broken_images_are_each_a_clear_400(seed: int) -> None:
    broken = [*BOMBS.values(), *mutants(COUNT - len(BOMBS), seed)]
    assert len(broken) == COUNT
    async with seeing(image_workers=1, max_queue=64) as server:
        for file in broken[: COUNT // 5]:  # the bombs come first
            await asked(server, file)
        before = await peak(server)
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(file: bytes) -> Any:
            async with gate:
                return await asked(server, file)

        answers = await asyncio.gather(*map(one, broken))
        refused = 0
        for answer in answers:
            if answer.status_code == 200:  # a mutation that the decoder accepts
                continue
            refused += 1
            error = answer.json()["error"]
            assert answer.status_code == 400, error
            assert (error["code"], error["param"]) == ("invalid_image", "messages[0].content[1]")
            assert error["message"].startswith("messages[0].content[1]: ")
        assert refused > COUNT // 4
        bombs = answers[: len(BOMBS)]
        assert {each.status_code for each in bombs} == {400}

        assert (await asked(server, A)).status_code == 200
        exposition = (await server.client.get("/metrics")).text
        assert "leapjson_image_worker_restarts_total 0.0" in exposition, "the worker was restarted"
        assert "leapjson_image_bytes 0.0" in exposition
        assert await peak(server) - before < 16 << 20
