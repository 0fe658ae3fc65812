"""A request's body: read up to a limit, parsed up to a depth."""

from __future__ import annotations

import asyncio
import codecs
import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request
from pydantic_core import from_json

from app.core.errors import InvalidRequest
from app.http.errors import BodyTooLarge
from app.http.requests.wire import refusal

T = TypeVar("T")

LARGE_BODY = 1 << 15
"""Bytes from which parsing moves off the event loop: so many may take 10 ms."""

MOST_CONTAINERS = 100_000
"""Arrays and objects in a body: each costs the parser and the garbage collector some time."""

MOST_MEMBERS = 200_000
"""Members of all objects in a body."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Also one without an end: to look for it again from each quote inside would never be done."""


async def read_body(
    request: Request,
    *,
    keep: Callable[[int], None],
    admit: Callable[[bytearray], None],
    max_bytes: int,
    max_nesting: int,
) -> tuple[dict[str, Any], int]:
    """The body, a JSON object (RFC 8259: no NaN, no lone surrogates), and its size in bytes.

    ``keep`` is called with the size of each chunk before it is kept, ``admit`` with the body before
    it is parsed; what they raise is raised. Raises ``BodyTooLarge`` as soon as the limit is passed,
    ``InvalidRequest`` for what is no such object.
    """
    # Forms, which any web page may send without a preflight (Fetch standard, CORS), are refused:
    # otherwise a server on a user's machine would answer every page that they visit.
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if "origin" in request.headers and media_type != "application/json":
        raise InvalidRequest("web pages must send the header content-type: application/json")
    data = await _read(request, keep, max_bytes)
    admit(data)
    size = len(data)
    return await in_thread_if_large(size, lambda: parse_json_object(data, max_nesting)), size


async def in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """What ``work`` makes of a body of ``size`` bytes."""
    return work() if size < LARGE_BODY else await asyncio.to_thread(work)


def parse_json_object(data: bytes | bytearray, max_nesting: int) -> dict[str, Any]:
    check_size(data)
    try:  # behind a byte order mark, which RFC 8259 lets a parser pass over
        value = from_json(data.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        reason = "nested too deeply" if "recursion limit" in str(error) else str(error)
        raise InvalidRequest(f"the body could not be parsed as JSON: {reason}") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    _check(value, max_nesting)
    return value


def check_size(data: bytes | bytearray, param: str | None = None) -> None:
    """Raises ``InvalidRequest`` for JSON that would take long to parse, and all after it.

    ``param`` is the field that the JSON is the text of; by default it is the body.
    """
    if _brackets(data) <= MOST_CONTAINERS and data.count(b":") <= MOST_MEMBERS:
        return
    bare = _STRING.sub(b"", data)
    for found, limit, what in (
        (_brackets(bare), MOST_CONTAINERS, "arrays and objects"),
        (bare.count(b":"), MOST_MEMBERS, "members of objects"),
    ):
        if found > limit:
            raise InvalidRequest(
                f"{param or 'the body'} has more {what} than the limit of {limit}", param=param
            )


def _brackets(data: bytes | bytearray) -> int:
    return data.count(b"[") + data.count(b"{")


async def _read(request: Request, keep: Callable[[int], None], max_bytes: int) -> bytearray:
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise InvalidRequest(f"the content-encoding {coding!r} is not supported; send plain JSON")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    data = bytearray()
    async for chunk in request.stream():
        if len(data) + len(chunk) > max_bytes:
            raise _too_large(max_bytes)
        keep(len(chunk))
        data += chunk
    return data


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request body is larger than the limit of {max_bytes} bytes")


def _check(body: dict[str, Any], max_nesting: int) -> None:
    """Check depth and numbers level by level: deep input would break a recursion."""
    level: list[Any] = [body]
    depth = 0
    while level:
        depth += 1
        if depth > max_nesting:
            raise InvalidRequest(f"the body is nested deeper than the limit of {max_nesting}")
        children: list[Any] = []
        for value in level:
            children.extend(value.values() if isinstance(value, dict) else value)
        if any(isinstance(child, float) and not math.isfinite(child) for child in children):
            raise InvalidRequest("the body has a number that is too large")
        level = [child for child in children if isinstance(child, (dict, list))]


def parsed(text: str, param: str) -> Any:
    """The value of JSON that is sent as text, in the field ``param``. Raises ``InvalidRequest``."""
    check_size(text.encode(), param)
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise refusal(param, f"it could not be parsed as JSON: {error}") from None
