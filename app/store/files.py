"""Contents of files, by id: in a folder, or in an S3 bucket."""

from __future__ import annotations

import contextlib
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import IO, Protocol

CHUNK = 1 << 20
"""Bytes that are read at a time."""


class Files(Protocol):
    """Blocking; any thread. What fails raises ``OSError`` or an error of the bucket's client."""

    @property
    def scratch(self) -> Path | None:
        """A folder for what is being put together; None: the system's."""

    def put(self, file_id: str, source: IO[bytes]) -> None:
        """Keep all of ``source`` from where it stands. It is there whole, or not at all."""

    def read(self, file_id: str, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on, fewer at the end. Raises ``FileNotFoundError``."""

    def delete(self, file_id: str) -> None:
        """Does nothing where there is no such file."""


class Folder:
    """``Files`` in a folder of a file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = self.scratch = folder
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, file_id: str, source: IO[bytes]) -> None:
        part = self._folder / f"{file_id}.part"
        try:
            with part.open("wb") as file:
                shutil.copyfileobj(source, file, CHUNK)
                file.flush()
                os.fsync(file.fileno())  # before its row says that it is here
            part.replace(self._folder / file_id)
        finally:
            part.unlink(missing_ok=True)

    def read(self, file_id: str, offset: int, size: int) -> bytes:
        with (self._folder / file_id).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def delete(self, file_id: str) -> None:
        (self._folder / file_id).unlink(missing_ok=True)
        (self._folder / f"{file_id}.part").unlink(missing_ok=True)  # of a process that was killed


class Bucket:
    """``Files`` in S3 or what speaks its protocol; ``AWS_*`` has keys, region and endpoint."""

    scratch = None

    def __init__(self, url: str) -> None:
        """``url``: ``s3://bucket/prefix``. Raises ``ImportError`` without ``leapjson[store]``."""
        import obstore
        from obstore.store import S3Store

        named = [os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT")]
        plain = any(each.startswith("http://") for each in named)
        self._client = obstore
        self._bucket = S3Store.from_url(
            url,
            client_options={"timeout": timedelta(seconds=60), "allow_http": plain},
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=20)},
        )

        obstore.put(self._bucket, "probe", b"")  # that it can be written is seen at the start

    def put(self, file_id: str, source: IO[bytes]) -> None:
        self._client.put(self._bucket, file_id, source, max_concurrency=4)

    def read(self, file_id: str, offset: int, size: int) -> bytes:
        if size == 0:
            return b""
        return bytes(self._client.get_range(self._bucket, file_id, start=offset, length=size))

    def delete(self, file_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._client.delete(self._bucket, file_id)
