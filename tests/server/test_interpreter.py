"""Settings of the interpreter in a server process, and child processes of a failed start."""

from __future__ import annotations

import gc
import logging
import sys
from asyncio.subprocess import Process
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from app.core.errors import UnsupportedModel
from app.core.events import StepObserver
from app.core.progress import Progress
from app.server import serve as serving
from app.server.backend import Backend
from app.server.composition import spawn_workers
from app.server.interpreter import OVERLAPPED_SECONDS
from app.server.serve import DrainingServer
from app.server.settings import Settings
from app.serving.workers.pool import KILLED
from tests.server.backend import backend
from tests.serving.fakes import FakeEngine


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.mark.parametrize(
    ("given", "seconds"), [({}, 0.001), ({"switch_seconds": OVERLAPPED_SECONDS}, 0.005)]
)
def test_a_server_listens_with_the_switch_interval_of_its_steps_and_a_patient_collector(
    given: dict[str, float], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[float, int, int]] = []

    async def run(self: DrainingServer) -> None:
        youngest, *_ = gc.get_threshold()
        found.append((round(sys.getswitchinterval(), 6), youngest, gc.get_freeze_count()))

    def load(settings: Settings, observer: StepObserver, progress: Progress) -> Backend:
        return replace(backend(FakeEngine()), **given)  # type: ignore[arg-type]

    monkeypatch.setattr(DrainingServer, "serve", run)
    assert serving.serve(Settings(port=0), load) == 0
    ((interval, youngest, frozen),) = found
    assert (interval, youngest) == (seconds, 10_000)
    assert frozen > 0


def test_processes_that_were_spawned_ahead_end_with_a_model_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spawned: list[Process] = []

    async def spawn(settings: Settings) -> tuple[list[Process], list[Process]]:
        compilers, readers = await spawn_workers(settings)
        spawned.extend([*compilers, *readers])
        return compilers, readers

    def load(settings: Settings, observer: StepObserver, progress: Progress) -> Backend:
        assert len(spawned) == settings.compile_workers + settings.image_workers
        raise UnsupportedModel("no such model")

    monkeypatch.setattr(serving, "spawn_workers", spawn)
    with pytest.raises(UnsupportedModel):
        serving.serve(Settings(port=0, model="demo-vision"), load)
    assert [process.returncode for process in spawned] == [KILLED] * len(spawned)


def test_image_workers_end_if_the_model_turns_out_to_be_served_as_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers: list[Process] = []

    async def spawn(settings: Settings) -> tuple[list[Process], list[Process]]:
        compilers, ahead = await spawn_workers(settings)
        readers.extend(ahead)
        return compilers, ahead

    async def run(server: DrainingServer) -> None:
        app: Any = server.config.app
        async with app.router.lifespan_context(app):
            ended = [process.returncode for process in readers]
            assert ended == [KILLED] * settings.image_workers

    monkeypatch.setattr(serving, "spawn_workers", spawn)
    monkeypatch.setattr(DrainingServer, "serve", run)
    settings = Settings(port=0, model="demo-vision", compile_workers=1)
    assert serving.serve(settings, lambda *given: backend(FakeEngine())) == 0
