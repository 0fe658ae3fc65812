"""The real server with an engine that dies on SIGUSR1: ``python -m loadtest.faults.mortal_server``.

It is assembled here, so that the product has no switch for it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator

from app.core.events import StepObserver, StepOutput
from app.core.progress import Progress
from app.server.backend import Backend, load_backend
from app.server.serve import serve
from app.server.settings import Settings


class KilledError(Exception):
    """Raised by a step of the killed engine, like the error of a lost device."""


def load(settings: Settings, observer: StepObserver, progress: Progress) -> Backend:
    backend = load_backend(settings, observer, progress)
    killed = threading.Event()
    signal.signal(signal.SIGUSR1, lambda number, frame: killed.set())
    live = backend.engine.step

    def step() -> Iterator[StepOutput]:
        if killed.is_set():
            raise KilledError("killed by the test")
        return live()

    backend.engine.step = step  # type: ignore[method-assign]
    return backend


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(serve(Settings(), load))
