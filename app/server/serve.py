"""Load, listen, serve until told to stop."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

import uvicorn

from app.core.events import StepObserver
from app.http.connection import BoundedConnection
from app.server.backend import Backend, load_backend
from app.server.composition import api_keys, assemble
from app.server.interpreter import settle_collector
from app.server.preload import load_types
from app.server.settings import Settings
from app.server.signals import DrainingServer
from app.telemetry.logs import configure_logging
from app.telemetry.metrics import Metrics

FLUSH_SECONDS = 5
"""On the way out, how long clients may take to read what is already generated."""


def serve(
    settings: Settings, load: Callable[[Settings, StepObserver], Backend] = load_backend
) -> int:
    """Load, listen, serve until told to stop; the process's exit status."""
    configure_logging(
        sys.stderr,
        level=settings.log_level,
        log_format=settings.log_format,
        content=settings.log_content,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    preloads = load_types(settings.preload, settings.constraint_limits())
    api_keys(settings)  # what is wrong with them is said before the model is loaded
    metrics = Metrics()
    backend = load(settings, metrics)
    assembly = assemble(settings, backend, metrics, preloads)

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
        drain=lambda: assembly.drain(settings.drain_seconds),
        announce=lambda url: print(greeting(settings.served_model, url), flush=True),
        alive=lambda: assembly.worker.alive,
        hangs=lambda: assembly.worker.stalled,
    )
    sys.setswitchinterval(backend.switch_seconds)
    settle_collector()
    server.run()
    status = 1 if server.failed else 0
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


def greeting(model: str, url: str) -> str:
    """What a person who starts the server wants to know: where it is and how to try it."""
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    return (
        f"Leapjson serves {model} at {url}/v1 - try: "
        f"curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"
    )
