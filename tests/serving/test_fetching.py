"""Images from allowed hosts: a real TLS server sends the answers that a test prepares."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.core.errors import HostUnreachable, InvalidRequest, LeapjsonError
from app.serving.images.fetching import (
    Fetcher,
    FetchLimits,
    allowed_url,
    is_host_pattern,
    is_public,
)

HOSTS = frozenset({"images.example.com", "*.cdn.example.org"})
FILE = b"the file of an image"
LIMITS = FetchLimits(max_bytes=1000, seconds=20)


@pytest.mark.parametrize(
    ("url", "host", "target"),
    [
        ("https://images.example.com/a.png?x=1#there", "images.example.com", "/a.png?x=1"),
        ("HTTPS://Images.Example.COM:443/a", "images.example.com", "/a"),
        ("https://images.example.com", "images.example.com", "/"),
        ("https://images.example.com?x", "images.example.com", "/?x"),
        ("https://images.example.com./a", "images.example.com", "/a"),
        ("https://a.b.cdn.example.org/", "a.b.cdn.example.org", "/"),
    ],
)
def test_urls_of_allowed_hosts_are_taken(url: str, host: str, target: str) -> None:
    found = allowed_url(url, HOSTS)
    assert (found.host, found.target) == (host, target)


@pytest.mark.parametrize(
    "url",
    [
        "http://images.example.com/a",
        "ftp://images.example.com/a",
        "file:///etc/passwd",
        "https://example.com/",
        "https://evilimages.example.com/",
        "https://images.example.com.evil.org/",
        "https://cdn.example.org/",
        "https://evilcdn.example.org/",
        "https://images.example.com@evil.org/",
        "https://user:key@images.example.com/",
        "https://images.example.com:8443/",
        "https://evil.org\\@images.example.com/",
        "https://evil.org#@images.example.com/",
        "https://images.example.com\\.evil.org/",
        "https://images.example.com%2eevil.org/",
        "https://images.example.com/a b",
        "https://images.example.com/\r\nHost: evil.org",
        "https://images.example.com\t.evil.org/",
        "https://imäges.example.com/",
        "https://[::1]/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https:images.example.com/",
        "https:///images.example.com/",
        "//images.example.com/",
        "https://images.example.com/" + "a" * 3000,
        "",
    ],
)
def test_every_other_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"only https|not an allowed|refused"):
        allowed_url(url, HOSTS)
    with pytest.raises(ValueError, match="image URLs are disabled"):
        allowed_url(url, ())


def test_hosts_are_names() -> None:
    for name in ("example.com", "*.example.com", "a-b.c1.example"):
        assert is_host_pattern(name)
    for name in ("127.0.0.1", "::1", "localhost", "*", "*.com", "a.*.com", "Example.com", "a..b",
                 "https://example.com", "example.com:443", "-a.com", "a.b\n"):  # fmt: skip
        assert not is_host_pattern(name)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.9.9.9", "169.254.169.254",
        "172.16.0.1", "192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1", "203.0.113.1",
        "224.0.0.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "fc00::1",
        "fd12::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "2001:db8::1",
        "2002:7f00:1::", "2001:0:7f00:1::",
    ],
)  # fmt: skip
def test_addresses_of_no_public_host_are_known(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "2606:2800:220:1::1", "::ffff:8.8.8.8"]
)
def test_addresses_of_public_hosts_are_known(address: str) -> None:
    assert is_public(address)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("certificate")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-keyout", str(key), "-out", str(cert),
         "-subj", "/CN=images.example.com",
         "-addext", "subjectAltName=DNS:images.example.com,DNS:a.cdn.example.org"],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, cert


class Host:
    """A server that sends the next of ``answers`` to each request, and hangs if it is None."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []
        self.requests: list[bytes] = []
        self.port = 0
        self.certificate = Path()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            answer = self.answers.pop(0)
            if answer is None:
                await reader.read()
            else:
                writer.write(answer)
                await writer.drain()
        except OSError:  # the client closed the connection
            pass
        finally:
            writer.close()

    def fetcher(
        self,
        *,
        limits: FetchLimits = LIMITS,
        addresses: Callable[[str], Sequence[str]] = lambda host: ["127.0.0.1"],
        is_public: Callable[[str], bool] = lambda address: True,
        trusts: bool = True,
    ) -> Fetcher:
        context = ssl.create_default_context(cafile=str(self.certificate) if trusts else None)
        return Fetcher(
            HOSTS,
            limits,
            resolve=addresses,
            is_public=is_public,
            port=self.port,
            context=context,
        )


@pytest.fixture
async def host(certificate: tuple[Path, Path]) -> AsyncIterator[Host]:
    async with serving(certificate) as host:
        yield host


@asynccontextmanager
async def serving(certificate: tuple[Path, Path]) -> AsyncIterator[Host]:
    key, cert = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    host = Host()
    host.certificate = cert
    server = await asyncio.start_server(host.serve, "127.0.0.1", 0, ssl=context)
    host.port = server.sockets[0].getsockname()[1]
    async with server:
        yield host


def found(body: bytes = FILE, head: bytes = b"200 OK", *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 " + head, b"content-length: %d" % len(body), *headers, b"", body]
    return b"\r\n".join(lines)


def moved(place: bytes) -> bytes:
    return found(b"", b"302 Found", b"location: " + place)


URL = "https://images.example.com/a.png?x=1"


@pytest.mark.needs("openssl")
async def test_the_file_at_a_url_is_fetched(host: Host) -> None:
    host.answers = [found(), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                    b"3\r\nthe\r\n5\r\n file\r\n0\r\n\r\n"]  # fmt: skip
    fetcher = host.fetcher()
    assert await fetcher.fetch(URL) == FILE
    assert await fetcher.fetch(URL) == b"the file"
    head = host.requests[0].decode().lower()
    assert head.startswith("get /a.png?x=1 http/1.1\r\n")
    assert "\r\nhost: images.example.com\r\n" in head
    assert "cookie" not in head
    assert "authorization" not in head


@pytest.mark.needs("openssl")
async def test_redirects_are_followed_to_allowed_hosts_alone(host: Host) -> None:
    fetcher = host.fetcher()
    host.answers = [moved(b"/b"), moved(b"https://a.cdn.example.org/c"), found()]
    assert await fetcher.fetch(URL) == FILE
    assert host.requests[1].startswith(b"GET /b ")
    assert b"host: a.cdn.example.org" in host.requests[2].lower()
    for place in (
        b"https://evil.org/",
        b"http://images.example.com/",
        b"//evil.org/",
        b"https://169.254.169.254/latest/",
        b"file:///etc/passwd",
    ):
        host.answers = [moved(place)]
        asked = len(host.requests)
        with pytest.raises(InvalidRequest, match=r"only https|not an allowed|refused"):
            await fetcher.fetch(URL)
        assert len(host.requests) == asked + 1
    host.answers = [moved(b"/again")] * 9
    with pytest.raises(InvalidRequest, match="redirects more than 3 times"):
        await fetcher.fetch(URL)
    assert len(host.answers) == 5


@pytest.mark.needs("openssl")
async def test_no_host_with_a_private_address_is_asked(host: Host) -> None:
    for addresses in (["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["::ffff:169.254.169.254"]):
        fetcher = host.fetcher(
            addresses=lambda name, found=addresses: found,  # type: ignore[misc]
            is_public=is_public,
        )
        with pytest.raises(InvalidRequest, match="private or reserved address"):
            await fetcher.fetch(URL)
    assert not host.requests


@pytest.mark.needs("openssl")
async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(host: Host) -> None:
    """A host is resolved once, so a second, different answer of its name server has no effect."""
    said = iter([["127.0.0.1"], ["127.0.0.2"]])
    checked: list[str] = []
    host.answers = [found()]

    def public(address: str) -> bool:
        checked.append(address)
        return True

    fetcher = host.fetcher(addresses=lambda name: next(said), is_public=public)
    assert await fetcher.fetch(URL) == FILE
    assert checked == ["127.0.0.1"]
    assert next(said) == ["127.0.0.2"]


@pytest.mark.needs("openssl")
@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (found(bytes(1001)), InvalidRequest, "the limit of 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(2000), InvalidRequest, "the limit of 1000 bytes"),
        (found(b"", b"404 Not Found"), InvalidRequest, "status 404"),
        (found(b"", b"500 Oops"), InvalidRequest, "status 500"),
        (found(FILE, b"200 OK", b"content-encoding: gzip"), InvalidRequest, "compressed"),
        (found()[:-3], HostUnreachable, "could not be fetched"),
        (b"", HostUnreachable, "could not be fetched"),
        (b"no HTTP at all\r\n\r\n", HostUnreachable, "could not be fetched"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 9000, HostUnreachable, "could not be fetched"),
    ],
    ids=range(9),
)
async def test_what_a_host_answers_is_bounded(
    host: Host, answer: bytes, error: type[LeapjsonError], says: str
) -> None:
    host.answers = [answer]
    with pytest.raises(error, match=says):
        await host.fetcher().fetch(URL)


@pytest.mark.needs("openssl")
async def test_a_host_that_hangs_is_left(host: Host) -> None:
    host.answers = [None]
    with pytest.raises(HostUnreachable, match=r"within 0\.5 s"):
        await host.fetcher(limits=FetchLimits(seconds=0.5)).fetch(URL)


@pytest.mark.needs("openssl")
async def test_a_host_has_to_have_its_name_s_certificate(host: Host) -> None:
    for fetcher, url in (
        (host.fetcher(trusts=False), URL),
        (host.fetcher(), "https://b.cdn.example.org/"),
    ):
        with pytest.raises(HostUnreachable, match="CertVerification"):
            await fetcher.fetch(url)
    assert not host.requests


async def test_a_name_that_is_not_found_is_no_fault_of_the_request() -> None:
    def unknown(host: str) -> Sequence[str]:
        raise OSError("no such name")

    fetcher = Fetcher(HOSTS, LIMITS, resolve=unknown)
    with pytest.raises(HostUnreachable) as caught:
        await fetcher.fetch(URL)
    assert caught.value.retry_after == 5
    fetcher.close()
