"""Where ``leapjson batch`` has its lines answered: the engine in this process, or servers."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic_core import to_json

from app.cli.specification import UnusableInput
from app.http.inside import ask
from app.server.settings import Settings
from app.terminal.screen import Screen

RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504})
"""As OpenAI's SDKs retry."""
_LONGEST_WAIT = 60.0
"""Seconds between two tries where the server names none."""
_QUEUED = 32
"""Lines that wait in this process's engine beyond those that it can run."""
_LOWERED = 0.7


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, or an error, of the engine or of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_retried(self) -> bool:
        asked = self.headers.get("x-should-retry")
        return self.status in RETRIED if asked not in ("true", "false") else asked == "true"

    def wait(self, tries: int) -> float:
        """Seconds until the next try, after so many: what the server asks for, or twice as long
        each time, and a little at random so that not all come back at once."""
        try:
            asked = float(self.headers.get("retry-after", ""))
        except ValueError:
            asked = 0.0
        return asked if 0 < asked <= 600 else backoff(tries)


def backoff(tries: int) -> float:
    return min(0.5 * 2.0**tries, _LONGEST_WAIT) * random.uniform(0.75, 1.0)


class Unreachable(Exception):
    """No answer came: ``str`` says why. The line may be asked again."""


class Target(Protocol):
    places: int
    """Lines that may be under way at once."""
    model: str
    """The model of lines that name none."""

    async def ask(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Waits for a place, then asks once. Raises ``Unreachable``, or ``UnusableInput`` where
        the run cannot go on."""
        ...


class InProcess:
    """The engine in this process."""

    def __init__(self, assembly: Any, settings: Settings, places: int | None) -> None:
        self._assembly = assembly
        self.places = places or settings.max_running + _QUEUED
        self.model = settings.served_model
        self._free = asyncio.Semaphore(self.places)

    async def ask(self, path: str, body: Mapping[str, Any]) -> Reply:
        async with self._free:
            if not self._assembly.worker.alive:
                raise UnusableInput("the engine died; run the same command again to go on")
            # No line of a batch by its class: nobody is here to yield to.
            answer = await ask(self._assembly.app, path, to_json(body), batch=False)
        if not self._assembly.worker.alive:
            raise UnusableInput("the engine died; run the same command again to go on")
        return Reply(answer.status, answer.headers, answer.body)


@asynccontextmanager
async def in_process(
    settings: Settings, screen: Screen, places: int | None
) -> AsyncIterator[InProcess]:
    """Loads the model, and starts the engine for as long as the block lasts."""
    from app.server.backend import load_backend
    from app.server.composition import assemble
    from app.server.interpreter import settle_collector
    from app.telemetry.metrics import Metrics

    # The queue holds every line that is under way: a batch is not refused by its own engine.
    room = max(settings.max_queue, 2 * (places or _QUEUED))
    settings = settings.model_copy(
        update={"api_keys": None, "api_keys_file": None, "priority_keys": (), "page": False}
        | {"max_queue": room, "tenant_share": 1.0}
    )
    metrics = Metrics()
    backend = load_backend(settings, metrics, screen.progress)
    assembly = assemble(settings, backend, metrics, (), screen.progress)
    sys.setswitchinterval(backend.switch_seconds)
    settle_collector()
    try:
        async with assembly.app.router.lifespan_context(assembly.app):
            yield InProcess(assembly, settings, places)
    finally:
        backend.close()


@dataclass(slots=True)
class _Server:
    url: str
    limit: float
    """Lines that may be under way: one more for each round that went well, less after a refusal
    (additive increase, multiplicative decrease, as TCP does)."""
    under_way: int = 0
    not_before: float = 0.0
    lowered: float = 0.0
    """When the limit was last lowered: what was sent before that says nothing new."""


class Servers:
    """Servers that speak OpenAI's API; each line goes to the one with the most room."""

    def __init__(
        self, client: Any, urls: Sequence[str], places: int, patience: float, model: str
    ) -> None:
        self.places = places * len(urls)
        self.model = model
        self._client = client
        self._most = places
        self._servers = [_Server(url, min(places, 16)) for url in urls]
        self._patience = patience
        self._changed = asyncio.Condition()
        self._last_reply = time.monotonic()

    async def ask(self, path: str, body: Mapping[str, Any]) -> Reply:
        import httpx

        server = await self._place()
        started = time.monotonic()
        try:
            response = await self._client.post(
                f"{server.url}{path}",
                content=to_json(body),
                headers={"content-type": "application/json"},
            )
        except httpx.HTTPError as error:
            self._lower(server, started, backoff(2))
            reason = f"{server.url}: {str(error) or type(error).__name__}"
            if time.monotonic() - self._last_reply > self._patience:
                raise UnusableInput(
                    f"no server has answered for {self._patience:g} s ({reason}); run the same "
                    "command again to go on"
                ) from None
            raise Unreachable(reason) from None
        finally:
            server.under_way -= 1
            async with self._changed:
                self._changed.notify_all()
        self._last_reply = time.monotonic()
        reply = Reply(response.status_code, response.headers, response.content)
        if reply.status in (429, 503):
            self._lower(server, started, reply.wait(0))
        elif reply.status < 500:
            server.limit = min(server.limit + 1 / server.limit, self._most)
        return reply

    def _lower(self, server: _Server, started: float, wait: float) -> None:
        now = time.monotonic()
        if started >= server.lowered:
            server.limit = max(1.0, server.limit * _LOWERED)
            server.lowered = now
            server.not_before = max(server.not_before, now + wait)

    async def _place(self) -> _Server:
        """A server with room, which one more line is under way to from now on."""
        while True:
            now = time.monotonic()
            server = max(
                self._servers,
                key=lambda each: (each.not_before <= now, each.limit - each.under_way),
            )
            if server.not_before <= now and server.under_way < int(server.limit):
                server.under_way += 1
                return server
            waits = [each.not_before - now for each in self._servers if each.not_before > now]
            async with self._changed:
                try:
                    async with asyncio.timeout(min(waits, default=None)):
                        await self._changed.wait()
                except TimeoutError:
                    pass


@asynccontextmanager
async def servers(
    urls: Sequence[str],
    key: str | None,
    places: int | None,
    patience: float,
    model: str | None,
    seconds: float,
) -> AsyncIterator[Servers]:
    """Connections to ``urls`` for as long as the block lasts.

    ``seconds``: of one request; ``model`` None: the first that the first server lists. Raises
    ``UnusableInput``.
    """
    try:
        import httpx
    except ImportError:
        raise UnusableInput("--url needs httpx: pip install 'leapjson[batch]'") from None
    roots = [url.rstrip("/").removesuffix("/v1") for url in urls]
    most = places or 64
    async with httpx.AsyncClient(
        headers={} if key is None else {"authorization": f"Bearer {key}"},
        timeout=httpx.Timeout(seconds, connect=10),
        limits=httpx.Limits(max_connections=most * len(urls), max_keepalive_connections=most),
        trust_env=False,
    ) as client:
        if model is None:
            try:
                listed = (await client.get(f"{roots[0]}/v1/models")).raise_for_status().json()
                model = listed["data"][0]["id"]
            except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
                raise UnusableInput(
                    f"{roots[0]}/v1/models names no model ({str(error).splitlines()[0]}); check "
                    "--url and --api-key, or name the model with --model"
                ) from None
        yield Servers(client, roots, most, patience, str(model))
