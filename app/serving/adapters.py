"""The adapters that a server has: found by name, loaded and unloaded while it serves.

    loaded ── unload: its name is gone ──▶ leaving ── its last answer ends ──▶ its slot is free

No answer is lost to an unload: whoever has begun with an adapter ends with it. What is loaded goes
to the model between two steps, and is named only once it is there: a load that fails changes
nothing.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from app.core.errors import InvalidAdapter, InvalidRequest, UnknownModel
from app.core.request import Adapter
from app.serving.admission import Ticket
from app.serving.worker import EngineWorker

NAME = r"^[A-Za-z0-9_.-]{1,64}$"
"""What an adapter may be called."""


class Slots(Protocol):
    """Where the model keeps adapters."""

    @property
    def count(self) -> int:
        """How many there are, numbered from 1."""

    def read(self, place: str) -> Any:
        """Weights, with their ``identity``, which fit into a slot; on any thread.

        Raises ``InvalidAdapter``.
        """

    def put(self, slot: int, weights: Any) -> None:
        """Fill a slot that no answer uses; on the engine's thread, between two steps."""


class Adapters:
    """Its methods run on the event loop's thread."""

    def __init__(
        self,
        slots: Slots | None,
        worker: EngineWorker,
        *,
        loaded: Sequence[Adapter] = (),
        folder: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``slots`` None: adapters are not supported. ``folder``: requests may load adapters from
        it; None: they may load none."""
        self._slots = slots
        self._worker = worker
        self._folder = None if folder is None else Path(folder).resolve()
        self._clock = clock
        self._loaded = {adapter.name: adapter for adapter in loaded}
        self._loads = len(loaded)
        self._answers: dict[Adapter, int] = {}
        """Number of requests that use each adapter, of those in use."""
        self._leaving: dict[Adapter, asyncio.Future[None]] = {}
        """Unloaded adapters that are still in use."""
        self._changing = asyncio.Lock()

    @property
    def loaded(self) -> Sequence[Adapter]:
        """Those that requests may name, in the order in which they came."""
        return tuple(self._loaded.values())

    def find(self, name: str) -> Adapter | None:
        return self._loaded.get(name)

    def hold(self, adapter: Adapter, ticket: Ticket) -> None:
        """Keep an adapter where it is until ``ticket`` leaves.

        Raises ``UnknownModel`` where it has been unloaded since it was found.
        """
        self._check_loaded(adapter)
        self._answers[adapter] = self._answers.get(adapter, 0) + 1
        ticket.on_leave(functools.partial(self._release, adapter))

    async def load(self, name: str, place: str) -> Adapter:
        """Load a folder, given from the root or from the one that adapters are loaded from.

        Raises ``InvalidRequest`` where none may be loaded or the name is taken, ``InvalidAdapter``
        for what cannot be used or has no room.
        """
        folder = self._allowed(place)
        assert self._slots is not None
        async with self._changing:
            if name in self._loaded:
                raise InvalidRequest(
                    f"an adapter {name!r} is already loaded; unload it first", param="lora_name"
                )
            slot = self._free_slot()
            try:
                weights = await asyncio.to_thread(self._slots.read, str(folder))
            except InvalidAdapter as error:
                raise InvalidAdapter(f"{place}: {error}", param="lora_path") from error
            await self._worker.between_steps(functools.partial(self._slots.put, slot, weights))
            adapter = Adapter(
                name=name,
                slot=slot,
                number=self._loads,
                root=place,
                identity=weights.identity,
                created=int(self._clock()),
            )
            self._loads += 1
            self._loaded[name] = adapter
            return adapter

    async def unload(self, adapter: Adapter) -> None:
        """Take an adapter out of the list, and wait until its last answer has ended.

        Raises ``InvalidRequest`` if requests may not load adapters, and ``UnknownModel`` where it
        has been unloaded since it was found. If the wait is cancelled, the slot still becomes free
        after the last answer.
        """
        if self._folder is None:
            raise _not_allowed()
        self._check_loaded(adapter)
        del self._loaded[adapter.name]
        if adapter in self._answers:
            ended = self._leaving[adapter] = asyncio.get_running_loop().create_future()
            await asyncio.shield(ended)

    def _check_loaded(self, adapter: Adapter) -> None:
        if self._loaded.get(adapter.name) != adapter:
            raise UnknownModel(f"the adapter {adapter.name!r} was just unloaded", param="model")

    def _allowed(self, place: str) -> Path:
        """The resolved folder, if it lies inside the one for adapters."""
        if self._folder is None or self._slots is None:
            raise _not_allowed()
        try:
            found = (self._folder / place).resolve()
            inside = found.is_relative_to(self._folder) and found.is_dir()
        except (OSError, ValueError, RuntimeError):  # a NUL, a long name, links in a circle
            inside = False
        if not inside:
            raise InvalidAdapter(
                f"{place!r} is not a folder inside LEAPJSON_ADAPTER_FOLDER", param="lora_path"
            )
        return found

    def _free_slot(self) -> int:
        assert self._slots is not None
        taken = {each.slot for each in (*self._loaded.values(), *self._leaving)}
        free = [slot for slot in range(1, self._slots.count + 1) if slot not in taken]
        if not free:
            leaving = f", {len(self._leaving)} of them until their answers end"
            raise InvalidAdapter(
                f"{self._slots.count} adapters are loaded, the "
                f"limit{leaving if self._leaving else ''}; unload one, or raise max_adapters",
                param="lora_name",
            )
        return free[0]

    def _release(self, adapter: Adapter) -> None:
        self._answers[adapter] -= 1
        if self._answers[adapter]:
            return
        del self._answers[adapter]
        ended = self._leaving.pop(adapter, None)
        if ended is not None and not ended.done():
            ended.set_result(None)


def _not_allowed() -> InvalidRequest:
    return InvalidRequest(
        "loading adapters by request is disabled; set LEAPJSON_ADAPTER_FOLDER to the folder that "
        "contains them"
    )
