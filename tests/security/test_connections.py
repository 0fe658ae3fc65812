"""Input that the server handles before it checks an API key: heads, hosts, origins."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest
import uvicorn

from app.http.config import ApiConfig
from app.http.connection import BoundedConnection, ConnectionLimits
from app.http.keys import ApiKeys
from tests.http.harness import CHAT, CONFIG, application, chat, listening
from tests.serving.fakes import Bench

KEYED = replace(CONFIG, api_keys=ApiKeys(["a-key"]))
HEAD_BYTES = ConnectionLimits().head_bytes
READ_AT_ONCE = 1 << 18
"""Maximum bytes that asyncio passes to a protocol in one call."""


@asynccontextmanager
async def served(config: ApiConfig = KEYED) -> AsyncIterator[int]:
    """The port of a real server that reads HTTP with ``BoundedConnection``."""
    bench = Bench()
    async with bench.running():
        settings = uvicorn.Config(
            application(bench, config), port=0, log_config=None, ws="none", http=BoundedConnection
        )
        server = uvicorn.Server(settings)
        settings.load()
        server.lifespan = settings.lifespan_class(settings)
        await server.startup()
        try:
            yield server.servers[0].sockets[0].getsockname()[1]
        finally:
            server.force_exit = True
            await server.shutdown()


async def response_to(port: int, *parts: bytes) -> bytes:
    """Send ``parts``; returns all bytes from the server until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):  # the server may close before all parts are sent
            for part in parts:
                writer.write(part)
                await writer.drain()
        async with asyncio.timeout(300):
            answer = b""
            with contextlib.suppress(ConnectionError):
                while part := await reader.read(1 << 16):
                    answer += part
            return answer
    finally:
        writer.close()


BEGINNING = b"GET /health HTTP/1.1\r\nhost: x\r\n"
MUCH = HEAD_BYTES + 2 * READ_AT_ONCE


@pytest.mark.parametrize(
    "parts",
    [
        [BEGINNING + b"a: ", b"a" * MUCH],
        [BEGINNING, b"a: b\r\n" * (MUCH // 6)],
        [b"GET /", b"a" * MUCH],
        [
            b"POST /tokenize HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
            b"1\r\na\r\n0\r\na: " + b"a" * MUCH,
        ],
    ],
    ids=["one header", "many headers", "a long path", "trailers"],
)
async def test_a_head_without_an_end_is_not_gathered(parts: list[bytes]) -> None:
    async with served() as port:
        assert b"200 OK" not in await response_to(port, *parts)
        assert b"200 OK" in await response_to(port, BEGINNING + b"connection: close\r\n\r\n")


@pytest.mark.parametrize(
    "host", [b"a/health?", b"x/ready#", b"x/?x=", b"[", b"", b"x@y/health", b"x\t"]
)
async def test_no_host_header_makes_a_path_an_open_one(host: bytes) -> None:
    async with served() as port:
        for path in (b"/v1/models", b"//health", b"/health/../v1/models", b"/%68ealth/"):
            request = b"GET %b HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n\r\n" % (path, host)
            status = (await response_to(port, request)).split(b"\r\n")[0]
            assert status in (b"HTTP/1.1 401 Unauthorized", b"HTTP/1.1 400 Bad Request")


@pytest.mark.parametrize("host", [b"evil.example", b"a/?x=", b"["])
async def test_an_unknown_path_is_quoted_as_requested(host: bytes) -> None:
    async with served(CONFIG) as port:
        request = b"GET /nowhere HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n\r\n" % host
        assert b"there is nothing at GET /nowhere" in await response_to(port, request)


EVIL = "http://evil.example:8000"


@asynccontextmanager
async def browser(config: ApiConfig = CONFIG) -> AsyncIterator[tuple[Bench, httpx.AsyncClient]]:
    """A client like a browser on a page whose host name now resolves to this machine."""
    bench = Bench()
    async with (
        bench.running(),
        listening(application(bench, config)) as url,
        httpx.AsyncClient(
            base_url=url, headers={"host": "evil.example:8000"}, timeout=300
        ) as client,
    ):
        yield bench, client


async def test_a_page_whose_name_was_led_to_this_machine_is_refused() -> None:
    """DNS rebinding: no CORS preflight, as it is the page's own origin (CVE-2024-28224)."""
    async with browser() as (bench, client):
        refused = await client.post(CHAT, json=chat(), headers={"origin": EVIL})
        assert refused.status_code == 400
        assert "LEAPJSON_CORS_ORIGINS" in refused.json()["error"]["message"]
        assert bench.engine.added == []
        for origin in ("http://127.0.0.1:8000", "http://localhost:3000", "http://[::1]"):
            answer = await client.post(CHAT, json=chat(), headers={"origin": origin})
            assert answer.status_code == 200
        assert (await client.post(CHAT, json=chat())).status_code == 200  # no Origin: not a page


@pytest.mark.parametrize("allowed", [(EVIL,), ("*",)])
async def test_pages_that_are_named_may_ask_and_send_no_credentials(
    allowed: tuple[str, ...],
) -> None:
    async with browser(replace(CONFIG, cors_origins=allowed)) as (_, client):
        answer = await client.post(CHAT, json=chat(), headers={"origin": EVIL})
        assert answer.status_code == 200
        assert "access-control-allow-credentials" not in answer.headers


async def test_with_keys_it_is_the_key_that_counts() -> None:
    async with browser(KEYED) as (_, client):
        headers = {"origin": EVIL}
        assert (await client.post(CHAT, json=chat(), headers=headers)).status_code == 401
        headers["authorization"] = "Bearer a-key"
        assert (await client.post(CHAT, json=chat(), headers=headers)).status_code == 200
