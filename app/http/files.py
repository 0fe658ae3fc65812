"""``/v1/files``: the files that batches read and write, as OpenAI has them."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from app.core.errors import InvalidRequest, StoreUnavailable
from app.http.config import ApiConfig
from app.http.endpoint import api_of
from app.http.errors import BodyTooLarge, NotKept
from app.http.keys import owner_of
from app.http.openapi import Deleted, Json, Page, Shape, describe
from app.http.requests.wire import Ignored, invalid, missing
from app.store.rows import NewFile, fresh_id
from app.store.store import CHUNK, Store

PATH = "/v1/files"
_ONE = f"{PATH}/{{file_id}}"

KEPT_SECONDS = 30 * 86_400
"""Default lifetime of a file in seconds, as in OpenAI's API."""
_SHORTEST, _LONGEST = 3600, 30 * 86_400
_MOST_LISTED = 10_000
_UPLOAD_SECONDS = 3600.0
_FORM_BYTES = 1 << 16
"""Maximum size of a form besides its file."""


class FileObject(Shape):
    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"]
    status_details: None


router = APIRouter()
_UPLOAD = describe("Upload a file", FileObject, errors=[400, 404, 413, 429, 503])
_FIELDS: Json = {
    "file": {"type": "string", "format": "binary"},
    "purpose": {"enum": ["batch"]},
    "expires_after[anchor]": {"enum": ["created_at"]},
    "expires_after[seconds]": {"type": "integer", "minimum": _SHORTEST, "maximum": _LONGEST},
}
_FORM = {"type": "object", "properties": _FIELDS, "required": ["file", "purpose"]}
_UPLOAD["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}


@router.post(PATH, openapi_extra=_UPLOAD)
async def upload(request: Request) -> Response:
    api = api_of(request)
    origin, allowed = request.headers.get("origin"), api.config.cors_origins
    # A page may send a form without a preflight: only a key proves permission.
    if origin and not api.config.api_keys and origin not in allowed and "*" not in allowed:
        raise InvalidRequest(
            "web pages may not upload files to a server without API keys; add the page's "
            "origin to LEAPJSON_CORS_ORIGINS, or set LEAPJSON_API_KEYS"
        )
    store = api.stored("files")
    request.state.ticket.hold_upload()
    ignored = Ignored(refuses=api.config.unknown_fields == "refuse")
    row = await _upload(store, request, api.config, ignored)
    return JSONResponse(shown(row), headers=ignored.headers)


@router.get(
    PATH,
    openapi_extra=describe(
        "The files that are kept",
        Page[FileObject],
        query=("limit", "after", "order", "purpose"),
        errors=[400, 404, 503],
    ),
)
async def list_files(request: Request) -> dict[str, Any]:
    purpose, owner = request.query_params.get("purpose"), owner_of(request.scope)
    after, limit, order = paging(request, _MOST_LISTED, _MOST_LISTED)
    store = api_of(request).stored("files")
    found = await store.run(store.state.list_files, owner, purpose, after, limit + 1, order)
    return page([shown(row) for row in found], limit)


async def _find(file_id: str, request: Request) -> tuple[Store, Mapping[str, Any]]:
    store = api_of(request).stored("files")
    found = await store.run(store.state.find_file, owner_of(request.scope), file_id)
    if found is None:
        raise NotKept(
            f"there is no file {file_id[:64]!r}: it was deleted, has expired or belongs to "
            "another API key",
            param="file_id",
        )
    return store, found


@router.get(_ONE, openapi_extra=describe("A file", FileObject, errors=[404, 503]))
async def retrieve(file_id: str, request: Request) -> dict[str, Any]:
    _, found = await _find(file_id, request)
    return shown(found)


@router.delete(_ONE, openapi_extra=describe("Delete a file", Deleted, errors=[400, 404, 503]))
async def delete(file_id: str, request: Request) -> dict[str, Any]:
    store, _ = await _find(file_id, request)
    used = await store.run(store.state.delete_file, owner_of(request.scope), file_id)
    if used is not None:
        raise InvalidRequest(f"{used} is reading the file; cancel it first", param="file_id")
    await store.copy(store.files.delete, file_id)
    return {"id": file_id, "object": "file", "deleted": True}


_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_CONTENTS = {200: {"description": "The contents", "content": _BINARY}}


@router.get(
    f"{_ONE}/content",
    openapi_extra=describe("A file's contents", errors=[404, 503], others=_CONTENTS),
)
async def contents(file_id: str, request: Request) -> Response:
    store, row = await _find(file_id, request)
    first = await store.copy(store.files.read, file_id, 0, CHUNK)  # errors still have a status

    async def chunks() -> AsyncIterator[bytes]:
        yield first
        for offset in range(CHUNK, row["bytes"], CHUNK):
            yield await store.copy(store.files.read, file_id, offset, CHUNK)

    headers = {"content-length": str(row["bytes"])}
    return StreamingResponse(chunks(), headers=headers, media_type="application/octet-stream")


async def _upload(
    store: Store, request: Request, config: ApiConfig, ignored: Ignored
) -> Mapping[str, Any]:
    most = config.file_bytes
    announced = request.headers.get("content-length", "")
    size = int(announced) if announced.isdecimal() else most + _FORM_BYTES
    if size > most + _FORM_BYTES:
        raise _too_large(most)
    file_id = fresh_id("file-")
    # Before a byte is read, so that other uploads cannot take the space.
    owner, key_bytes = owner_of(request.scope), config.key_bytes
    await store.run(store.state.reserve_file, owner, file_id, size, key_bytes)
    put = False
    try:
        async with asyncio.timeout(_UPLOAD_SECONDS):
            form = await _form(request, most)
            try:
                file, seconds = _checked(form, ignored)
                put = True
                await store.copy(store.files.put, file_id, file.file)
            finally:
                await form.close()
        name = (file.filename or "file").rpartition("/")[2][:255]
        new = NewFile(file_id, "batch", name, file.size or 0, seconds)
        return await store.run(store.state.complete_file, new)
    except BaseException as error:
        gone = store.forget(file_id) if put else store.run(store.state.drop_file, file_id)
        await asyncio.shield(gone)
        if isinstance(error, TimeoutError):
            raise InvalidRequest(f"the upload took more than {_UPLOAD_SECONDS:g} s") from None
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = "the disk for uploads is full (TMPDIR); nothing was stored, retry later"
            raise StoreUnavailable(message, retry_after=30) from None
        raise


async def _form(request: Request, most: int) -> FormData:
    """The form of an upload, its file on disk. Raises ``InvalidRequest`` or ``BodyTooLarge``."""

    async def counted() -> AsyncIterator[bytes]:
        left = most + _FORM_BYTES
        async for chunk in request.stream():
            left -= len(chunk)
            if left < 0:
                raise _too_large(most)
            yield chunk

    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise InvalidRequest("files are uploaded as multipart/form-data, with file and purpose")
    limits = {"max_files": 1, "max_fields": 16, "max_part_size": 4096}
    try:
        parser = MultiPartParser(request.headers, counted(), **limits)  # type: ignore[arg-type]
        return await parser.parse()
    except MultiPartException as error:
        raise InvalidRequest(f"the form could not be read: {error.message}") from None


def _checked(form: FormData, ignored: Ignored) -> tuple[UploadFile, int]:
    """The file of a form, and its lifetime in seconds. Raises ``InvalidRequest``."""
    fields = dict(form.multi_items())
    file, purpose = fields.pop("file", None), fields.pop("purpose", None)
    if not isinstance(file, UploadFile):
        raise missing("file")
    if purpose is None:
        raise missing("purpose")
    if purpose != "batch":
        raise invalid("purpose", "it must be batch: files are for batches only")
    anchor = fields.pop("expires_after[anchor]", None)
    seconds = fields.pop("expires_after[seconds]", None)
    for name in fields:
        ignored.leave_out(name)
    if anchor is None and seconds is None:
        return file, KEPT_SECONDS
    number = int(seconds) if isinstance(seconds, str) and seconds.isdecimal() else None
    return file, expiry(anchor, number, "expires_after")


def expiry(anchor: Any, seconds: int | None, param: str) -> int:
    """The lifetime of a file in seconds. Raises ``InvalidRequest``."""
    if anchor != "created_at":
        raise invalid(f"{param}.anchor", "it must be created_at")
    if seconds is None or not _SHORTEST <= seconds <= _LONGEST:
        raise invalid(f"{param}.seconds", f"it must be {_SHORTEST} to {_LONGEST}")
    return seconds


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the file is larger than the limit of {most} bytes (LEAPJSON_FILE_BYTES); split it",
        param="file",
    )


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("id", "bytes", "created_at", "expires_at", "filename", "purpose")
    return {
        "object": "file",
        **{name: row[name] for name in names},
        "status": "processed",
        "status_details": None,
    }


def paging(request: Request, most: int, usual: int) -> tuple[str | None, int, str]:
    """``after``, ``limit`` and ``order`` of a list. Raises ``InvalidRequest``."""
    asked = request.query_params
    limit, order = asked.get("limit", str(usual)), asked.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest(f"order is {order[:64]!r}; it must be asc or desc", param="order")
    if re.fullmatch("[0-9]{1,9}", limit) is None or not 1 <= int(limit) <= most:
        raise InvalidRequest(f"limit must be 1 to {most}", param="limit")
    return asked.get("after"), int(limit), order


def page(found: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """A ``Page`` of at most ``limit`` of ``found``, which has one more if there is a next page."""
    listed = found[:limit]
    return {
        "object": "list",
        "data": listed,
        "first_id": listed[0]["id"] if listed else None,
        "last_id": listed[-1]["id"] if listed else None,
        "has_more": len(found) > limit,
    }
