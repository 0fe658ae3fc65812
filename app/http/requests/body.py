"""A request's body: read up to a limit, parsed up to a depth."""

from __future__ import annotations

import codecs
import functools
import math
import re
from typing import Any

from fastapi import Request
from pydantic_core import from_json

from app.core.errors import InvalidRequest
from app.http.errors import BodyTooLarge
from app.http.requests.wire import invalid
from app.serving.admission import Ticket
from app.serving.tasks import in_thread_if_large

MOST_CONTAINERS = 100_000
"""Maximum arrays and objects in a body: each costs the parser and the garbage collector time."""

MOST_MEMBERS = 200_000
"""Maximum members of all objects in a body."""

_CONTAINERS = {dict, list}
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A JSON string, also one without an end: else each quote in it would start a new search."""


async def read_body(
    request: Request, ticket: Ticket, max_bytes: int, max_nesting: int
) -> tuple[dict[str, Any], int]:
    """The body, a JSON object (RFC 8259: no NaN, no lone surrogates), and its size in bytes.

    Raises ``BodyTooLarge`` as soon as the limit is exceeded, ``InvalidRequest`` if it is not such
    an object, and ``QueueFull`` if ``ticket`` finds no room for it.
    """
    # Forms, which any web page may send without a preflight (Fetch standard, CORS), are refused:
    # otherwise a server on a user's machine would answer every page that they visit.
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if "origin" in request.headers and media_type != "application/json":
        raise InvalidRequest("web pages must send the header content-type: application/json")
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise InvalidRequest(f"the content-encoding {coding!r} is not supported; send plain JSON")
    too_large = BodyTooLarge(f"the request body is larger than the limit of {max_bytes} bytes")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise too_large
    data = bytearray()
    async for chunk in request.stream():
        if len(data) + len(chunk) > max_bytes:
            raise too_large
        ticket.hold_body(len(chunk))
        data += chunk
    ticket.admit(data)
    size = len(data)
    parse = functools.partial(parse_json_object, data, max_nesting)
    return await in_thread_if_large(size, ticket.tenant, parse), size


def parse_json_object(data: bytes | bytearray, max_nesting: int) -> dict[str, Any]:
    check_size(data)
    try:  # behind a byte order mark, which RFC 8259 lets a parser pass over
        body = from_json(data.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        reason = "nested too deeply" if "recursion limit" in str(error) else str(error)
        raise InvalidRequest(f"the body could not be parsed as JSON: {reason}") from None
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object")
    # Depth and numbers are checked level by level: deep input would break a recursion.
    level: list[Any] = [body]
    depth = 0
    while level:
        depth += 1
        if depth > max_nesting:
            raise InvalidRequest(f"the body is nested deeper than the limit of {max_nesting}")
        children: list[Any] = []
        for value in level:
            children.extend(value.values() if isinstance(value, dict) else value)
        kinds = set(map(type, children))  # most levels of a large body have one
        if float in kinds and not all(
            math.isfinite(child) for child in children if type(child) is float
        ):
            raise InvalidRequest("the body has a number that is too large")
        if not kinds <= _CONTAINERS:
            inside = not kinds.isdisjoint(_CONTAINERS)
            children = [each for each in children if type(each) in _CONTAINERS] if inside else []
        level = children
    return body


def check_size(data: bytes | bytearray, param: str | None = None) -> None:
    """Raises ``InvalidRequest`` for JSON that would take too long to parse and process.

    ``param`` is the field whose text is the JSON; by default it is the body.
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


def parsed(text: str, param: str) -> Any:
    """The value of JSON that is sent as text, in the field ``param``. Raises ``InvalidRequest``."""
    check_size(text.encode(), param)
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise invalid(param, f"it could not be parsed as JSON: {error}") from None
