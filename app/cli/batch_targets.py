"""Targets of ``leapjson batch``: the engine in this process, or servers."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pydantic_core import to_json

from app.cli.specification import UnusableInput
from app.http.edge import InsideAnswer, ask
from app.server.settings import Settings
from app.terminal.screen import Screen

_RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504})
"""Statuses that OpenAI's SDKs retry."""
RETRIES = 8
"""Maximum retries of a line, after such a status or a connection lost before the answer."""
PATIENCE = 300.0
"""Seconds without a reply or a connection from any server, after which the run ends."""
_LONGEST_WAIT = 60.0
"""Maximum seconds between retries, if the server does not set Retry-After."""
_LONGEST_RETRY_AFTER = 600.0
_PLACES = 64
"""Maximum lines in flight for each server."""
_QUEUED = 32
"""Lines that wait in this process's engine, beyond those that it can run."""
_LOWERED = 0.7


def is_retried(answer: InsideAnswer) -> bool:
    asked = answer.headers.get("x-should-retry")
    return answer.status in _RETRIED if asked not in ("true", "false") else asked == "true"


def seconds_until_retry(answer: InsideAnswer, tries: int) -> float:
    """Seconds to wait: the server's Retry-After, or doubled with each try and with some jitter."""
    with suppress(ValueError):
        if 0 < (asked := float(answer.headers.get("retry-after", ""))) <= _LONGEST_RETRY_AFTER:
            return asked
    return _backoff(tries)


def _backoff(tries: int) -> float:
    return min(0.5 * 2.0**tries, _LONGEST_WAIT) * random.uniform(0.75, 1.0)


class InProcess:
    """The engine in this process. ``places``: maximum lines in flight; ``model``: the default model
    of a line."""

    def __init__(self, assembly: Any, settings: Settings, places: int | None) -> None:
        self._assembly = assembly
        self.places = places or settings.max_running + _QUEUED
        self.model = settings.served_model

    async def ask(self, path: str, body: Mapping[str, Any]) -> InsideAnswer:
        """The answer, or the error that remains after retries. Raises ``UnusableInput`` if the run
        cannot continue."""
        content = to_json(body)
        while True:
            # Not in the batch tier: there are no other requests to yield to.
            answer = await ask(self._assembly.app, path, content, batch=False)
            if not self._assembly.worker.alive:
                raise UnusableInput("the engine died; run the same command again to continue")
            if answer.status != 429:
                return answer
            # The run's own lines fill a queue (tokens, images, or by n); it empties as they end.
            await asyncio.sleep(seconds_until_retry(answer, 0))


@asynccontextmanager
async def in_process(
    settings: Settings, screen: Screen, places: int | None
) -> AsyncIterator[InProcess]:
    """Load the model, and run the engine while the context lasts."""
    from app.server.backend import load_backend
    from app.server.composition import assemble, spawn_workers
    from app.server.interpreter import settle_collector
    from app.serving.workers.pool import end
    from app.telemetry.metrics import Metrics

    # Ignore settings of a server in the same environment: its keys, and batches in its store.
    alone: dict[str, Any] = dict.fromkeys(["api_keys", "api_keys_file", "data", "store"])
    alone |= {"priority_keys": (), "page": False, "tenant_share": 1.0}
    alone["max_queue"] = max(settings.max_queue, 2 * (places or _QUEUED))
    settings = settings.model_copy(update=alone)
    metrics = Metrics()
    spawned = await spawn_workers(settings)
    try:
        backend = load_backend(settings, metrics, screen.progress)
        assembly = assemble(settings, backend, metrics, None, screen.progress, spawned)
        sys.setswitchinterval(backend.switch_seconds)
        settle_collector()
        try:
            async with assembly.app.router.lifespan_context(assembly.app):
                yield InProcess(assembly, settings, places)
        finally:
            backend.close()
    finally:
        for process in chain(*spawned):
            await end(process)


@dataclass(slots=True)
class _Server:
    url: str
    limit: float
    """Maximum lines in flight: one more for each good round, fewer after a refusal
    (additive increase, multiplicative decrease, as TCP does)."""
    under_way: int = 0
    not_before: float = 0.0
    lowered: float = 0.0
    """Time when the limit was last lowered: refusals of earlier requests are ignored."""

    def lower(self, started: float, wait: float) -> None:
        """Handle the refusal of a line sent at ``started``: send none for ``wait`` seconds."""
        now = time.monotonic()
        if started >= self.lowered:
            self.limit = max(1.0, self.limit * _LOWERED)
            self.lowered = now
            self.not_before = max(self.not_before, now + wait)


class Servers:
    """Servers that speak OpenAI's API; each line goes to the one with the most room."""

    def __init__(self, client: Any, urls: Sequence[str], places: int, model: str) -> None:
        self.places = places * len(urls)
        self.model = model
        self._client = client
        self._most = places
        self._servers = [_Server(url, min(places, 16)) for url in urls]
        self._changed = asyncio.Condition()
        self._last_reply = time.monotonic()

    async def ask(self, path: str, body: Mapping[str, Any]) -> InsideAnswer:
        """As ``InProcess.ask``; ``ConnectionError`` if every try loses the connection."""
        import httpx

        content, tries = to_json(body), 0
        while True:
            server = await self._place()
            started = time.monotonic()
            try:
                response = await self._client.post(f"{server.url}{path}", content=content)
            except httpx.HTTPError as error:
                server.lower(started, _backoff(2))
                reason = f"{server.url}: {str(error) or type(error).__name__}"
                if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    # The server is down, and the line is not the cause.
                    if time.monotonic() - self._last_reply > PATIENCE:
                        raise UnusableInput(
                            f"no server has answered for {PATIENCE:g} s ({reason}); run the same "
                            "command again to continue"
                        ) from None
                elif tries == RETRIES:
                    raise ConnectionError(f"no answer after {tries} retries: {reason}") from None
                else:
                    tries += 1
                continue
            finally:
                server.under_way -= 1
                async with self._changed:
                    self._changed.notify_all()
            self._last_reply = time.monotonic()
            answer = InsideAnswer(response.status_code, response.headers, response.content)
            wait = seconds_until_retry(answer, tries)
            if answer.status in (429, 503):
                server.lower(started, wait)
            elif answer.status < 500:
                server.limit = min(server.limit + 1 / server.limit, self._most)
            if tries == RETRIES or not is_retried(answer):
                return answer
            await asyncio.sleep(wait)
            tries += 1

    async def _place(self) -> _Server:
        """Wait for a server with room, and count one more line in flight to it."""
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
            with suppress(TimeoutError):
                async with self._changed, asyncio.timeout(min(waits, default=None)):
                    await self._changed.wait()


Target = InProcess | Servers


@asynccontextmanager
async def servers(
    urls: Sequence[str], key: str | None, places: int | None, model: str | None, seconds: float
) -> AsyncIterator[Servers]:
    """Connections to ``urls`` for as long as the block lasts.

    ``seconds``: limit of a request; ``model`` None: the first model of the first server. Raises
    ``UnusableInput``.
    """
    try:
        import httpx
    except ImportError:
        raise UnusableInput("--url needs httpx: pip install 'leapjson[batch]'") from None
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise UnusableInput(f"--url {url}: write it as http://HOST:PORT")
    roots = [url.rstrip("/").removesuffix("/v1") for url in urls]
    most = places or _PLACES
    async with httpx.AsyncClient(
        headers={"content-type": "application/json"}
        | ({} if key is None else {"authorization": f"Bearer {key}"}),
        timeout=httpx.Timeout(seconds, connect=10),
        limits=httpx.Limits(max_connections=most * len(urls), max_keepalive_connections=most),
        trust_env=False,
    ) as client:
        if model is None:
            try:
                listed = (await client.get(f"{roots[0]}/v1/models")).raise_for_status().json()
                model = listed["data"][0]["id"]
            except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
                [reason, *_] = [*str(error).splitlines(), type(error).__name__]
                raise UnusableInput(
                    f"{roots[0]}/v1/models names no model ({reason}); check --url and "
                    "LEAPJSON_API_KEY, or name the model with --model"
                ) from None
        yield Servers(client, roots, most, str(model))
