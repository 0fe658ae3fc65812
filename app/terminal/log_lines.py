"""Progress where nobody watches: one line in the log for each stage, as it begins."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from app.core.progress import SILENCE, Stage

_log = logging.getLogger(__name__)


class LogLines:
    """Stages in the log; how far they are is not told."""

    @contextlib.contextmanager
    def stage(self, name: str, of: int | None = None, *, unit: str = "") -> Iterator[Stage]:
        _log.info(name, extra={} if of is None else {"of": of})
        with SILENCE.stage(name, of) as stage:
            yield stage
