"""Stages in the place of the bars that transformers and the Hub's client would draw themselves."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from transformers.utils import logging as transformers_logging

from app.core.progress import Progress, Stage

_TRANSFER = "ownloading bytes"
"""What the Hub's client calls bytes on the wire, beside a bar of bytes in files: only those have a
length that is known."""

_SMALL = 1 << 20
"""Bytes of files that are there before a bar could be."""

_Open = Callable[[], AbstractContextManager[Stage]]


@contextlib.contextmanager
def telling_downloads(progress: Progress) -> Iterator[type[Any]]:
    """A class to hand to the Hub's client as ``tqdm_class``: what it fetches is a stage.

    The client leaves some of its bars open: their stages end with the block.
    """
    with contextlib.ExitStack() as bars:

        class Downloads(_ProgressBar):
            def __init__(self, *iterable: Any, **options: Any) -> None:
                super().__init__(*iterable, **options)
                if options.get("unit") == "B" and not options.get("desc", "").endswith(_TRANSFER):
                    self.tell(lambda: progress.stage("downloading from the Hub", unit="B"), _SMALL)
                    bars.callback(self.close)

        yield Downloads


@contextlib.contextmanager
def telling_weights(progress: Progress) -> Iterator[None]:
    """While the block lasts, weights that transformers reads are a stage, and it draws no bars."""

    def hook(_: Any, iterable: tuple[Any, ...], options: dict[str, Any]) -> Any:
        bar = _ProgressBar(*iterable, **options)
        bar.tell(lambda: progress.stage("reading the weights", unit="tensors"))
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


class _ProgressBar:
    """As much of tqdm's bar as those two libraries use. Any thread may call it."""

    def __init__(
        self, iterable: Any = None, *, total: int | None = None, initial: int = 0, **_: Any
    ) -> None:
        self._iterable = iterable
        self.total = len(iterable) if total is None and hasattr(iterable, "__len__") else total
        self.n = initial
        self.format_dict: dict[str, Any] = {}
        self._open: _Open | None = None
        self._least = 1
        self._stage: Stage | None = None
        self._stages = contextlib.ExitStack()
        self._lock = threading.Lock()

    def tell(self, open: _Open, least: int = 1) -> None:
        """Open a stage with the first that is done of ``least`` or more; otherwise it is silent."""
        self._open, self._least = open, least

    def update(self, amount: float | None = 1) -> None:
        with self._lock:
            self.n += int(amount or 0)
        self.refresh()

    def refresh(self) -> None:
        with self._lock:
            if self._open is None or not self.n:
                return
            if self._stage is None:
                if self.total and self.total < self._least:
                    return
                self._stage = self._stages.enter_context(self._open())
            self._stage.reach(self.n, self.total or None)

    def close(self) -> None:
        with self._lock:
            self._open = None
            self._stages.close()

    def set_postfix_str(self, *_: Any, **__: Any) -> None:
        """Rates and descriptions are not told."""

    set_description = set_description_str = set_postfix_str

    def __iter__(self) -> Iterator[Any]:
        with self:
            for each in self._iterable:
                yield each
                self.update()

    def __enter__(self) -> _ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
