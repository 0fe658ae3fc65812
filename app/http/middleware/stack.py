"""The ASGI middlewares around every answer, and their order.

Those that stand here write headers, answer HEAD and the errors that nothing else has answered.
They copy no body and wrap no task; what a stream sends after its head passes none of them.
"""

from __future__ import annotations

import logging
import secrets
import time

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.config import ApiConfig
from app.http.errors import error_response
from app.http.middleware.admission import AdmissionMiddleware
from app.http.middleware.auth import METRICS_PATH, OPEN_PATHS, KeyAuth
from app.http.middleware.origins import CrossOrigin, LocalPages
from app.http.page import page_files
from app.http.relaxed import HEADER as RELAXED
from app.http.requests.ignored import HEADER as IGNORED
from app.serving.admission import Admission

logger = logging.getLogger(__name__)

TOLD = "x-leapjson-schema-in-prompt"
CLIPPED = "x-leapjson-max-tokens"

EXPOSED = (
    *("x-request-id", "openai-processing-ms", "retry-after", "x-should-retry"),
    *(RELAXED, IGNORED, TOLD, CLIPPED),
)
"""Headers that pages of another origin may read."""


def install_middlewares(
    app: FastAPI, config: ApiConfig, admission: Admission, queued_paths: frozenset[str]
) -> None:
    """Put around ``app``: headers, CORS, unplanned errors, keys or pages, admission, HEAD.

    CORS is outside of whatever may refuse, so that a page sees why it was refused; a preflight
    carries no key and needs none. A POST to one of ``queued_paths`` takes places in the queue.
    """
    app.add_middleware(HeadRequests)  # the one that is added last is the outermost
    app.add_middleware(AdmissionMiddleware, admission=admission, queued_paths=queued_paths)
    if config.api_keys:
        public = OPEN_PATHS | ({METRICS_PATH} if config.metrics_public else set())
        if config.page is not None:
            public |= page_files(config.page).keys()
        app.add_middleware(KeyAuth, keys=config.api_keys, open_paths=public)
    else:
        app.add_middleware(LocalPages, allowed=config.cors_origins)
    app.add_middleware(UnplannedErrors)
    app.add_middleware(
        CrossOrigin,
        allow_origins=config.cors_origins,
        allow_methods=("GET", "HEAD", "POST", "DELETE"),
        allow_headers=("*",),
        allow_private_network=True,
        expose_headers=EXPOSED,
    )
    app.add_middleware(ResponseHeaders)


class ResponseHeaders:
    """``x-request-id``, made here, and ``openai-processing-ms``: until the answer starts.

    Inside the id is ``request.state.request_id``; ``body_channel`` is the way past all layers
    inside of this one, for the body of an answer whose head has been sent.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(16)
        arrived = time.perf_counter()
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        state.setdefault("send_body", send)  # a layer around this one may have said so, too

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                elapsed = int((time.perf_counter() - arrived) * 1000)
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", b"req_" + request_id.encode()),
                    (b"openai-processing-ms", b"%d" % elapsed),
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def body_channel(scope: Scope, send: Send) -> Send:
    """Where to send a stream's body: the layers between look at the head alone.

    Each costs 0.3 us, for every token of every answer. Without ``ResponseHeaders`` it is ``send``.
    """
    channel: Send = scope.get("state", {}).get("send_body", send)
    return channel


class UnplannedErrors:
    """An exception that nothing has answered is a 500 in the envelope.

    Starlette answers it, too, but outside of all other middlewares: without an id and CORS.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if started:
                raise
            logger.error("a request failed", exc_info=error)
            await error_response(error, scope["path"])(scope, receive, send)


class HeadRequests:
    """HEAD is answered as GET without the body (RFC 9110, section 9.3.2), on every path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, send_without_body)
