"""Progress stages that replace the progress bars of transformers and the Hub's client."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterator
from typing import Any

from tqdm import tqdm
from transformers.utils import logging as transformers_logging

from app.core.progress import Progress, Stage

_TRANSFER = "ownloading bytes"
"""End of the name of the Hub client's bar for bytes on the wire, whose total is not known; the bar
for bytes in files is shown."""

_SMALL = 1 << 20
"""Minimum bytes for a stage: smaller files are there at once."""


@contextlib.contextmanager
def reporting_downloads(progress: Progress) -> Iterator[type[Any]]:
    """A ``tqdm_class`` for the Hub's client that reports its downloads as stages.

    The client leaves some of its bars open: their stages end with the block.
    """
    with contextlib.ExitStack() as bars:

        class Downloads(_ProgressBar):
            def __init__(self, *iterable: Any, **options: Any) -> None:
                super().__init__(*iterable, **options)
                if options.get("unit") == "B" and not options.get("desc", "").endswith(_TRANSFER):
                    self.report(progress, "downloading from the Hub", "B", _SMALL)
                    bars.callback(self.close)

        yield Downloads


@contextlib.contextmanager
def reporting_weights(progress: Progress) -> Iterator[None]:
    """Within the block, transformers' reading of weights is a stage, and it draws no bars."""

    def hook(_: Any, iterable: tuple[Any, ...], options: dict[str, Any]) -> Any:
        bar = _ProgressBar(*iterable, **options)
        bar.report(progress, "reading the weights", "tensors")
        return bar

    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    before = transformers_logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        transformers_logging.set_tqdm_hook(before)
        if shown:
            transformers_logging.enable_progress_bar()


class _ProgressBar(tqdm):  # type: ignore[misc]
    """A bar that draws nothing."""

    monitor_interval = 0  # no thread
    _lock = threading.RLock()  # tqdm's own is for several processes, and takes a semaphore
    _open: tuple[Progress, str, str, int] | None = None
    _stage: Stage | None = None

    def __init__(self, *iterable: Any, **options: Any) -> None:
        self._stages = contextlib.ExitStack()
        options |= {"file": io.StringIO(), "mininterval": 0, "miniters": 1, "disable": False}
        super().__init__(*iterable, **options)

    def report(self, progress: Progress, name: str, unit: str, least: int = 1) -> None:
        """Open a stage at the first progress, unless the total is known and below ``least``."""
        self._open = progress, name, unit, least

    def display(self, *_: Any, **__: Any) -> None:
        if self._open is None or not self.n:
            return
        progress, name, unit, least = self._open
        if self._stage is None and (not self.total or self.total >= least):
            self._stage = self._stages.enter_context(progress.stage(name, unit=unit))
        if self._stage is not None:
            self._stage.reach(int(self.n), int(self.total or 0) or None)

    def close(self) -> None:
        self._open = None
        super().close()
        self._stages.close()
