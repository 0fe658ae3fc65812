"""The one table from errors to HTTP status codes, and the envelopes of OpenAI and Anthropic.

Their SDKs retry 408, 409, 429 and every 5xx twice, so only errors that a retry can cure have one of
those; errors that the caller has to fix are 400, 401, 404, 405 or 413.
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
    PromptTooLong,
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


class NotKept(RequestError):
    """Nothing is stored under the id in the path."""

    code = "not_found"


class StoreOff(RequestError):
    """The feature needs a store, and none is configured."""

    code = "store_off"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} are disabled on this server; its operator can enable them by setting "
            "LEAPJSON_DATA to a folder"
        )


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
    _Row(StoreOff, 404, "invalid_request_error", "not_found_error"),
    _Row(NotKept, 404, "invalid_request_error", "not_found_error"),
    _Row(BodyTooLarge, 413, "invalid_request_error", "request_too_large"),
    _Row(RequestError, 400, "invalid_request_error", "invalid_request_error"),
    _Row(QueueFull, 429, "rate_limit_error", "rate_limit_error"),
    _Row(Unavailable, 503, "server_error", "overloaded_error"),
    _Row(DeadlineExceeded, 504, "server_error", "timeout_error", "deadline_exceeded"),
    _Row(Exception, 500, "server_error", "api_error", "internal_error"),
)

_HTTP_MESSAGES = {
    404: "there is nothing at {method} {path}",
    405: "{path} does not accept {method}",
}

_ELSEWHERE = {
    ("embeddings", "embed", "pooling"): "has no embeddings: ask a server with an embedding model",
    ("rerank", "score"): "ranks no documents: ask a server with a reranking model",
    ("classify", "moderations"): "has no classifier, but a schema with an enum makes it one",
    ("audio",): "has no speech",
    ("images",): "generates no images; its chat completions accept images if the model does",
    ("generate", "completion", "infill"): "accepts plain prompts at POST /v1/completions",
    ("complete",): "has Anthropic's API at POST /v1/messages",
    ("assistants", "threads", "conversations"): "has previous_response_id in POST /v1/responses",
    ("vector_stores", "uploads"): "has files for batches only; put texts into the messages",
    ("fine_tuning",): "has no fine-tuning",
}
"""Hints for paths of other servers, by their first word behind ``/v1/`` or ``/v2/``."""

_OF_OLLAMA = {
    **dict.fromkeys(("tags", "show", "ps"), "GET /v1/models"),
    "version": "GET /version",
    "generate": "POST /v1/completions",
}
"""This server's routes for Ollama's below ``/api/``; the others are chat completions here."""


def _elsewhere(path: str) -> str:
    """A hint if ``path`` is one of another server's; "" if it is unknown."""
    first, *rest = path.strip("/").split("/")
    if first == "api" and rest and rest[0] not in ("embed", "embeddings"):
        here = _OF_OLLAMA.get(rest[0], "POST /v1/chat/completions")
        return f"does not support Ollama's API: use {here} and a client for OpenAI's API"
    if first in ("v1", "v2", "api") and rest:
        first = rest[0]
    return next((text for words, text in _ELSEWHERE.items() if first in words), "")


ANTHROPIC = "/v1/messages"
"""Prefix of the paths of Anthropic's API."""
ANTHROPIC_VERSION = "anthropic-version"
"""A header that all clients of that API send, also to paths that both APIs have."""

_UNPLANNED = "internal error; the server's log has the cause"

_LONGEST_TEXT = 2000
"""Maximum characters of a message, which may quote millions from a request."""


def _row(error: Exception) -> _Row:
    return next(row for row in _TABLE if isinstance(error, row.error))


def status_of(error: Exception) -> int:
    """The HTTP status of an error."""
    return _row(error).status


def envelope(error: Exception, path: str = "") -> dict[str, Any]:
    """``{"error": {...}}`` with all four keys. The text of an unexpected error is only logged.

    For a refused schema it also has the place of the error.

    At a ``path`` of Anthropic's API the error has that API's type and envelope.
    """
    row = _row(error)
    param = getattr(error, "param", None)
    anthropics = path.startswith(ANTHROPIC)
    text = str(error) if isinstance(error, LeapjsonError) else _UNPLANNED
    if anthropics and isinstance(error, PromptTooLong):
        text = error.anthropics
    content = error_object(
        _clipped(text),
        row.type,
        param=None if param is None else _clipped(param),
        code=row.code or getattr(error, "code", None),
    )
    content["error"].update(_place(error))
    if not anthropics:
        return content
    return {"type": "error", "error": {**content["error"], "type": row.anthropic}}


def _place(error: Exception) -> dict[str, Any]:
    """The place of an error in a schema, a grammar or a pattern, as far as it is known."""
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
    """An error in OpenAI's format."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def _clipped(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}... ({len(text)} characters)"


def error_response(error: Exception, path: str) -> JSONResponse:
    """The answer to a request for ``path`` that failed before its answer started.

    An unexpected error is logged.
    """
    if not isinstance(error, LeapjsonError):
        logger.error("a request failed", exc_info=error)
    headers = {}
    if isinstance(error, Unavailable):
        headers["retry-after"] = str(error.retry_after)
    if isinstance(error, InvalidApiKey):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, DeadlineExceeded):  # a retry by the SDKs would be as late again
        headers["x-should-retry"] = "false"
    if isinstance(error, LeapjsonError):
        drop_tracebacks(error)
    return JSONResponse(envelope(error, path), status_of(error), headers)


def drop_tracebacks(error: BaseException | None) -> None:
    """Drop the tracebacks of an error. Their frames hold the request, its automaton and the error:
    a cycle, which is never collected after ``gc.freeze`` (``load_paced``)."""
    while error is not None:
        error.__traceback__, error = None, error.__context__


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error of ``app``, including those of its router, with the envelope."""

    async def on_error(request: Request, error: Exception) -> JSONResponse:
        path = request.scope["path"]
        return error_response(error, ANTHROPIC if ANTHROPIC_VERSION in request.headers else path)

    async def on_http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        known = _HTTP_MESSAGES.get(error.status_code)
        # The routed path: ``request.url`` also depends on the Host header.
        path = _clipped(request.scope["path"])
        message = known.format(method=request.method, path=path) if known else str(error.detail)
        headers = error.headers
        if error.status_code == 405:
            headers = {"allow": ", ".join(_methods_of(request))}
        if error.status_code == 404 and (known := _elsewhere(path)):
            what = "This server generates text and JSON (POST /v1/chat/completions)"
            message = f"{message}. {what}; it {known}."
        content: dict[str, Any] = error_object(message)
        if path.startswith("/api/"):
            content = {"error": message}  # as Ollama's clients read it
        return JSONResponse(content, error.status_code, headers)

    app.add_exception_handler(LeapjsonError, on_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(Exception, on_error)


def _methods_of(request: Request) -> list[str]:
    """The methods that the request's path accepts in all of its routes, not only in the first."""
    taken = [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]
    return ["HEAD", *taken] if "GET" in taken else taken
