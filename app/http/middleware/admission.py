"""Refused before it is read, and before it is routed: what an overload has most of."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from app.core.errors import LeapjsonError
from app.http.errors import error_response
from app.http.middleware.tenants import tenant_of
from app.serving.admission import Admission


class AdmissionMiddleware:
    """ASGI middleware: each POST has a ticket, ``request.state.ticket``, until its call ends.

    Its place is inside of what knows the tenant, and outside of the routes: with many refusals,
    finding their routes would take the time from the requests that are answered. Where not one
    more answer has room the answer is 429 or 503; whether a request that passes has room for all
    of its answers is seen later.
    """

    def __init__(self, app: ASGIApp, admission: Admission, queued_paths: frozenset[str]) -> None:
        """``queued_paths``: where a POST takes places in the queue."""
        self._app = app
        self._admission = admission
        self._queued_paths = queued_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        queues = scope["path"] in self._queued_paths
        try:
            ticket = self._admission.enter(tenant_of(scope), queues=queues)
        except LeapjsonError as error:
            await error_response(error, scope["path"])(scope, receive, send)
            return
        scope.setdefault("state", {})["ticket"] = ticket
        try:
            await self._app(scope, receive, send)
        finally:
            ticket.leave()
