"""Progress of trainings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from app.core.progress import Progress


def reporting_share(
    progress: Progress, name: str, share: Callable[[int], float]
) -> Iterator[float]:
    """Yields ``share`` of 0, 1, 2 ... steps until it is 1 or more; shows it in percent."""
    with progress.stage(name, 100, unit="%") as stage:
        for step in itertools.count():
            if (done := share(step)) >= 1:
                return
            stage.reach(int(100 * done))
            yield done
