"""Load, listen, serve until told to stop."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

import uvicorn

from app.core.events import StepObserver
from app.core.progress import Progress
from app.http.connection import BoundedConnection
from app.server.backend import Backend, load_backend
from app.server.composition import Assembly, api_keys, assemble
from app.server.interpreter import settle_collector
from app.server.preload import load_types
from app.server.settings import Settings
from app.server.signals import DrainingServer
from app.telemetry.logs import configure_logging
from app.telemetry.metrics import Metrics
from app.terminal.greeting import Served, greeting
from app.terminal.screen import Screen, open_screen

FLUSH_SECONDS = 5
"""On the way out, how long clients may take to read what is already generated."""


def serve(
    settings: Settings,
    load: Callable[[Settings, StepObserver, Progress], Backend] = load_backend,
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
    api_keys(settings)  # what is wrong with them is said before the model is loaded
    metrics = Metrics()
    backend = load(settings, metrics, screen.progress)
    assembly = assemble(settings, backend, metrics, preloads, screen.progress)

    class Connection(BoundedConnection):
        on_refusal = staticmethod(metrics.observe_connection_refusal)

    config = uvicorn.Config(
        assembly.app,
        host=settings.host,
        port=settings.port,
        http=Connection,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=FLUSH_SECONDS,
    )
    server = DrainingServer(
        config,
        drain=lambda: _drain(assembly, settings.drain_seconds, screen),
        announce=lambda url: print(greeting(_served(settings, url), sys.stdout), flush=True),
        alive=lambda: assembly.worker.alive,
        hangs=lambda: assembly.worker.stalled,
    )
    sys.setswitchinterval(backend.switch_seconds)
    settle_collector()
    server.run()
    status = 1 if server.failed else 0
    if not server.failed:
        screen.say("Stopped at once." if server.force_exit else "Stopped.")
    if server.failed or assembly.worker.alive:
        _leave_at_once(status)
    backend.close()
    return status


def _leave_at_once(status: int) -> None:
    """End the process of an engine that died or was left behind in a step.

    Python's own way out would free what lies on a device that may not answer any more.
    """
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


def _served(settings: Settings, url: str) -> Served:
    return Served(
        settings.served_model,
        url,
        page=settings.page,
        keys=bool(settings.api_keys or settings.api_keys_file),
    )


async def _drain(assembly: Assembly, seconds: float, screen: Screen) -> None:
    if running := assembly.admission.live:
        answers = "1 answer runs" if running == 1 else f"{running} answers run"
        screen.say(f"Stopping: {answers}, for {seconds:g} s at most. Ctrl-C again stops at once.")
    await assembly.drain(seconds, screen.progress)
