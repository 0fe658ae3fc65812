"""Pictures of constraints: a bounded cache, and no worker is lost if a client leaves."""

from __future__ import annotations

import asyncio

import pytest

from app.core.graphs import GraphOptions, GraphSpec, WalkSpec
from app.core.specs import Regex
from app.serving.compiling.graphs import Graphs
from app.serving.compiling.schema_registry import RegisteredSchema
from tests.serving.fakes import Bench


def registered(name: str) -> RegisteredSchema:
    return RegisteredSchema(name, 0, None, Regex(name), b"null", 0)


async def walk_nothing(asked: WalkSpec, tenant: str) -> bytes:
    return b"{}"


async def test_the_pictures_that_were_used_last_are_kept_up_to_a_size() -> None:
    bench, drawn = Bench(), list[str]()

    async def draw(asked: GraphSpec, tenant: str) -> bytes:
        assert isinstance(asked.spec, Regex)
        drawn.append(asked.spec.pattern)
        return b"x" * 40

    graphs = Graphs(draw=draw, walk=walk_nothing, max_bytes=100)
    for name in ("a", "b", "a", "c", "a", "b"):
        ticket = bench.admission.enter("tenant", queues=False)
        await graphs.picture(registered(name), GraphOptions(), ticket)
        ticket.leave()
    assert drawn == ["a", "b", "c", "b"]
    assert graphs._pictures.nbytes == 80


async def test_a_client_that_leaves_cancels_no_drawing_and_the_next_waits_for_it() -> None:
    bench, events, gate = Bench(), list[str](), asyncio.Event()

    async def draw(asked: GraphSpec, tenant: str) -> bytes:
        assert isinstance(asked.spec, Regex)
        events.append(f"{asked.spec.pattern} begins")
        await gate.wait()
        events.append(f"{asked.spec.pattern} ends")
        return b"{}"

    graphs = Graphs(draw=draw, walk=walk_nothing)
    ticket = bench.admission.enter("tenant", queues=False)
    first = asyncio.create_task(graphs.picture(registered("a"), GraphOptions(), ticket))
    await asyncio.sleep(0)
    second = asyncio.create_task(graphs.picture(registered("b"), GraphOptions(), ticket))
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert events == ["a begins"]
    gate.set()
    await second
    assert events == ["a begins", "a ends", "b begins", "b ends"]
    await graphs.tasks.close()
