"""``serve`` on a fake engine, as a process for tests at a terminal.

If ``SERVED_WAITS_FOR`` is set, loading stops after the first of three tensors until a file exists
at this path.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from app.core.events import StepObserver
from app.core.progress import Progress, reporting
from app.core.request import EngineRequest
from app.server.backend import Backend
from app.server.serve import serve
from app.server.settings import Settings
from tests.server.backend import backend
from tests.serving.fakes import FakeEngine


def load(settings: Settings, observer: StepObserver, progress: Progress) -> Backend:
    """Show the progress of loading nothing, with printed lines, which must not break the bar."""

    def script(request: EngineRequest) -> list[bytes]:
        return [b"x"] * (10**6 if request.prompt[0] == ord("l") else 1)

    awaited = os.environ.get("SERVED_WAITS_FOR")
    for place in reporting(progress, "reading the weights", range(3), unit="tensors"):
        print("a library prints")
        while place == 1 and awaited and not Path(awaited).exists():
            time.sleep(0.01)
        time.sleep(0.1)  # a stage of this length gets a line of its own
    return backend(FakeEngine(script))


if __name__ == "__main__":
    sys.exit(serve(Settings(port=0, compile_workers=1), load))
