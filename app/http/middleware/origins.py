"""Which web pages may ask a server that asks for no key."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.core.errors import InvalidRequest
from app.http.errors import error_response


class CrossOrigin(CORSMiddleware):
    """CORS as Starlette does it, but that a preflight is refused in JSON, like everything else.

    Without allowed origins it does nothing but that: the refusal names the setting.
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
            f"{bytes(response.body).decode()}; LEAPJSON_CORS_ORIGINS names the origins whose pages "
            "may ask this server, with GET, HEAD, POST and DELETE"
        )
        refusal = error_response(error, path="")
        of_cors = {name: value for name, value in response.headers.items() if "content" not in name}
        refusal.headers.update(of_cors)
        return refusal


class LocalPages:
    """ASGI middleware: on a loopback address, pages of other hosts than this one are refused.

    A name of theirs may lead to 127.0.0.1 by now (DNS rebinding, CVE-2024-28224): then browsers
    take this server for the page's own, and CORS protects nothing. Clients that are no browsers
    send no ``Origin``, and pass.
    """

    def __init__(self, app: ASGIApp, allowed: tuple[str, ...]) -> None:
        """``allowed``: origins that may ask all the same; ``*`` is every origin."""
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _foreign_origin(scope) if scope["type"] == "http" else None
        if origin is None or origin in self._allowed or "*" in self._allowed:
            await self._app(scope, receive, send)
            return
        error = InvalidRequest(
            "pages of other hosts may not use this server, which has no API keys and listens on "
            "a loopback address; name the page's origin in LEAPJSON_CORS_ORIGINS, or set "
            "LEAPJSON_API_KEYS"
        )
        await error_response(error, scope["path"])(scope, receive, send)


def _foreign_origin(scope: Scope) -> str | None:
    """The origin of a page of another host that asks on a loopback address; else None."""
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
    # No name leads to a page without a host (of an extension, or "null"): those stay CORS's.
    return origin if foreign and page.scheme in ("http", "https") else None


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
