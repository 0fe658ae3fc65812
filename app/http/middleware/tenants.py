"""Who asks, for turns and shares: an API key by its number, or an address."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from starlette.types import Scope

_NETWORK = 64
"""Bits of an IPv6 address that name a network; its hosts choose the others (RFC 4291, 2.5.4)."""


def set_key(scope: Scope, number: int) -> None:
    """Note that the request came with the key of this number."""
    scope.setdefault("state", {})["tenant"] = f"key {number}"


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
