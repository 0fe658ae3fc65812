"""What serving needs from the layers below, as Protocols: its fakes in tests end here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from app.core.events import StepOutput
from app.core.request import EngineRequest


class Engine(Protocol):
    """The synchronous loop. Only the engine's thread calls ``add``, ``abort`` and ``step``."""

    def add(self, request: EngineRequest, /) -> None:
        """Queue a request, or raise a ``RequestError`` and leave the engine as it was."""

    def abort(self, request_id: str, /) -> object:
        """Forget a request; one that is not live is passed over."""

    def step(self) -> Iterator[StepOutput]:
        """Run one step, as far as what it yields is taken.

        What can be said before anything is computed comes first, then what the step added.
        """

    @property
    def has_work(self) -> bool:
        """Whether another step would do anything."""

    @property
    def num_running(self) -> int:
        """Sequences that hold cache blocks. Any thread may read it."""

    @property
    def num_waiting(self) -> int:
        """Sequences queued for their first or next blocks. Any thread may read it."""

    @property
    def kv_usage(self) -> float:
        """Share of cache blocks that live sequences hold, 0 to 1. Any thread may read it."""

    @property
    def state_usage(self) -> float:
        """Share of the slots for recurrent states that they hold, 0 to 1; 0 for a model without.
        Any thread may read it."""
