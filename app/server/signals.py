"""uvicorn's server with ways out of our own: it drains, and ends without its engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType
from typing import Any

import uvicorn

FAREWELL_SECONDS = 1.0
"""Between the engine's death and the process's end, for ``/ready`` to say so."""

PATIENCE_SECONDS = 30.0
"""How long an engine may count as hung before the process ends: as long as three failures of a
liveness probe take, so that one whose machine was suspended may go on."""


class DrainingServer(uvicorn.Server):
    """uvicorn's server, except for signals: the first one drains, and the exit is a success.

    While it drains it still answers: ``/ready`` says 503, and so do new requests. A second
    signal ends it at once. Without its engine, dead or hung, it ends by itself, for whoever
    started it to start another: ``failed`` then says that the exit is no success.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        drain: Callable[[], Any],
        announce: Callable[[str], None],
        alive: Callable[[], bool],
        hangs: Callable[[], bool],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """``drain`` makes a coroutine; ``announce`` is told the server's URL once it listens.

        ``alive`` says whether the engine runs, ``hangs`` whether it does and its steps do not end;
        they are asked while the server listens.
        """
        super().__init__(config)
        self.failed = False
        self._drain = drain
        self._announce = announce
        self._alive = alive
        self._hangs = hangs
        self._patience = patience
        self._hung_since: float | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: Future[None] | None = None

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        self._announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def on_tick(self, counter: int) -> bool:
        if not self.failed:
            self._look_after_engine(asyncio.get_running_loop())
        return await super().on_tick(counter)

    def _look_after_engine(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._alive():
            self.failed = True
            loop.call_later(FAREWELL_SECONDS, self._exit)
        elif not self._hangs():
            self._hung_since = None
        elif self._hung_since is None:
            self._hung_since = loop.time()
        elif loop.time() - self._hung_since > self._patience:
            self.failed = True
            self._leaving = loop.create_task(self._drain_and_exit())

    def _exit(self) -> None:
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is not None or self._loop is None:
            self.should_exit = self.force_exit = True
        else:
            draining = self._drain_and_exit()
            self._draining = asyncio.run_coroutine_threadsafe(draining, self._loop)

    async def _drain_and_exit(self) -> None:
        try:
            await self._drain()
        finally:
            self._exit()
