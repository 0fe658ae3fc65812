"""API keys, and the tenants that take turns: a key by its number, or a client's address."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from starlette.types import Scope

from app.core.errors import LeapjsonError
from app.http.errors import InvalidApiKey

OPEN_PATHS = frozenset({"/health", "/ready"})
"""Paths of probes, which have no key."""
METRICS_PATH = "/metrics"
_HEADERS = (b"authorization", b"x-api-key")
_NETWORK = 64
"""Prefix length of IPv6 networks; hosts choose the other bits (RFC 4291, 2.5.4)."""


class ApiKeys:
    """The accepted keys. Holds only their digests, so that no log or repr can show one."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = list(dict.fromkeys(_digest(key.encode()) for key in keys))
        self.owners = {
            f"key {number}": hashlib.sha256(b"owner " + digest).hexdigest()[:32]
            for number, digest in enumerate(self._digests, start=1)
        }
        """Names of the tenants in the store: they do not change when other keys are added or
        removed, and do not reveal a key."""

    def __len__(self) -> int:
        return len(self._digests)

    def number(self, offered: bytes) -> int | None:
        """The number of the key, from 1, or None. The time taken does not depend on the match."""
        digest = _digest(offered)
        found = 0
        for number, each in enumerate(self._digests, start=1):  # all of them, for the same reason
            found += number * hmac.compare_digest(digest, each)
        return found or None


def read_api_keys(keys: Iterable[str], file: str | None) -> ApiKeys:
    """The keys in ``keys`` and in ``file``: one on each line, ``#`` starts a comment line.

    Raises ``LeapjsonError`` for a file that cannot be read or has no key (the server would be
    open), and for a key that cannot be sent in a header. The error never quotes a key.
    """
    found = [(f"API key {number}", key) for number, key in enumerate(keys, start=1)]
    if file is not None:
        found += _from_file(file)
    for source, key in found:
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise LeapjsonError(
                f"{source} cannot be sent in a header: keys must be printable ASCII without spaces"
            )
    return ApiKeys(key for _, key in found)


def _from_file(file: str) -> list[tuple[str, str]]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise LeapjsonError(f"cannot read the API key file {file}: {reason}") from None
    lines = [line.strip() for line in text.splitlines()]
    found = [
        (f"the API key in line {number} of {file}", line)
        for number, line in enumerate(lines, start=1)
        if line and not line.startswith("#")
    ]
    if not found:
        raise LeapjsonError(f"the API key file {file} contains no key")
    return found


def authenticate(scope: Scope, keys: ApiKeys) -> str:
    """The tenant of the key that a request sends as ``Authorization: Bearer KEY`` (RFC 6750,
    section 2.1), or, like Anthropic's clients, as ``x-api-key: KEY``.

    Raises ``InvalidApiKey``. Inner layers only know the number of the key.
    """
    given = [(name, value) for name, value in scope["headers"] if name in _HEADERS]
    number = None
    if len(given) == 1:
        [(name, value)] = given
        scheme, _, key = value.partition(b" ")
        if name == b"x-api-key":
            number = keys.number(value.strip())
        elif scheme.lower() == b"bearer":
            number = keys.number(key.strip())
    if number is None:
        raise InvalidApiKey(
            "incorrect API key; send one of this server's keys as: Bearer KEY"
            if given
            else "no API key was sent; send the header Authorization: Bearer KEY"
        )
    return f"key {number}"


def owner_of(scope: Scope) -> str:
    """Owner of the files, batches and responses that a request sees; "" for all without a key."""
    owner: str = scope.get("state", {}).get("owner", "")
    return owner


def tenant_of(scope: Scope) -> str:
    """The request's API key by number, or else its client's address; "" without either.

    uvicorn takes the address from the headers of a proxy on this machine; see its
    ``FORWARDED_ALLOW_IPS`` for other proxies.
    """
    tenant: str | None = scope.get("state", {}).get("tenant")
    if tenant is not None:
        return tenant
    client = scope.get("client")
    return "" if client is None else _network(client[0])


@lru_cache(maxsize=1024)
def _network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:64]
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address.packed, _NETWORK), strict=False))


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
