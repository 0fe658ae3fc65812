"""A fake progress display that records its stages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.core.progress import Stage


@dataclass
class RecordedStage:
    name: str
    of: int | None
    unit: str
    reached: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    ended: bool = False

    def reach(self, done: int, of: int | None = None, *, now: str = "") -> None:
        self.reached.append(done)
        self.names.append(now)
        self.of = self.of if of is None else of


class Recorded:
    """A progress display that keeps its stages, in the order of their start."""

    def __init__(self) -> None:
        self.stages: list[RecordedStage] = []

    @contextlib.contextmanager
    def stage(self, name: str, of: int | None = None, *, unit: str = "") -> Iterator[Stage]:
        told = RecordedStage(name, of, unit)
        self.stages.append(told)
        yield told
        told.ended = True

    def named(self, name: str) -> RecordedStage:
        (found,) = [stage for stage in self.stages if stage.name == name]
        return found
