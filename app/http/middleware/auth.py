"""API keys: who may ask, found out before anything else of a request is looked at."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from app.core.errors import LeapjsonError
from app.http.errors import InvalidApiKey, error_response
from app.http.middleware.tenants import set_key

OPEN_PATHS = frozenset({"/health", "/ready"})
"""What an orchestrator asks, which has no key."""
METRICS_PATH = "/metrics"
_HEADERS = (b"authorization", b"x-api-key")


class ApiKeys:
    """The keys that are taken. Holds their digests alone, so that no log or repr can show one."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = list(dict.fromkeys(_digest(key.encode()) for key in keys))

    def __len__(self) -> int:
        return len(self._digests)

    def number(self, offered: bytes) -> int | None:
        """Which of the keys it is, from 1, or None. Takes as long however close it is to one."""
        digest = _digest(offered)
        found = 0
        for number, each in enumerate(self._digests, start=1):  # all of them, for the same reason
            found += number * hmac.compare_digest(digest, each)
        return found or None


def read_api_keys(keys: Iterable[str], file: str | None) -> ApiKeys:
    """``keys`` and those of ``file``: one on each line, ``#`` starts a comment line.

    Raises ``LeapjsonError`` for a file that cannot be read or has no key, for it would leave the
    server open, and for a key that no header can carry. It never quotes a key.
    """
    found = [(f"API key {number}", key) for number, key in enumerate(keys, start=1)]
    if file is not None:
        found += _from_file(file)
    for source, key in found:
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise LeapjsonError(
                f"{source} cannot be sent in a header: keys are printable ASCII without blanks"
            )
    return ApiKeys(key for _, key in found)


def _from_file(file: str) -> list[tuple[str, str]]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise LeapjsonError(f"the file of API keys {file} cannot be read: {reason}") from None
    lines = [line.strip() for line in text.splitlines()]
    found = [
        (f"the API key in line {number} of {file}", line)
        for number, line in enumerate(lines, start=1)
        if line and not line.startswith("#")
    ]
    if not found:
        raise LeapjsonError(f"the file of API keys {file} has no key in it")
    return found


class KeyAuth:
    """ASGI middleware: 401 without ``Authorization: Bearer KEY`` (RFC 6750, section 2.1), or
    ``x-api-key: KEY``, as Anthropic's clients send it.

    The body of what is refused is not read. Paths that do not exist need a key like the others,
    so that nobody without one learns what there is. Further in, only the key's number is known.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys, open_paths: frozenset[str]) -> None:
        self._app = app
        self._keys = keys
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._open_paths:
            await self._app(scope, receive, send)
        elif (number := self._key(scope)) is not None:
            set_key(scope, number)
            await self._app(scope, receive, send)
        else:
            offered = any(name in _HEADERS for name, _ in scope["headers"])
            await error_response(_refusal(offered), scope["path"])(scope, receive, send)

    def _key(self, scope: Scope) -> int | None:
        given = [(name, value) for name, value in scope["headers"] if name in _HEADERS]
        if len(given) != 1:
            return None
        [(name, value)] = given
        if name == b"x-api-key":
            return self._keys.number(value.strip())
        scheme, _, key = value.partition(b" ")
        return self._keys.number(key.strip()) if scheme.lower() == b"bearer" else None


def _refusal(offered: bool) -> InvalidApiKey:
    if offered:
        return InvalidApiKey("incorrect API key; send one of this server's keys as: Bearer KEY")
    return InvalidApiKey("no API key was sent; send the header Authorization: Bearer KEY")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
