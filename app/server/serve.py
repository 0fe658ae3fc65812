"""Load, listen, serve until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from itertools import chain
from types import FrameType
from typing import Any

import uvicorn

from app.core.events import StepObserver
from app.core.progress import Progress
from app.http.connection import BoundedConnection
from app.server.backend import Backend, load_backend
from app.server.composition import Assembly, api_keys, assemble, spawn_workers
from app.server.interpreter import settle_collector
from app.server.preload import load_types
from app.server.settings import Settings
from app.serving.workers.pool import end
from app.telemetry.logs import configure_logging
from app.telemetry.metrics import Metrics
from app.terminal.screen import Screen, greeting, open_screen

FLUSH_SECONDS = 5
"""Time for clients to read generated answers at exit."""


def serve(
    settings: Settings, load: Callable[[Settings, StepObserver, Progress], Backend] = load_backend
) -> int:
    """Load, listen, serve until told to stop; the process's exit status."""
    screen = open_screen(sys.stderr)
    configure_logging(
        screen.log,
        level=settings.log_level,
        log_format=settings.log_format,
        content=settings.log_content,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    preloads = load_types(settings.preload, settings.constraint_limits())
    api_keys(settings)  # errors in them are reported before the model is loaded
    metrics = Metrics()

    class Connection(BoundedConnection):
        on_refusal = staticmethod(metrics.observe_connection_refusal)

    config = uvicorn.Config(
        "",  # the application, once there is one
        host=settings.host,
        port=settings.port,
        http=Connection,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=FLUSH_SECONDS,
    )
    has_keys = bool(settings.api_keys or settings.api_keys_file)

    def announce(url: str) -> None:
        model, page = settings.served_model, settings.page
        print(greeting(model, url, sys.stdout, page=page, keys=has_keys), flush=True)

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        spawned = runner.run(spawn_workers(settings))
        try:
            backend = load(settings, metrics, screen.progress)
            assembly = assemble(settings, backend, metrics, preloads, screen.progress, spawned)
            config.app = assembly.app
            server = DrainingServer(
                config,
                drain=lambda: _drain(assembly, settings.drain_seconds, screen),
                announce=announce,
                alive=lambda: assembly.worker.alive,
                hangs=lambda: assembly.worker.stalled,
            )
            sys.setswitchinterval(backend.switch_seconds)
            settle_collector()
            runner.run(server.serve())
        finally:
            for process in chain(*spawned):
                runner.run(end(process))
    status = 1 if server.failed else 0
    if not server.failed:
        screen.say("Stopped immediately." if server.force_exit else "Stopped.")
    if server.failed or assembly.worker.alive:
        # A normal exit would free memory of a device that may no longer respond.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(status)
    backend.close()
    return status


async def _drain(assembly: Assembly, seconds: float, screen: Screen) -> None:
    if running := assembly.admission.live:
        answers = "1 answer is running" if running == 1 else f"{running} answers are running"
        screen.say(f"Stopping: {answers}, for up to {seconds:g} s. Ctrl-C again stops immediately.")
    await assembly.drain(seconds, screen.progress)


FAREWELL_SECONDS = 1.0
"""Time between the engine's death and the exit, for ``/ready`` to report it."""

PATIENCE_SECONDS = 30.0
"""Time that an engine may be stuck before the process exits: that of three failures of a liveness
probe, so that the server can go on after its machine was suspended."""


class DrainingServer(uvicorn.Server):
    """uvicorn's server, except for signals: the first one drains, and the exit is a success.

    While draining it still answers: 503 to ``/ready`` and to new requests. A second signal ends it
    at once. If its engine dies or is stuck, it exits by itself, so that a supervisor can restart
    it; ``failed`` then marks the exit as a failure.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        drain: Callable[[], Any],
        announce: Callable[[str], None],
        alive: Callable[[], bool],
        hangs: Callable[[], bool],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """``drain`` returns a coroutine; ``announce`` gets the URL once the server listens.

        ``alive``: whether the engine runs; ``hangs``: whether it runs but is stuck in a step. Both
        are polled while the server listens.
        """
        super().__init__(config)
        self.failed = False
        self._drain = drain
        self._announce = announce
        self._alive = alive
        self._hangs = hangs
        self._patience = patience
        self._hung_since: float | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: Future[None] | None = None

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        self._announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def on_tick(self, counter: int) -> bool:
        if not self.failed:
            loop = asyncio.get_running_loop()
            if not self._alive():
                self.failed = True
                loop.call_later(FAREWELL_SECONDS, self._exit)
            elif not self._hangs():
                self._hung_since = None
            elif self._hung_since is None:
                self._hung_since = loop.time()
            elif loop.time() - self._hung_since > self._patience:
                self.failed = True
                self._leaving = loop.create_task(self._drain_and_exit())
        return await super().on_tick(counter)

    def _exit(self) -> None:
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is not None or self._loop is None:
            self.should_exit = self.force_exit = True
        else:
            self._draining = asyncio.run_coroutine_threadsafe(self._drain_and_exit(), self._loop)

    async def _drain_and_exit(self) -> None:
        try:
            await self._drain()
        finally:
            self._exit()
