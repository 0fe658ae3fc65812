"""An HTTP client on plain sockets, for faults that HTTP libraries prevent; 127.0.0.1 only."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

CHAT = "/v1/chat/completions"
MODEL = "leapjson-demo"
LINE_LIMIT = 1 << 24
"""Maximum bytes of an answer's line; log-probabilities make long ones."""


class BrokenAnswerError(Exception):
    """The connection ended before the answer did."""


def chat(text: str, **fields: Any) -> dict[str, Any]:
    """The body of a chat completion."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}


def json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def regex(pattern: str) -> dict[str, Any]:
    return {"type": "regex", "regex": pattern}


def request(path: str, body: Mapping[str, Any] | None = None, *, keep: bool = False) -> bytes:
    """A request's bytes: POST with a body, GET without."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
        "host: 127.0.0.1",
        *(() if keep else ("connection: close",)),
        *(() if body is None else (f"content-length: {len(content)}",)),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + content


@dataclass(slots=True)
class Exchange:
    """A connection on which a request was sent, completely or in part."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)

    async def head(self) -> int:
        """Read the head and return the status. Raises ``BrokenAnswerError``."""
        try:
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except (asyncio.IncompleteReadError, OSError) as error:
            raise BrokenAnswerError("no answer") from error
        self.status = int(lines[0].split(" ")[1])
        pairs = (line.partition(":") for line in lines[1:] if line)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}
        return self.status

    async def body(self) -> bytes:
        try:
            if self.headers.get("transfer-encoding") == "chunked":
                return b"".join([piece async for piece in self._chunks()])
            return await self.reader.readexactly(int(self.headers.get("content-length", 0)))
        except (asyncio.IncompleteReadError, OSError) as error:
            raise BrokenAnswerError("the body is incomplete") from error

    async def events(self) -> AsyncIterator[str]:
        """The data of server-sent events. Raises ``BrokenAnswerError`` if ``[DONE]`` is missing."""
        try:
            while line := await self.reader.readline():
                if line == b"data: [DONE]\n":
                    return
                if line.startswith(b"data: "):
                    yield line[6:].decode()
        except OSError as error:
            raise BrokenAnswerError("the stream was interrupted") from error
        raise BrokenAnswerError("the stream ended without [DONE]")

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)

    def abort(self) -> None:
        """Close at once; the server sees a reset if there is unread data."""
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


async def connect(url: str, *, receive_buffer: int | None = None) -> Exchange:
    """A connection to the server; ``receive_buffer``: size of the kernel's receive buffer."""
    address = urlsplit(url)
    assert address.hostname == "127.0.0.1", url
    if receive_buffer is None:
        pair = await asyncio.open_connection(address.hostname, address.port, limit=LINE_LIMIT)
        return Exchange(*pair)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (address.hostname, address.port))
    # asyncio has a buffer, too: it stops reading at twice its limit.
    return Exchange(*await asyncio.open_connection(sock=client, limit=receive_buffer))


async def send(url: str, body: Mapping[str, Any] | None, *, path: str = CHAT) -> Exchange:
    exchange = await connect(url)
    exchange.writer.write(request(path, body))
    return exchange


async def ask(url: str, body: Mapping[str, Any] | None, *, path: str = CHAT) -> tuple[int, bytes]:
    """Status and body of a complete answer. Raises ``BrokenAnswerError`` and ``OSError``."""
    exchange = await send(url, body, path=path)
    try:
        return await exchange.head(), await exchange.body()
    finally:
        exchange.abort()


async def content(url: str, body: Mapping[str, Any]) -> str:
    """The text of the answer's only choice; raises ``AssertionError`` unless the status is 200."""
    status, answer = await ask(url, body)
    assert status == 200, (status, answer)
    return str(json.loads(answer)["choices"][0]["message"]["content"])


async def streamed(url: str, body: Mapping[str, Any], times: list[float] | None = None) -> str:
    """The same from a stream; appends the arrival time of each event with text to ``times``."""
    exchange = await send(url, {**body, "stream": True})
    try:
        status = await exchange.head()
        if status != 200:
            raise AssertionError((status, await exchange.body()))
        pieces: list[str] = []
        async for data in exchange.events():
            event = json.loads(data)
            if "error" in event:
                raise AssertionError(event)
            text = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
            if text and times is not None:
                times.append(time.perf_counter())
            pieces.append(text)
        return "".join(pieces)
    finally:
        exchange.abort()


async def outcome(
    url: str, body: Mapping[str, Any] | None, seconds: float, path: str = CHAT
) -> str:
    """The status of a complete answer, or an error message if there is none after ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            return str((await ask(url, body, path=path))[0])
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except (BrokenAnswerError, OSError) as error:
        return f"{type(error).__name__}: {error}"
