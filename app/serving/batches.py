"""Works on batches: leases pieces of them from the store, asks their lines, writes their files."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import secrets
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from app.core.errors import LeapjsonError
from app.serving.tasks import in_thread_if_large
from app.store.rows import VALIDATE, WRITE, NewFile, Piece, fresh_id
from app.store.store import CHUNK, Files, Store

if TYPE_CHECKING:
    from app.store.tables import State

logger = logging.getLogger(__name__)

PIECE_LINES = 32
LEASE_SECONDS = 60.0
"""Lifetime of a lease; after it another server takes over the pieces of a dead one."""
_BEAT_SECONDS = 5.0
"""Interval between lease renewals, which also report cancelled batches."""
_POLL_SECONDS = 1.0
"""Interval between polls for other servers' batches; this server's own wake it at once."""
_TIDY_SECONDS = 60.0
_MOST_TRIES = 5
"""Maximum tries of a line that gets 503 although the server is healthy."""
_ALONE_AFTER = 3
"""Number of unfinished leases of a piece after which its lines are sent one at a time."""
_MOST_DEATHS = 3
"""Maximum server crashes during a line that is sent alone, before the line fails."""
_MOST_ERRORS = 50
"""Maximum invalid lines that a failed batch lists."""
_MOST_WHOLE = 2
"""Maximum files that are read or written while lines are waiting."""
_MOST_RECORDED = 256
"""Maximum answers in one transaction."""
_LONGEST_ID = 512
"""Maximum characters of a custom_id: all ids of a file are in memory while it is read."""
_FORGOTTEN_SECONDS = 6 * 3600
"""Time after which a file without contents is dropped."""
_KEPT_BATCH_SECONDS = 90 * 86_400

Ask = Callable[[str, str, bytes], Awaitable[tuple[int, Mapping[str, str], bytes]]]
"""Owner, path and body of a POST to this server; status, headers and body of the answer."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    running: int
    """Lines that this server answers at a time."""
    line_bytes: int
    batch_requests: int
    key_requests: int
    """Maximum requests in an owner's unfinished batches."""
    response_seconds: int
    """Time that a stored response is kept after its last use."""
    check: Callable[[bytes], None]
    """Raises ``LeapjsonError`` for JSON that would take long to parse."""


class BatchRunner:
    """Runs batches, on the event loop's thread. Servers may share a batch, each with own pieces."""

    def __init__(
        self,
        store: Store,
        ask: Ask,
        limits: BatchLimits,
        *,
        owners: Sequence[str],
        halted: Callable[[], bool],
    ) -> None:
        """``owners``: owners of the batches to run. ``halted``: whether requests are impossible."""
        self._store = store
        self._state = store.state
        self._ask = ask
        self._limits = limits
        self._owners = owners
        self._halted = halted
        self._server = secrets.token_hex(8)
        self._slots = asyncio.Semaphore(limits.running)
        self._pieces: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._waiting: dict[tuple[str, int], set[int]] = {}
        """Lines that wait for a slot, by piece."""
        self._stopped: set[tuple[str, int]] = set()
        """Pieces of batches that were cancelled or have expired."""
        self._answers: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[None]]] = asyncio.Queue()
        self._work = asyncio.Event()
        self._change = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for loop in (self._feed, self._beat, self._record, self._tidy):
            self._loops.append(asyncio.create_task(self._lasting(loop)))

    def wake(self) -> None:
        """A batch was made or cancelled here."""
        self._work.set()
        self._change.set()

    async def close(self) -> None:
        """Save the answers so far, and leave the rest to other servers."""
        [feed, beat, record, tidy] = self._loops
        working = list(self._pieces.values())
        for task in (feed, beat, tidy, *working):
            task.cancel()
        await asyncio.gather(feed, beat, tidy, *working, return_exceptions=True)
        with contextlib.suppress(LeapjsonError, TimeoutError):
            async with asyncio.timeout(5):
                await self._answers.join()
                await self._store.run(self._state.release, self._server)
        record.cancel()
        await asyncio.gather(record, return_exceptions=True)

    async def _lasting(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Repeat ``loop`` for ever, also after errors of the store."""
        while True:
            try:
                await loop()
            except LeapjsonError:
                await asyncio.sleep(_POLL_SECONDS)
            except Exception:
                logger.exception("the batch task %s failed; retrying", loop.__name__)
                await asyncio.sleep(_BEAT_SECONDS)

    async def _feed(self) -> None:
        """Lease a piece: one with lines if there are too few for all slots."""
        piece = None
        lines = sum(map(len, self._waiting.values())) < self._limits.running
        whole = sum(number < 0 for _, number in self._pieces)
        if (lines or whole < _MOST_WHOLE) and not self._halted():
            lease = self._server, self._owners, LEASE_SECONDS
            piece = await self._store.run(self._state.take, *lease, lines=lines)
        if piece is None:
            self._work.clear()
            await _within(self._work, _POLL_SECONDS)
            return
        self._waiting[piece.key] = set(range(PIECE_LINES)) if piece.number >= 0 else set()
        self._pieces[piece.key] = asyncio.create_task(self._piece(piece))

    async def _beat(self) -> None:
        self._change.clear()
        await _within(self._change, _BEAT_SECONDS)
        before = list(self._pieces)
        leased = await self._store.run(self._state.renew, self._server, LEASE_SECONDS)
        for key in before:
            if not leased.get(key) and (task := self._pieces.get(key)) is not None:
                if key in leased:
                    self._stopped.add(key)
                task.cancel()

    async def _tidy(self) -> None:
        old = await self._store.run(
            self._state.forget_old,
            upload_seconds=_FORGOTTEN_SECONDS,
            batch_seconds=_KEPT_BATCH_SECONDS,
            response_seconds=self._limits.response_seconds,
        )
        for file_id in old:
            await self._store.forget(file_id)
        await asyncio.sleep(_TIDY_SECONDS)

    async def _record(self) -> None:
        """Save the waiting answers in one transaction, retrying until the store takes them."""
        taken = [await self._answers.get()]
        while len(taken) < _MOST_RECORDED and not self._answers.empty():
            taken.append(self._answers.get_nowait())
        while True:
            try:
                await self._store.run(self._state.record, [row for row, _ in taken])
                break
            except Exception as error:  # retried for as long as the process lives
                logger.warning("batch answers cannot be saved yet; retrying: %s", error)
                await asyncio.sleep(_POLL_SECONDS)
        for _, kept in taken:
            if not kept.done():
                kept.set_result(None)
            self._answers.task_done()

    async def _piece(self, piece: Piece) -> None:
        pause = _POLL_SECONDS
        try:
            while True:
                try:
                    await self._do(piece)
                    break
                except LeapjsonError as error:
                    logger.warning("work on %s is postponed: %s", piece.batch_id, error)
                except Exception:
                    logger.exception("work on %s failed; retrying later", piece.batch_id)
                    pause = max(pause, _BEAT_SECONDS)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LEASE_SECONDS)
        except asyncio.CancelledError:
            if piece.key not in self._stopped:  # the server stops, or has lost the lease
                raise
            with contextlib.suppress(LeapjsonError):  # else when the lease has ended
                await self._store.run(self._state.finish, piece, self._server)
        finally:
            self._stopped.discard(piece.key)
            self._waiting.pop(piece.key, None)
            self._pieces.pop(piece.key, None)
            self._work.set()

    async def _do(self, piece: Piece) -> None:
        store, state, server = self._store, self._state, self._server
        if piece.number == WRITE:
            await self._write(piece)
        elif piece.number != VALIDATE:
            await self._lines(piece)
        elif piece.status != "validating":
            await store.run(state.finish, piece, server)
        else:
            found = await store.copy(read_input, store.files, piece, self._limits)
            await store.run(state.validated, piece, server, *found, self._limits.key_requests)

    async def _lines(self, piece: Piece) -> None:
        """Ask all lines of a piece that have no answer yet."""
        todo: dict[int, bytes] = {}
        if piece.status == "in_progress":
            file = piece.input_file_id, piece.offset, piece.size
            lines = (await self._store.copy(self._store.files.read, *file)).split(b"\n")
            span = piece.batch_id, piece.number, piece.number + len(lines)
            done = await self._store.run(self._state.answered, *span)
            numbered = enumerate(lines, piece.number)
            todo = {
                number: line for number, line in numbered if line.strip() and number not in done
            }
        self._waiting[piece.key] = set(todo)
        self._work.set()
        if piece.tries >= _ALONE_AFTER:
            for number, line in todo.items():
                deaths = await self._store.run(self._state.ask_alone, piece, number)
                if deaths < _MOST_DEATHS:
                    await self._line(piece, number, line)
                    continue
                message = f"the server crashed {deaths} times while it answered only this request"
                text = _unanswered(line, "server_error", message)
                await self._keep(piece, number, text, ok=False)
        else:
            try:
                async with asyncio.TaskGroup() as group:
                    for number, line in todo.items():
                        group.create_task(self._line(piece, number, line))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
        await self._store.run(self._state.finish, piece, self._server)

    async def _line(self, piece: Piece, number: int, line: bytes) -> None:
        async with self._slots:
            self._waiting[piece.key].discard(number)
            self._work.set()
            read = partial(_read_line, line)
            custom_id, body = await in_thread_if_large(len(line), piece.owner, read)
            if body is None:
                message = "stream is not supported in a batch; leave stream out"
                error = {"message": message, "type": "invalid_request_error", "param": "stream"}
                status, name, answer = 400, "", to_json({"error": {**error, "code": None}})
            else:
                status, name, answer = await self._asked(piece, body)
            head = to_json({"id": f"batch_req_{secrets.token_hex(12)}", "custom_id": custom_id})
            rest = b',"response":{"status_code":%d,"request_id":%b,"body":%b},"error":null}'
            text = head[:-1] + rest % (status, to_json(name), answer.replace(b"\n", b" "))
            await self._keep(piece, number, text, ok=status < 400)

    async def _asked(self, piece: Piece, body: bytes) -> tuple[int, str, bytes]:
        """Status, request's id and body of an answer that is final."""
        tries = 0
        while True:
            status, headers, answer = await self._ask(piece.owner, piece.endpoint, body)
            tries += status == 503
            if status not in (429, 503) or (tries >= _MOST_TRIES and not self._halted()):
                return status, headers.get("x-request-id", ""), answer
            pause = headers.get("retry-after", "")
            await asyncio.sleep(min(float(pause), 30.0) if pause.isdecimal() else 1.0)
            while self._halted():  # noqa: ASYNC110  # until the server ends
                await asyncio.sleep(_POLL_SECONDS)

    async def _keep(self, piece: Piece, number: int, text: bytes, *, ok: bool) -> None:
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        row = {"batch_id": piece.batch_id, "line": number, "ok": ok, "text": text}
        self._answers.put_nowait((row, kept))
        await kept

    async def _write(self, piece: Piece) -> None:
        store, state = self._store, self._state
        batch = await store.run(state.find_batch, piece.owner, piece.batch_id)
        assert batch is not None, "it stays while it is finalizing"
        with (
            tempfile.TemporaryFile(dir=store.files.scratch) as output,
            tempfile.TemporaryFile(dir=store.files.scratch) as errors,
        ):
            completed = await store.copy(write_files, state, store.files, batch, output, errors)
            written: dict[str, NewFile] = {}
            try:
                for column, source in (("output_file_id", output), ("error_file_id", errors)):
                    if not (size := source.tell()):
                        continue
                    source.seek(0)
                    name = f"{piece.batch_id}_{column.removesuffix('_file_id')}.jsonl"
                    seconds = batch["output_seconds"]
                    file = NewFile(fresh_id("file-"), "batch_output", name, size, seconds)
                    written[column] = file
                    await store.run(state.reserve_file, piece.owner, file.id, size, sys.maxsize)
                    await store.copy(store.files.put, file.id, source)
            except BaseException:
                await self._drop(written)
                raise
        counts = completed, batch["total"] - completed
        # On an error the files stay: the transaction may have succeeded all the same.
        if not await store.run(state.written, piece, self._server, written, *counts):
            await self._drop(written)

    async def _drop(self, files: Mapping[str, NewFile]) -> None:
        """Delete unreferenced files; those that cannot be deleted now are dropped by ``_tidy``."""
        for file in files.values():
            with contextlib.suppress(LeapjsonError):
                await self._store.forget(file.id)


async def _within(event: asyncio.Event, seconds: float) -> None:
    """Wait for ``event``, at most ``seconds``. Before Python 3.12, ``wait_for`` loses a
    cancellation that arrives with the event."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def read_input(
    files: Files, piece: Piece, limits: BatchLimits
) -> tuple[list[tuple[int, int, int]], int, list[dict[str, Any]]]:
    """The pieces (number, offset, size) of a batch, its number of lines, and their errors."""
    errors: list[dict[str, Any]] = []
    cut: list[tuple[int, int, int]] = []
    names: set[str] = set()
    number = offset = total = first = start = size = 0

    def wrong(code: str, message: str, line: int | None = None, param: str | None = None) -> None:
        errors.append({"code": code, "message": message, "line": line, "param": param})

    try:
        for line in input_lines(files, piece.input_file_id, piece.size, limits.line_bytes):
            if number % PIECE_LINES == 0 and number:
                cut.append((first, start, size))
                first, start, size = number, offset, 0
                time.sleep(0.0005)  # the engine's thread wants its turns
            offset += len(line)
            size += len(line)
            number += 1
            if number > limits.batch_requests:
                most = f"{limits.batch_requests} lines, the limit (LEAPJSON_BATCH_REQUESTS)"
                wrong("too_many_requests", f"the batch has more than {most}; split it")
                break
            if not (text := line.strip()):
                continue
            total += 1
            if found := _wrong_line(text, piece.endpoint, names, limits.check):
                wrong(*found[:2], number, found[2])
                if len(errors) == _MOST_ERRORS:
                    break
    except ValueError as error:
        wrong("invalid_file", str(error), number + 1)
    except FileNotFoundError:
        wrong("invalid_file", "the contents of the input file no longer exist")
    cut.append((first, start, size))
    if not total and not errors:
        wrong("empty_file", "the input file has no requests")
    return cut, total, errors


def _wrong_line(
    line: bytes, endpoint: str, names: set[str], check: Callable[[bytes], None]
) -> tuple[str, str, str | None] | None:
    """Code, message and field of a line's error, or None; ``names`` collects the custom_ids."""
    try:
        check(line)
        asked = from_json(line.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
    except (ValueError, LeapjsonError) as error:
        return "invalid_json_line", f"the line is not JSON: {error}", None
    if not isinstance(asked, dict):
        return "invalid_json_line", "the line is not a JSON object", None
    wrong, name = wrong_request(asked, [endpoint]), asked.get("custom_id", "")
    if wrong is not None and wrong[2] == "custom_id":
        return wrong
    if name in names:
        message = f"custom_id {name[:64]!r} is used by an earlier line"
        return "duplicate_custom_id", message, "custom_id"
    names.add(name)
    return wrong


def wrong_request(asked: Mapping[str, Any], urls: Sequence[str]) -> tuple[str, str, str] | None:
    """Code, message and field of an error in a line's object, checked by itself."""
    name = asked.get("custom_id")
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_ID:
        wanted = f"custom_id must be a string of 1 to {_LONGEST_ID} characters"
        return "missing_required_parameter", wanted, "custom_id"
    if asked.get("method") != "POST":
        return "invalid_method", "method must be POST", "method"
    if asked.get("url") not in urls:
        wanted = "one of " if len(urls) > 1 else "the batch's endpoint, "
        return "mismatched_url", f"url must be {wanted}{', '.join(urls)}", "url"
    if not isinstance(asked.get("body"), dict):
        return "missing_required_parameter", "body must be an object", "body"
    return None


def input_lines(files: Files, file_id: str, size: int, most: int) -> Iterator[bytes]:
    """The lines of a file with their ends. Raises ValueError for one above ``most`` bytes."""
    held = b""
    for offset in range(0, size, CHUNK):
        *lines, held = (held + files.read(file_id, offset, CHUNK)).split(b"\n")
        if max(map(len, (held, *lines))) > most:
            raise ValueError(f"the line is longer than the limit of {most} bytes")
        for line in lines:
            yield line + b"\n"
    if held:
        yield held


def write_files(
    state: State, files: Files, batch: Mapping[str, Any], output: IO[bytes], errors: IO[bytes]
) -> int:
    """Write a batch's answers in the order of its lines; returns the number of successful ones.

    Lines without an answer go to ``errors``, with the reason.
    """
    reason, cause = "batch_cancelled", "the batch was cancelled"
    if "expired_at" in batch:
        reason, cause = "batch_expired", "the batch's completion window ended"
    message = f"{cause} before this request was answered"
    completed, known = 0, _answers(state, batch["id"])
    answer = next(known, None)
    size = batch["input_bytes"] if batch["total"] else 0  # 0: stopped before it was read
    try:
        for number, line in enumerate(input_lines(files, batch["input_file_id"], size, 1 << 40)):
            if not line.strip():
                continue
            if answer is not None and answer.line == number:
                (output if answer.ok else errors).write(answer.text + b"\n")
                completed += answer.ok
                answer = next(known, None)
            else:
                errors.write(_unanswered(line, reason, message) + b"\n")
            if number % PIECE_LINES == 0:
                time.sleep(0.0005)
    except FileNotFoundError:
        logger.error("the input file of %s no longer exists", batch["id"])
        while answer is not None:
            (output if answer.ok else errors).write(answer.text + b"\n")
            completed += answer.ok
            answer = next(known, None)
    return completed


def _answers(state: State, batch_id: str) -> Iterator[Any]:
    line = 0
    while rows := state.answers_from(batch_id, line, _MOST_RECORDED):
        yield from rows
        line = rows[-1].line + 1


def _read_line(line: bytes) -> tuple[str, bytes | None]:
    """custom_id and body of a valid line; body None if it asks for a stream."""
    asked = from_json(line.removeprefix(codecs.BOM_UTF8))
    body = asked["body"]
    return asked["custom_id"], None if body.get("stream") else to_json(body)


def _unanswered(line: bytes, code: str, message: str) -> bytes:
    head = {"id": f"batch_req_{secrets.token_hex(12)}", "custom_id": _read_line(line)[0]}
    return to_json({**head, "response": None, "error": {"code": code, "message": message}})
