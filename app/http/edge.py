"""The edge: handling of every request before its route and after its answer.

    id, log, metrics > CORS > key, or page's host > admission > HEAD > routes

One ASGI middleware. It copies no body, and is bypassed by the body of a stream. ``ask`` sends a
request to the application without sockets, for lines of batches.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.core.errors import InvalidRequest
from app.core.request import ServiceTier
from app.http.config import ApiConfig
from app.http.endpoint import CLIPPED, SCHEMA_IN_PROMPT
from app.http.errors import error_response
from app.http.keys import METRICS_PATH, OPEN_PATHS, authenticate, tenant_of
from app.http.page import page_files
from app.http.reports import HEADER as RELAXED
from app.http.requests.wire import HEADER as IGNORED
from app.serving.admission import Admission, Ticket
from app.telemetry.watch import RequestWatch, Telemetry

EXPOSED = (
    *("x-request-id", "openai-processing-ms", "retry-after", "x-should-retry"),
    *(RELAXED, IGNORED, SCHEMA_IN_PROMPT, CLIPPED),
)
"""Headers that pages of another origin may read."""


class Edge:
    """The outermost ASGI middleware.

    It sets ``request.state.request_id``, with API keys ``tenant`` and ``owner``, for a POST
    ``ticket``, and ``send_body``, through which the body of a stream bypasses this layer.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: ApiConfig,
        admission: Admission,
        queued_paths: frozenset[str],
        telemetry: Telemetry | None = None,
    ) -> None:
        """``queued_paths``: paths whose POST requests take places in the queue."""
        self._app = app
        self._config = config
        self._admission = admission
        self._queued_paths = queued_paths
        self._telemetry = telemetry
        self._cors = _Cors(
            self._guarded,
            allow_origins=config.cors_origins,
            allow_methods=("GET", "HEAD", "POST", "DELETE"),
            allow_headers=("*",),
            allow_private_network=True,
            expose_headers=EXPOSED,
        )
        self._open_paths = OPEN_PATHS | ({METRICS_PATH} if config.metrics_public else set())
        if config.page is not None:
            self._open_paths |= page_files(config.page).keys()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        arrived, request_id = time.perf_counter(), secrets.token_hex(16)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        watch = None if self._telemetry is None else RequestWatch(self._telemetry, scope)

        async def receiving() -> Message:
            message = await receive()
            if watch is not None:
                watch.received(message)
            return message

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", b"req_" + request_id.encode()),
                    (b"openai-processing-ms", b"%d" % int((time.perf_counter() - arrived) * 1000)),
                ]
            if watch is not None:
                watch.sent(message)
            await send(message)

        # A layer costs 0.3 us for every token of every answer.
        keeps_bodies = watch is not None and watch.keeps_bodies
        state["send_body"] = sending if keeps_bodies else send
        error: BaseException | None = None
        try:
            # CORS around all refusals, so that pages can read them; a preflight needs no key.
            await self._cors(scope, receiving if keeps_bodies else receive, sending)
        except BaseException as caught:
            error = caught
            raise
        finally:
            del state["send_body"]  # refers to the scope through uvicorn: see ``drop_tracebacks``
            if watch is not None:
                watch.end(error)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the key and the room for an answer, then call the routes.

        Refused requests, most of an overload, are neither read nor routed. The status is 429 or 503
        if there is not room for one answer (if flex alone has room, after the body is read, which
        may ask for it); room for all answers is checked later. HEAD is answered as GET without the
        body (RFC 9110, section 9.3.2). An unhandled exception is a 500 in the envelope: Starlette's
        own comes without an id and CORS.
        """
        started, is_head = False, scope["method"] == "HEAD"
        ticket: Ticket | None = None

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            if is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            keys, tenant = self._config.api_keys, scope.get(TENANT)
            if not keys:
                self._check_page(scope)
            elif tenant is None and scope["path"] not in self._open_paths:
                tenant = authenticate(scope, keys)
            if keys and tenant is not None:
                scope["state"].update(tenant=tenant, owner=keys.owners.get(tenant, ""))
            if scope["method"] == "POST":
                tenant = tenant_of(scope)
                is_priority = tenant in self._config.priority_keys
                ticket = self._admission.enter(
                    tenant,
                    queues=scope["path"] in self._queued_paths,
                    batch=scope.get(BATCH, False),
                    highest=ServiceTier.PRIORITY if is_priority else ServiceTier.DEFAULT,
                )
                scope["state"]["ticket"] = ticket
            await self._app({**scope, "method": "GET"} if is_head else scope, receive, watched)
        except Exception as error:
            if started:
                raise
            await error_response(error, scope["path"])(scope, receive, send)
        finally:
            if ticket is not None:
                ticket.leave()

    def _check_page(self, scope: Scope) -> None:
        """Refuse web pages of other hosts if the request came to a loopback address.

        Their host name may now resolve to 127.0.0.1 (DNS rebinding, CVE-2024-28224): browsers then
        take this server for the page's own, and CORS does not protect it. Clients other than
        browsers send no ``Origin``, and pass.
        """
        origin, allowed = _foreign_origin(scope), self._config.cors_origins
        if origin is not None and origin not in allowed and "*" not in allowed:
            raise InvalidRequest(
                "web pages from other hosts may not use this server, because it has no API keys "
                "and listens on a loopback address; add the page's origin to "
                "LEAPJSON_CORS_ORIGINS, or set LEAPJSON_API_KEYS"
            )


class _Cors(CORSMiddleware):
    """Starlette's CORS, except that preflights are refused in JSON, like all other requests.

    Without allowed origins it only refuses preflights; the error names the setting.
    """

    async def simple_response(
        self, scope: Scope, receive: Receive, send: Send, request_headers: Headers
    ) -> None:
        if self.allow_origins:
            await super().simple_response(scope, receive, send, request_headers)
        else:
            await self.app(scope, receive, send)

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        error = InvalidRequest(
            f"{bytes(response.body).decode()}; LEAPJSON_CORS_ORIGINS lists the origins whose "
            "pages may use this server, with GET, HEAD, POST and DELETE"
        )
        refusal = error_response(error, path="")
        of_cors = {name: value for name, value in response.headers.items() if "content" not in name}
        refusal.headers.update(of_cors)
        return refusal


def _foreign_origin(scope: Scope) -> str | None:
    """The origin of another host's page whose request came to a loopback address, or None."""
    given = [value for name, value in scope["headers"] if name == b"origin"]
    server = scope.get("server")
    if not given or server is None or not _is_loopback(server[0]):
        return None
    origin: str = given[0].decode("latin-1")
    try:
        page = urlsplit(origin)
        foreign = not _is_loopback(page.hostname or "")
    except ValueError:
        return origin
    # Origins without a host (an extension, or "null") cannot be rebound: they are left to CORS.
    return origin if foreign and page.scheme in ("http", "https") else None


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


TENANT, BATCH = "leapjson.tenant", "leapjson.batch"
"""Our keys of a scope: its tenant, which replaces an API key, and whether it is a batch line."""


class InsideAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


async def ask(
    app: ASGIApp, path: str, body: bytes, *, tenant: str = "", batch: bool = True
) -> InsideAnswer:
    """The complete answer to ``POST path``. ``batch``: the request is of the lowest tier.

    ``tenant``: ``app.http.keys.tenant_of`` the request that created the batch. Cancelling aborts
    the answer. Errors are answers, as everywhere; an exception is a bug in the application.
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
