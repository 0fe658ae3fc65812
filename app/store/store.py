"""The store: state and files (a folder, or an S3 bucket) behind threads of their own, and one error
for what fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import functools
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ParamSpec, TypeVar

from app.core.errors import LeapjsonError, StoreUnavailable

if TYPE_CHECKING:
    from app.store.tables import State

CHUNK = 1 << 20
"""Bytes that are read at a time."""


class Folder:
    """``Files`` in a folder of a file system. Blocking; any thread. Failures raise ``OSError``
    or an error of the bucket's client."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.scratch: Path | None = folder
        """Folder for temporary files; None: the system's."""
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, file_id: str, source: IO[bytes]) -> None:
        """Store ``source`` from its current position, whole or not at all."""
        part = self._folder / f"{file_id}.part"
        try:
            with part.open("wb") as file:
                shutil.copyfileobj(source, file, CHUNK)
                file.flush()
                os.fsync(file.fileno())  # before its row is marked as ready
            part.replace(self._folder / file_id)
        finally:
            part.unlink(missing_ok=True)

    def read(self, file_id: str, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on, fewer at the end. Raises ``FileNotFoundError``."""
        with (self._folder / file_id).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def delete(self, file_id: str) -> None:
        """Does nothing where there is no such file."""
        (self._folder / file_id).unlink(missing_ok=True)
        (self._folder / f"{file_id}.part").unlink(missing_ok=True)  # of a process that was killed


class Bucket:
    """``Files`` in S3 or a compatible store; ``AWS_*`` sets keys, region and endpoint."""

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

        obstore.put(self._bucket, "probe", b"")  # fails at start if the bucket is read-only

    def put(self, file_id: str, source: IO[bytes]) -> None:
        self._client.put(self._bucket, file_id, source, max_concurrency=4)

    def read(self, file_id: str, offset: int, size: int) -> bytes:
        if size == 0:
            return b""
        return bytes(self._client.get_range(self._bucket, file_id, start=offset, length=size))

    def delete(self, file_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._client.delete(self._bucket, file_id)


logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 4
_MOST_WAITING = 256
"""Maximum calls that run or wait, so that a hanging store does not collect requests."""
_RETRY_SECONDS = 5
_SLOW_SECONDS = 2.0
"""After a call that took longer to fail, others fail at once for as long, to keep threads free."""


Files = Folder | Bucket


class Store:
    """State and files. ``state`` and ``files`` block: call them through ``run``."""

    def __init__(self, state: State, files: Files | None, lock: Any = None) -> None:
        """``lock``: a locked file, which ``close`` closes."""
        self.state = state
        self._files = files
        self._lock = lock
        self._threads = ThreadPoolExecutor(_THREADS, "store")
        self._copying = ThreadPoolExecutor(_THREADS, "files")
        """Threads for contents, which take long, so that rows do not wait for them."""
        self._waiting = 0
        self._down_until = 0.0

    @property
    def files(self) -> Files:
        assert self._files is not None, "a store of schemas has none"
        return self._files

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a call of ``state``. Raises ``StoreUnavailable``, or what it raises."""
        return await self._on(self._threads, functools.partial(call, *args, **kwargs))

    async def copy(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a call of ``files``, as for ``run``."""
        return await self._on(self._copying, functools.partial(call, *args, **kwargs))

    async def forget(self, file_id: str) -> None:
        """Drop a file: the contents first, since its row says that they are still there."""
        await self.copy(self.files.delete, file_id)
        await self.run(self.state.drop_file, file_id)

    async def _on(self, threads: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        if self._waiting >= _MOST_WAITING:
            raise StoreUnavailable(
                f"{_MOST_WAITING} calls are waiting for the store (the limit); retry later",
                retry_after=_RETRY_SECONDS,
            )

        def work() -> T:
            began = time.monotonic()
            if began < self._down_until:
                raise _unreachable("cannot be reached")
            try:
                return call()
            except LeapjsonError:
                raise
            except Exception as error:
                if (now := time.monotonic()) - began > _SLOW_SECONDS and threads is self._threads:
                    self._down_until = now + _SLOW_SECONDS
                raise _explained(error) from error

        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        for threads in (self._threads, self._copying):
            await asyncio.to_thread(threads.shutdown, cancel_futures=True)
        self.state.close()
        if self._lock is not None:
            self._lock.close()


def _explained(error: Exception) -> Exception:
    """``StoreUnavailable`` for errors of a disk, a database or a bucket; else ``error``."""
    if isinstance(error, FileNotFoundError) or not (
        isinstance(error, OSError) or _package_of(error) in ("sqlalchemy", "obstore")
    ):
        return error
    logger.warning("the store failed: %s: %s", type(error).__name__, str(error).split("\n")[0])
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    full |= "is full" in str(getattr(error, "orig", ""))  # SQLite's words
    return _unreachable("is full" if full else "cannot be reached")


def _package_of(error: Exception) -> str:
    return type(error).__module__.partition(".")[0]


def _unreachable(what: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the store {what} (LEAPJSON_DATA, LEAPJSON_STORE, LEAPJSON_SCHEMA_STORE; the server's "
        "log has the cause); stored data is not lost, retry later",
        retry_after=_RETRY_SECONDS,
    )


def _state(url: str, clock: Callable[[], float] = time.time) -> State:
    from app.store.tables import State  # a server without a store needs no SQLAlchemy

    return State(url, clock)


def open_store(data: str, url: str | None, *, clock: Callable[[], float] = time.time) -> Store:
    """``data``: a folder, or ``s3://bucket/prefix``. ``url``: PostgreSQL's; None: SQLite in
    ``data``. Raises ``LeapjsonError`` that names the setting at fault."""
    with _naming("LEAPJSON_DATA", data, "LEAPJSON_DATA" if url is None else "LEAPJSON_STORE"):
        if data.startswith("s3://"):
            if url is None:
                raise LeapjsonError(
                    "LEAPJSON_DATA is a bucket, which holds only files; set LEAPJSON_STORE to a "
                    "PostgreSQL database for the state"
                )
            files: Files = Bucket(data)
        else:
            files = Folder(Path(data) / "files")
        if url is None:
            lock = _locked(Path(data) / "lock")
            try:
                state = _state(f"sqlite:///{Path(data) / 'state.sqlite'}", clock)
                state.release("")  # the lock shows that no other server holds leases
            except BaseException:
                lock.close()
                raise
            return Store(state, files, lock)
        return Store(_state(_with_driver(url, "LEAPJSON_STORE"), clock), files)


def open_schema_store(where: str) -> Store:
    """``where``: a folder, which servers of a machine may share, or a PostgreSQL URL. No files."""
    with _naming(name := "LEAPJSON_SCHEMA_STORE", "the folder", name):
        if "://" in where:
            return Store(_state(_with_driver(where, name)), None)
        Path(where).mkdir(parents=True, exist_ok=True)
        return Store(_state(f"sqlite:///{Path(where) / 'schemas.sqlite'}"), None)


@contextlib.contextmanager
def _naming(setting: str, value: str, database: str) -> Iterator[None]:
    """Raises ``LeapjsonError`` that names ``setting``, or ``database`` if the database fails."""
    try:
        yield
    except ImportError as error:
        raise LeapjsonError(f"{error.name} is missing: pip install 'leapjson[store]'") from None
    except Exception as error:
        if _package_of(error) == "sqlalchemy":  # not its text, which may contain the URL's password
            cause = getattr(error, "orig", type(error).__name__)
            raise LeapjsonError(f"cannot use the database in {database}: {cause}") from None
        if isinstance(error, OSError) or _package_of(error) == "obstore":
            raise LeapjsonError(f"{setting} ({value}) cannot be used: {error}") from None
        raise


def _locked(path: Path) -> Any:
    """The file, locked until it is closed or the process ends."""
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise LeapjsonError(
            f"another server uses the folder {path.parent} (LEAPJSON_DATA); use a separate "
            "folder, or share a PostgreSQL database with LEAPJSON_STORE"
        ) from None
    return file


def _with_driver(url: str, setting: str) -> str:
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in ("postgres", "postgresql"):
        raise LeapjsonError(f"{setting} is not a URL like postgresql://user:password@host/name")
    return f"postgresql+psycopg://{rest}"
