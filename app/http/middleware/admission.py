"""Refused before it is read, and before it is routed: what an overload has most of."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from app.core.errors import LeapjsonError
from app.http.errors import error_response
from app.http.middleware.tenants import tenant_of
from app.serving.service import GenerationService


class RoomFirst:
    """ASGI middleware: 429 or 503 where not one answer more has room for who asks.

    Its place is inside of what knows who asks, and outside of the routes: those that are refused
    would take the time from those that are answered, most of it for finding the route and its
    arguments. Whether a request that passes has room for all of its answers is seen later.
    """

    def __init__(self, app: ASGIApp, service: GenerationService, paths: frozenset[str]) -> None:
        """``paths``: where a POST takes room."""
        self._app = app
        self._service = service
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in self._paths:
            try:
                self._service.expect_room(tenant_of(scope))
            except LeapjsonError as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)
