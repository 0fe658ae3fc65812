"""The page at ``/`` and the API's documentation at ``/docs``: files that come with the package.

They need no key: they hold no secrets, and fetch their data from the API. Nothing in them comes
from a third party, and the content security policy sent with them forbids it.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from app.http.endpoint import api_of

HOME = "/"
DOCS = "/docs"
FILES = "/page/"

_AT = {"index.html": HOME, "docs/index.html": DOCS}
"""Files with a path of their own; all others are below ``FILES``."""

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "vary": "accept-encoding",
}
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_HASHED = re.compile(r"-[0-9A-Za-z]{8}\.[a-z0-9]+$")
"""File name with a hash of the content, so that browsers may cache the file for ever."""
_SMALL = 1024
"""Maximum size in bytes of files that are not compressed."""
_GZIP = re.compile(r"(?:^|,)\s*(?:gzip|x-gzip|\*)\s*(?:;\s*q\s*=\s*([0-9.]+)\s*)?(?:,|$)", re.I)


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str
    cached: str


@cache
def page_files(folder: Path) -> dict[str, _File]:
    """The files below ``folder`` by the paths they are served at, read once.

    A folder without files has no pages.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name, content = path.relative_to(folder).as_posix(), path.read_bytes()
            hashed = _HASHED.search(path.name)
            found[_AT.get(name, FILES + name)] = _File(
                content=content,
                media_type=_TYPES.get(path.suffix, "application/octet-stream"),
                etag=f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"',
                cached="public, max-age=31536000, immutable" if hashed else "no-cache",
            )
    return found


@cache
def _zipped(content: bytes) -> bytes | None:
    """``content`` compressed, which takes 60 ms for a megabyte; None: that is not shorter."""
    zipped = gzip.compress(content, mtime=0) if len(content) > _SMALL else content
    return zipped if len(zipped) < len(content) else None


router = APIRouter()
"""Routes of an application with a page. Other files are a 404, as on any path."""


@router.get(HOME, include_in_schema=False)
@router.get(DOCS, include_in_schema=False)
@router.get(FILES + "{file:path}", include_in_schema=False)
async def page_file(request: Request) -> Response:
    folder = api_of(request).config.page
    assert folder is not None, "the routes are left out without a page"
    if (file := page_files(folder).get(request.scope["path"])) is None:
        raise HTTPException(404)
    found = _GZIP.search(request.headers.get("accept-encoding", ""))  # RFC 9110, section 12.5.3
    takes_gzip = found is not None and (found[1] is None or found[1].strip("0.") != "")
    zipped = await asyncio.to_thread(_zipped, file.content) if takes_gzip else None
    etag = file.etag[:-1] + '-gzip"' if zipped else file.etag
    headers = {**_HEADERS, "etag": etag, "cache-control": file.cached}
    known = request.headers.get("if-none-match", "")
    if known == "*" or etag in (each.strip().removeprefix("W/") for each in known.split(",")):
        return Response(status_code=304, headers=headers)
    if zipped:
        headers["content-encoding"] = "gzip"
    headers["content-type"] = file.media_type
    return Response(zipped or file.content, headers=headers)
