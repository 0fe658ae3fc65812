"""The one table from errors to HTTP status codes, and the envelopes of OpenAI and Anthropic.

Their SDKs retry 408, 409, 429 and every 5xx twice, so only what a retry can cure has one of those;
everything the caller has to change is 400, 401, 404, 405 or 413.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.core.errors import (
    ConstraintError,
    DeadlineExceeded,
    LeapjsonError,
    QueueFull,
    RequestError,
    Unavailable,
    UnknownModel,
)

logger = logging.getLogger(__name__)


class BodyTooLarge(RequestError):
    """The request body is over the server's limit; raised before it is read to its end."""

    code = "body_too_large"


class InvalidApiKey(RequestError):
    """The request has no API key that this server takes."""

    code = "invalid_api_key"


@dataclass(frozen=True, slots=True)
class _Row:
    error: type[Exception]
    status: int
    type: str
    anthropic: str
    """The type in Anthropic's envelope."""
    code: str | None = None
    """None: the error's own code, if it has one."""


_TABLE = (  # the first row whose error matches
    _Row(InvalidApiKey, 401, "invalid_request_error", "authentication_error"),
    _Row(UnknownModel, 404, "invalid_request_error", "not_found_error"),
    _Row(BodyTooLarge, 413, "invalid_request_error", "request_too_large"),
    _Row(RequestError, 400, "invalid_request_error", "invalid_request_error"),
    _Row(QueueFull, 429, "rate_limit_error", "rate_limit_error"),
    _Row(Unavailable, 503, "server_error", "overloaded_error"),
    _Row(DeadlineExceeded, 504, "server_error", "timeout_error", "deadline_exceeded"),
    _Row(Exception, 500, "server_error", "api_error", "internal_error"),
)

_HTTP_MESSAGES = {
    404: "there is nothing at {method} {path}",
    405: "{path} does not take {method}",
}

ANTHROPIC = "/v1/messages"
"""Paths that begin so are Anthropic's."""

_UNPLANNED = "an internal error; the server's log has it"

_LONGEST_TEXT = 2000
"""Characters of a message: what it quotes of a request may have millions."""


def _row(error: Exception) -> _Row:
    return next(row for row in _TABLE if isinstance(error, row.error))


def status_of(error: Exception) -> int:
    """The HTTP status of an error."""
    return _row(error).status


def envelope(error: Exception, path: str = "") -> dict[str, Any]:
    """``{"error": {...}}`` with all four keys. An unplanned error's text stays in the log.

    That of a refused schema has its place, too.

    At a ``path`` of Anthropic's API the type is one of its own, and another stands around it.
    """
    row = _row(error)
    param = getattr(error, "param", None)
    told = error_object(
        _clipped(str(error)) if isinstance(error, LeapjsonError) else _UNPLANNED,
        row.type,
        param=None if param is None else _clipped(param),
        code=row.code or getattr(error, "code", None),
    )
    told["error"].update(_place(error))
    if not path.startswith(ANTHROPIC):
        return told
    return {"type": "error", "error": {**told["error"], "type": row.anthropic}}


def _place(error: Exception) -> dict[str, Any]:
    """Where in a schema, a grammar or a pattern the error is, as far as that is known."""
    if not isinstance(error, ConstraintError):
        return {}
    place = {name: getattr(error, name) for name in ("line", "column", "position")}
    found = {name: value for name, value in place.items() if value is not None}
    pointer = getattr(error, "pointer", None)
    if pointer is not None and (pointer.startswith("/") or not (pointer or found)):
        found["pointer"] = _clipped(pointer)
    return found


def error_object(
    message: str,
    type: str = "invalid_request_error",
    *,
    param: str | None = None,
    code: str | None = None,
) -> dict[str, Any]:
    """An answer that says what is wrong, in OpenAI's form."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def _clipped(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}... ({len(text)} characters)"


def error_response(error: Exception, path: str) -> JSONResponse:
    """The answer to a request for ``path`` that failed before anything of it was answered."""
    headers = {}
    if isinstance(error, Unavailable):
        headers["retry-after"] = str(error.retry_after)
    if isinstance(error, InvalidApiKey):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, DeadlineExceeded):  # the SDKs would ask again, and be as late again
        headers["x-should-retry"] = "false"
    return JSONResponse(envelope(error, path), status_of(error), headers)


def install_error_handlers(app: FastAPI) -> None:
    """Give every error of ``app``, its router's own included, the envelope."""

    async def on_error(request: Request, error: Exception) -> JSONResponse:
        if not isinstance(error, LeapjsonError):
            logger.error("a request failed", exc_info=error)
        return error_response(error, request.scope["path"])

    async def on_http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        known = _HTTP_MESSAGES.get(error.status_code)
        # The path as it was routed: ``request.url`` is put together with what Host says.
        path = _clipped(request.scope["path"])
        message = known.format(method=request.method, path=path) if known else str(error.detail)
        headers = error.headers
        if error.status_code == 405:
            headers = {"allow": ", ".join(_methods_of(request))}
        return JSONResponse(error_object(message), error.status_code, headers)

    app.add_exception_handler(LeapjsonError, on_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(Exception, on_error)


def _methods_of(request: Request) -> list[str]:
    """The methods that the request's path takes: of all its routes, not of the first alone."""
    taken = [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]
    return ["HEAD", *taken] if "GET" in taken else taken
