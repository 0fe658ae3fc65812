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
"""What an orchestrator asks, which has no key."""
METRICS_PATH = "/metrics"
_HEADERS = (b"authorization", b"x-api-key")
_NETWORK = 64
"""Bits of an IPv6 address that name a network; its hosts choose the others (RFC 4291, 2.5.4)."""


class ApiKeys:
    """The keys that are taken. Holds their digests alone, so that no log or repr can show one."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = list(dict.fromkeys(_digest(key.encode()) for key in keys))
        self.owners = {
            f"key {number}": hashlib.sha256(b"owner " + digest).hexdigest()[:32]
            for number, digest in enumerate(self._digests, start=1)
        }
        """The names of the tenants in the store: they stay when other keys are added or removed,
        and no key can be told from one."""

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


def authenticate(scope: Scope, keys: ApiKeys) -> None:
    """Note the number of the key that a request offers, as ``Authorization: Bearer KEY`` (RFC 6750,
    section 2.1), or as ``x-api-key: KEY``, as Anthropic's clients send it.

    Raises ``InvalidApiKey``. Nothing further in knows more of the key than its number.
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
    tenant = f"key {number}"
    scope.setdefault("state", {}).update(tenant=tenant, owner=keys.owners[tenant])


def owner_of(scope: Scope) -> str:
    """Whose files, batches and responses a request sees: its key's, or those of all without."""
    owner: str = scope.get("state", {}).get("owner", "")
    return owner


def tenant_of(scope: Scope) -> str:
    """The key that the request came with, or else its client's address; "" without either.

    uvicorn puts the address in that a proxy on this machine has forwarded; see its
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
