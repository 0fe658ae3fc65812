"""Requests that this process makes of its own application, without sockets: lines of batches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Scope

TENANT, BATCH = "leapjson.tenant", "leapjson.batch"
"""Keys of a scope that no server sets: the tenant, who needs no API key, and whether it is a line
of a batch."""


@dataclass(frozen=True, slots=True)
class InsideAnswer:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


async def ask(
    app: ASGIApp, path: str, body: bytes, *, tenant: str = "", batch: bool = True
) -> InsideAnswer:
    """The answer to ``POST path``, read whole. ``batch``: it is of the lowest tier.

    ``tenant`` is whom it counts for, as ``app.http.keys.tenant_of`` said of the request that
    created the batch. Cancelling aborts the answer. Errors are answers, as everywhere; raises what
    the application raises, which is a fault of ours.
    """
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ],
        "client": (tenant, 0),
        "server": None,
        TENANT: tenant,
        BATCH: batch,
    }
    requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    status, headers, parts = 0, dict[str, str](), list[bytes]()

    async def receive() -> Message:
        if not requests:
            await asyncio.get_running_loop().create_future()  # nobody disconnects
        return requests.pop()

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            headers.update(
                (name.decode("latin-1").lower(), value.decode("latin-1"))
                for name, value in message.get("headers", ())
            )
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return InsideAnswer(status, headers, b"".join(parts))
