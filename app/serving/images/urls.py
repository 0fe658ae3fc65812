"""Which URLs of images may be fetched.

A URL is read once, by one strict expression, and only what it found is ever used: two readers that
disagree on the host are how requests are forged.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass

_URL = re.compile(r"https://(?P<host>[a-z0-9.-]+)(?::443)?(?P<target>[/?][!-~]*)?", re.IGNORECASE)
"""No user, no other port, no address in brackets, nothing but visible ASCII."""
_HOST = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]")
"""A name whose last label is no number, as that of an address is."""
LONGEST = 2048
"""Characters of a URL."""


@dataclass(frozen=True, slots=True)
class ImageUrl:
    """An https URL of an allowed host."""

    host: str
    target: str
    """Path and query."""


def is_host_pattern(name: str) -> bool:
    """Whether ``name`` may be allowed: ``example.com``, or ``*.example.com`` for what is below."""
    return len(name) <= 253 and _HOST.fullmatch(name) is not None


def allowed_url(url: str, hosts: Collection[str]) -> ImageUrl:
    """``url``, where its host is one of ``hosts``. Raises ``ValueError`` that says what to do."""
    if not hosts:
        raise ValueError("images are not fetched here; send the image itself as a data URL")
    if not url[:8].lower().startswith("https://"):
        raise ValueError("only https URLs are fetched; use one, or send the image as a data URL")
    found = _URL.fullmatch(url.partition("#")[0]) if len(url) <= LONGEST else None
    if found is None:
        raise ValueError(
            f"this URL is not fetched: it has a user, a port other than 443, no host name, more "
            f"than {LONGEST} characters, or some that have to be percent-encoded"
        )
    host, target = found["host"].lower().removesuffix("."), found["target"] or "/"
    if host not in hosts and not any(f"*.{above}" in hosts for above in _above(host)):
        raise ValueError(
            f"images are not fetched from {host!r}; use an allowed host, or send the image as a "
            "data URL"
        )
    return ImageUrl(host, target if target[0] == "/" else f"/{target}")


def _above(host: str) -> list[str]:
    labels = host.split(".")
    return [".".join(labels[count:]) for count in range(1, len(labels))]


def is_public(address: str) -> bool:
    """Whether an IP address is one of the Internet's: none of a private network, of this machine,
    of a group or of anything reserved, also inside an IPv6 address that stands for an IPv4 one."""
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv4Address):
        return found.is_global and not found.is_multicast
    if found.scope_id is not None:
        return False
    if found.ipv4_mapped is not None:
        return is_public(str(found.ipv4_mapped))
    if found in _NAT64:
        return is_public(str(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)))
    tunnelled = [each for each in (found.sixtofour, *(found.teredo or ())) if each is not None]
    return found in _UNICAST and found.is_global and all(is_public(str(each)) for each in tunnelled)


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that has been given out (IANA, IPv6 Global Unicast Address Assignments)."""
