"""The size of a fault test, and its server."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtest.faults.client import MODEL
from loadtest.server import Server, running_server

SERVE = (sys.executable, "-m", "app", "serve")


@dataclass(frozen=True, slots=True)
class Setting:
    folder: Path
    """Folder for the servers' logs."""
    scale: float = 1.0
    """Factor for counts and times; below 1 the test is only a smoke test."""
    minutes: float = 30.0
    """Duration of the soak."""
    model: Path | None = None
    """Model folder; None: the demo model."""

    def count(self, full: int) -> int:
        return max(round(full * self.scale), 1)

    @contextmanager
    def server(self, command: Sequence[str] = SERVE, **settings: str) -> Iterator[Server]:
        """Run a server during the block; ``settings`` become ``LEAPJSON_`` variables.

        The default is float32, in which answers do not depend on other requests in the batch.
        """
        number = len(list(self.folder.iterdir()))
        given = {
            "DTYPE": "float32",
            "SERVED_MODEL_NAME": MODEL,
            **{name.upper(): value for name, value in settings.items()},
        }
        with running_server(self.model, self.log(number), given, command=command) as server:
            yield server

    def log(self, number: int) -> Path:
        return self.folder / f"server-{number}.log"
