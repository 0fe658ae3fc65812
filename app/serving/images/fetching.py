"""Images from allowed hosts, over https.

A URL is parsed once, by one strict expression, and only its groups are used: request forgery relies
on two parsers that disagree on the host. Proxies and ``.netrc`` of the environment are ignored, no
cookie is kept and no body is decompressed. The connection goes to the checked address, while TLS
verifies the name: the name is never resolved a second time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import h11

from app.core.errors import HostUnreachable, InvalidImage, InvalidRequest

_URL = re.compile(r"https://(?P<host>[a-z0-9.-]+)(?::443)?(?P<target>[/?][!-~]*)?", re.IGNORECASE)
"""No user, no port but 443, no IPv6 address, only visible ASCII."""
_HOST = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]")
"""A host name, optionally after ``*.``; its last label is not numeric, so it is no IP address."""
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
    """``url``, where its host is one of ``hosts``. Raises ``ValueError`` for clients to read."""
    if not hosts:
        raise ValueError("image URLs are disabled; send the image as a data URL")
    if not url[:8].lower().startswith("https://"):
        raise ValueError("only https URLs are supported; use one, or send the image as a data URL")
    found = _URL.fullmatch(url.partition("#")[0]) if len(url) <= LONGEST else None
    if found is None:
        raise ValueError(
            "this URL is refused: it has a user, a port other than 443, no host name, more than "
            f"{LONGEST} characters, or characters that must be percent-encoded"
        )
    host, target = found["host"].lower().removesuffix("."), found["target"] or "/"
    labels = host.split(".")
    above = (".".join(labels[count:]) for count in range(1, len(labels)))
    if host not in hosts and not any(f"*.{each}" in hosts for each in above):
        raise ValueError(
            f"{host!r} is not an allowed image host; use one that is, or send the image as a data "
            "URL"
        )
    return ImageUrl(host, target if target[0] == "/" else f"/{target}")


def is_public(address: str) -> bool:
    """Whether an IP address is public: not private, loopback, multicast or reserved. An IPv4
    address that is embedded in an IPv6 one must be public, too."""
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
"""All of IPv6 that is assigned (IANA, IPv6 Global Unicast Address Assignments)."""


RETRY = 5
"""Seconds after which a host may be asked again."""
_MOST_REDIRECTS = 3
_READ = 1 << 16
_LONGEST_HEAD = 1 << 14
_HEADERS = (
    ("accept", "image/png, image/jpeg, image/webp, image/gif"),
    ("accept-encoding", "identity"),
    ("user-agent", "leapjson"),
    ("connection", "close"),
)
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_AT_ONCE = 16
"""Fetches that run at a time; others wait for them."""
_RESOLVERS = 4


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds on one image that is fetched."""

    max_bytes: int = 20 << 20
    seconds: float = 10.0
    """From its request to its last byte, redirects included."""


def addresses_of(host: str) -> Sequence[str]:
    """The addresses from the system's resolver, which may wait long for a name server."""
    found = socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Fetcher:
    """Fetches the files of images from ``hosts`` alone. Event loop's thread only."""

    def __init__(
        self,
        hosts: Collection[str],
        limits: FetchLimits,
        *,
        resolve: Callable[[str], Sequence[str]] = addresses_of,
        is_public: Callable[[str], bool] = is_public,
        port: int = 443,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """All parameters but ``hosts`` and ``limits`` are for tests, which have no Internet."""
        self._hosts = hosts
        self._limits = limits
        self._resolve = resolve
        self._is_public = is_public
        self._port = port
        self._context = ssl.create_default_context() if context is None else context
        self._free = asyncio.Semaphore(_MOST_AT_ONCE)
        # Threads of its own: a name server that does not answer keeps no others.
        self._resolver = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="leapjson-names")

    def close(self) -> None:
        """Look up nothing more."""
        self._resolver.shutdown(wait=False, cancel_futures=True)

    async def fetch(self, url: str) -> bytes:
        """The file at ``url``. Raises ``InvalidRequest``, or ``HostUnreachable``."""
        try:
            async with asyncio.timeout(self._limits.seconds), self._free:
                return await self._follow(url)
        except TimeoutError:
            raise HostUnreachable(
                f"the image could not be fetched within {self._limits.seconds:g} s; send it as a "
                "data URL or retry later",
                retry_after=RETRY,
            ) from None
        except (OSError, h11.ProtocolError) as error:
            raise HostUnreachable(
                f"the image could not be fetched, {type(error).__name__}; send it as a data URL or "
                "retry later",
                retry_after=RETRY,
            ) from None

    async def _follow(self, url: str) -> bytes:
        for _ in range(1 + _MOST_REDIRECTS):
            try:
                here = allowed_url(url, self._hosts)
            except ValueError as error:
                raise InvalidRequest(str(error)) from None
            answer = await self._ask(here)
            if isinstance(answer, bytes):
                return answer
            # A redirect leads to a whole URL, or to a path on the same host.
            is_path = answer.startswith("/") and not answer.startswith("//")
            url = f"https://{here.host}{answer}" if is_path else answer
        raise InvalidRequest(
            f"the image URL redirects more than {_MOST_REDIRECTS} times; send the final URL"
        )

    async def _ask(self, url: ImageUrl) -> bytes | str:
        """The file, or the URL of a redirect."""
        address = await self._address(url.host)
        reader, writer = await asyncio.open_connection(
            address, self._port, ssl=self._context, server_hostname=url.host, limit=_READ
        )
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)

        async def next_event() -> object:
            while (event := http.next_event()) is h11.NEED_DATA:
                http.receive_data(await reader.read(_READ))
            return event

        try:
            request = h11.Request(
                method="GET", target=url.target, headers=[("host", url.host), *_HEADERS]
            )
            writer.write((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
            await writer.drain()
            head = await next_event()
            while isinstance(head, h11.InformationalResponse):
                head = await next_event()
            if not isinstance(head, h11.Response):
                raise OSError("the host closed the connection")
            headers = {name.lower(): value for name, value in head.headers}
            if head.status_code in _REDIRECTS and b"location" in headers:
                return headers[b"location"].decode("latin-1")
            if head.status_code != 200:
                raise InvalidRequest(
                    f"the image host answered with status {head.status_code}; check the URL"
                )
            if headers.get(b"content-encoding", b"identity").lower() != b"identity":
                raise InvalidRequest("compressed responses of image hosts are not supported")
            announced = headers.get(b"content-length", b"")
            self._check_size(int(announced) if announced.isdigit() else 0)
            body = bytearray()
            while isinstance(event := await next_event(), h11.Data):
                body += event.data
                self._check_size(len(body))
            if not isinstance(event, h11.EndOfMessage):
                raise OSError("the host closed the connection")
            return bytes(body)
        finally:
            writer.transport.abort()  # does not wait for a host that never closes

    def _check_size(self, size: int) -> None:
        if size > self._limits.max_bytes:
            raise InvalidImage(
                f"the image at this URL is larger than the limit of {self._limits.max_bytes} "
                "bytes; send a smaller file"
            )

    async def _address(self, host: str) -> str:
        """One of its addresses. Raises ``InvalidRequest`` unless all of them are public."""
        loop = asyncio.get_running_loop()
        addresses = await loop.run_in_executor(self._resolver, self._resolve, host)
        if not addresses:
            raise OSError(f"{host} has no address")
        if not all(map(self._is_public, addresses)):
            raise InvalidRequest(
                f"{host!r} resolves to a private or reserved address; send the image as a data URL"
            )
        return addresses[0]
