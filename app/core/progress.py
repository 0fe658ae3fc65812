"""Progress of long work, shown as bars in a terminal or as lines in a log."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class Stage(Protocol):
    """One operation in progress. Any thread may call it."""

    def reach(self, done: int, of: int | None = None, *, now: str = "") -> None:
        """``done`` units are done, of ``of`` if known; ``now`` names the next one."""


class Progress(Protocol):
    """Receives stages of work."""

    def stage(
        self, name: str, of: int | None = None, *, unit: str = ""
    ) -> AbstractContextManager[Stage]:
        """A stage, from the beginning to the end of the context; stages may be nested.

        ``name``: the operation ("reading the weights"); ``unit``: the unit of the counts, ``"B"``
        for bytes.
        """


class Silence:
    """Progress that is discarded, and each of its stages."""

    def reach(self, done: int, of: int | None = None, *, now: str = "") -> None:
        pass

    @contextlib.contextmanager
    def stage(self, name: str, of: int | None = None, *, unit: str = "") -> Iterator[Stage]:
        yield self


SILENCE = Silence()


def reporting(progress: Progress, name: str, items: Collection[_T], *, unit: str) -> Iterator[_T]:
    """Yields ``items`` as a stage of as many units."""
    with progress.stage(name, len(items), unit=unit) as stage:
        for number, item in enumerate(items, 1):
            yield item
            stage.reach(number)
