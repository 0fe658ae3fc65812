"""The state of the store: its tables, and every statement on them. SQLite or PostgreSQL.

A batch is divided into pieces, which are rows that any server may lease::

    VALIDATE (the whole file) ── lines 0..31, 32..63, ... ── WRITE (the output and error files)

A finished piece is deleted; when the last one of a phase is, the next phase's pieces are added.
Answers have the key (batch, line), so only one answer is kept if two servers answer a line.
Identifiers begin with a time stamp, so they are in the order of creation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from app.core.errors import LeapjsonError, QuotaExceeded
from app.store.rows import COUNTS, RESPONSE, VALIDATE, WRITE, NewFile, Piece, fresh_id

VERSION = 2
"""Version of the tables; others are refused."""
LIVE = ("validating", "in_progress", "finalizing", "cancelling")
"""Statuses of batches that have not ended."""
_MOMENTS = (
    "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled",
)  # fmt: skip

metadata = sa.MetaData()
_version = sa.Table("leapjson_store", metadata, sa.Column("version", sa.Integer, primary_key=True))
files = sa.Table(
    "leapjson_files",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("owner", sa.String, nullable=False, index=True),
    sa.Column("purpose", sa.String, nullable=False),
    sa.Column("filename", sa.String, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("ready", sa.Boolean, nullable=False),  # whether its contents are stored
)
batches = sa.Table(
    "leapjson_batches",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("owner", sa.String, nullable=False, index=True),
    sa.Column("status", sa.String, nullable=False, index=True),
    sa.Column("endpoint", sa.String, nullable=False),
    sa.Column("input_file_id", sa.String, nullable=False),
    sa.Column("input_bytes", sa.BigInteger, nullable=False),
    sa.Column("completion_window", sa.String, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    *[sa.Column(f"{name}_at", sa.BigInteger) for name in _MOMENTS],
    sa.Column("output_seconds", sa.BigInteger, nullable=False),  # lifetime of its output files
    sa.Column("output_file_id", sa.String),
    sa.Column("error_file_id", sa.String),
    sa.Column("total", sa.Integer, nullable=False, default=0),
    sa.Column("completed", sa.Integer),  # once it has ended; until then answers are counted
    sa.Column("failed", sa.Integer),
    sa.Column("errors", sa.JSON),
    sa.Column("metadata", sa.JSON),
)
pieces = sa.Table(
    "leapjson_pieces",
    metadata,
    sa.Column("batch_id", sa.String, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),  # of its first line
    sa.Column("offset", sa.BigInteger, nullable=False),  # in bytes of the input file, like the next
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("leased_by", sa.String, nullable=False, default="", index=True),
    sa.Column("leased_until", sa.Float, nullable=False, default=0.0),
    sa.Column("tries", sa.Integer, nullable=False, default=0),
    sa.Column("alone", sa.Integer),  # line sent alone, after several servers crashed
    sa.Column("deaths", sa.Integer, nullable=False, default=0),  # server crashes during that
)
answers = sa.Table(
    "leapjson_answers",
    metadata,
    sa.Column("batch_id", sa.String, primary_key=True),
    sa.Column("line", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("ok", sa.Boolean, nullable=False),
    sa.Column("text", sa.LargeBinary, nullable=False),
    sa.Index("leapjson_answers_ok", "batch_id", "ok"),
)
usage = sa.Table(
    "leapjson_usage",
    metadata,
    sa.Column("owner", sa.String, primary_key=True),
    sa.Column("day", sa.String, primary_key=True),
    *[sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTS],
)
kept = sa.Table(
    "leapjson_kept",  # responses, registered schemas, compiled programs
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("owner", sa.String, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("nbytes", sa.BigInteger, nullable=False),
    sa.Column("used_at", sa.BigInteger, nullable=False),
    sa.Index("leapjson_kept_used", "owner", "kind", "used_at", "nbytes"),
)


_PIECE = tuple(Piece.__dataclass_fields__)
"""Columns of pieces and batches."""


class State:
    """Blocking; any thread. Each method is one transaction; times are Unix times."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        """Creates missing tables. Raises ``LeapjsonError`` for tables of another version, and
        SQLAlchemy's errors."""
        self._clock = clock
        self._is_sqlite = url.startswith("sqlite")
        if self._is_sqlite:
            self._engine = sa.create_engine(url)
            sa.event.listen(self._engine, "connect", _prepare_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
        else:
            self._engine = sa.create_engine(
                url,
                pool_pre_ping=True,
                connect_args={
                    "connect_timeout": 5,
                    "tcp_user_timeout": 20_000,
                    "options": "-c statement_timeout=30000 -c lock_timeout=10000",
                    "application_name": "leapjson",
                },
            )
        self._reading = self._engine.execution_options(reads=True)
        try:
            self._create()
        except BaseException:
            self._engine.dispose()
            raise

    def _create(self) -> None:
        with self._engine.begin() as connection:
            if not self._is_sqlite:  # replicas that start together create them once
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(0x1EA9)))
            metadata.create_all(connection)
            found = connection.scalar(sa.select(_version.c.version))
            if found is None:
                connection.execute(sa.insert(_version).values(version=VERSION))
            elif found != VERSION:
                raise LeapjsonError(
                    f"the store has tables of version {found}, and this server needs version "
                    f"{VERSION}; run the matching server, or use an empty store"
                )

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _alone(self, owner: str) -> Iterator[sa.Connection]:
        """A transaction that excludes others of this kind for ``owner``, so that quotas hold."""
        with self._engine.begin() as connection:
            if not self._is_sqlite:
                connection.execute(
                    sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(owner)))
                )
            yield connection

    def _insert(self, table: sa.Table) -> Any:
        return (sqlite if self._is_sqlite else postgresql).insert(table)

    # Files

    def reserve_file(self, owner: str, file_id: str, size: int, most: int) -> None:
        """Reserve room for an upload. Raises ``QuotaExceeded`` above ``most`` bytes."""
        with self._alone(owner) as connection:
            total = sa.select(sa.func.coalesce(sa.func.sum(files.c.bytes), 0))
            used = connection.scalar(total.where(files.c.owner == owner)) or 0
            if used + size > most:
                raise QuotaExceeded(
                    f"the files of this API key have {used} bytes, this one adds up to {size} and "
                    f"the limit is {most} (LEAPJSON_KEY_BYTES); delete some"
                )
            row = {"id": file_id, "owner": owner, "purpose": "", "filename": "", "bytes": size}
            connection.execute(sa.insert(files).values(**row, created_at=self._now(), ready=False))

    def complete_file(self, file: NewFile) -> Mapping[str, Any]:
        """Mark a file as complete; returns its row."""
        with self._engine.begin() as connection:
            return _complete(connection, file)

    def find_file(self, owner: str, file_id: str) -> Mapping[str, Any] | None:
        where = (files.c.id == file_id) & (files.c.owner == owner) & self._is_visible()
        return next(iter(self._rows(sa.select(files).where(where))), None)

    def list_files(
        self, owner: str, purpose: str | None, after: str | None, limit: int, order: str
    ) -> Sequence[Mapping[str, Any]]:
        query = sa.select(files).where(files.c.owner == owner, self._is_visible())
        query = query if purpose is None else query.where(files.c.purpose == purpose)
        return self._rows(_paged(query, files.c.id, after, limit, order))

    def _is_visible(self) -> Any:
        return files.c.ready & (files.c.expires_at > self._now())

    def delete_file(self, owner: str, file_id: str) -> str | None:
        """Delete a file, unless an unfinished batch reads it; returns the id of that batch."""
        with self._engine.begin() as connection:
            batch_id: str | None = connection.scalar(_in_use(file_id))
            if batch_id is None:
                where = (files.c.id == file_id) & (files.c.owner == owner)
                connection.execute(sa.delete(files).where(where))
            return batch_id

    def drop_file(self, file_id: str) -> None:
        """Delete a file that is incomplete, or unknown to clients."""
        self._write(sa.delete(files).where(files.c.id == file_id))

    def forget_old(
        self, *, upload_seconds: int, batch_seconds: int, response_seconds: int
    ) -> list[str]:
        """Expire batches and drop old rows; returns ids of files whose contents to delete."""
        now = self._now()
        with self._engine.begin() as connection:
            late = sa.select(batches.c.id).where(
                batches.c.status.in_(("validating", "in_progress")), batches.c.expires_at <= now
            )
            for batch_id in connection.scalars(late).all():
                self._stop(connection, batch_id, "expired")
            unfinished = ~files.c.ready & (files.c.created_at < now - upload_seconds)
            old = (files.c.expires_at <= now) & ~_in_use(files.c.id).exists()
            gone = connection.scalars(sa.select(files.c.id).where(unfinished | old)).all()
            ended = batches.c.status.not_in(LIVE) & (batches.c.created_at < now - batch_seconds)
            connection.execute(sa.delete(batches).where(ended))
            unused = (kept.c.kind == RESPONSE) & (kept.c.used_at < now - response_seconds)
            connection.execute(sa.delete(kept).where(unused))
        return list(gone)

    # Batches

    def add_batch(self, owner: str, row: Mapping[str, Any], most: int) -> Mapping[str, Any]:
        """Add a batch. Raises ``QuotaExceeded`` if ``owner`` has ``most`` unfinished ones."""
        batch = {"id": fresh_id("batch_"), "owner": owner, "status": "validating", **row}
        batch["created_at"] = now = self._now()
        batch["expires_at"] = now + batch.pop("window_seconds")
        with self._alone(owner) as connection:
            live = sa.select(sa.func.count()).where(
                batches.c.owner == owner, batches.c.status.in_(LIVE)
            )
            if (connection.scalar(live) or 0) >= most:
                raise QuotaExceeded(
                    f"this API key has {most} unfinished batches (the limit); wait for one or "
                    "cancel it"
                )
            connection.execute(sa.insert(batches).values(batch))
            piece = {"batch_id": batch["id"], "number": VALIDATE, "offset": 0}
            connection.execute(sa.insert(pieces).values(**piece, size=batch["input_bytes"]))
            return self._batches(connection, [_row(connection, batch["id"])])[0]

    def find_batch(self, owner: str, batch_id: str) -> Mapping[str, Any] | None:
        with self._reading.connect() as connection:
            where = (batches.c.id == batch_id) & (batches.c.owner == owner)
            found = connection.execute(sa.select(batches).where(where)).all()
            return next(iter(self._batches(connection, found)), None)

    def list_batches(self, owner: str, after: str | None, limit: int) -> list[Mapping[str, Any]]:
        with self._reading.connect() as connection:
            query = sa.select(batches).where(batches.c.owner == owner)
            query = _paged(query, batches.c.id, after, limit, "desc")
            return self._batches(connection, connection.execute(query).all())

    def cancel(self, batch_id: str) -> None:
        with self._engine.begin() as connection:
            self._stop(connection, batch_id, "cancelling")

    def _batches(
        self, connection: sa.Connection, rows: Sequence[sa.Row[Any]]
    ) -> list[Mapping[str, Any]]:
        """Batches with their counts so far."""
        running = [row.id for row in rows if row.completed is None]
        key = answers.c.batch_id, answers.c.ok
        query = (
            sa.select(*key, sa.func.count()).where(answers.c.batch_id.in_(running)).group_by(*key)
        )
        found = connection.execute(query) if running else ()
        counts = {(batch_id, ok): count for batch_id, ok, count in found}
        return [
            {"completed": counts.get((row.id, True), 0), "failed": counts.get((row.id, False), 0)}
            | {name: value for name, value in row._mapping.items() if value is not None}
            for row in rows
        ]

    def _stop(self, connection: sa.Connection, batch_id: str, moment: str) -> None:
        """Stop a batch: leased pieces end by themselves, and then its files are written."""
        row = _row(connection, batch_id, lock=True)
        if row is None or row.status not in ("validating", "in_progress"):
            return
        status = "finalizing" if moment == "expired" else moment
        moments = {f"{each}_at": self._now() for each in (status, moment)}
        _set(connection, batch_id, status=status, **moments)
        idle = pieces.c.leased_until < self._clock()
        connection.execute(sa.delete(pieces).where(pieces.c.batch_id == batch_id, idle))
        self._go_on(connection, batch_id, status)

    def _go_on(self, connection: sa.Connection, batch_id: str, status: str) -> None:
        """Have the files of a batch written if it has no piece left. Its row is locked."""
        if connection.scalar(sa.select(sa.func.count()).where(pieces.c.batch_id == batch_id)):
            return
        piece = {"batch_id": batch_id, "number": WRITE, "offset": 0, "size": 0}
        connection.execute(sa.insert(pieces).values(piece))
        if status == "in_progress":
            _set(connection, batch_id, status="finalizing", finalizing_at=self._now())

    # Pieces

    def take(
        self, server: str, owners: Iterable[str], seconds: float, *, lines: bool = True
    ) -> Piece | None:
        """Lease a piece of the oldest batch with free ones, of the owner with fewest leased; None
        if there is none. ``lines`` False: only pieces without lines."""
        now = self._clock()
        joined = pieces.join(batches, pieces.c.batch_id == batches.c.id)
        leased = sa.func.sum(sa.case((pieces.c.leased_until < now, 0), else_=1))
        free = sa.and_(pieces.c.leased_until < now, sa.true() if lines else pieces.c.number < 0)
        waiting = sa.func.sum(sa.case((free, 1), else_=0))
        with self._engine.begin() as connection:
            query = sa.select(batches.c.owner).select_from(joined)
            query = query.where(batches.c.owner.in_(list(owners))).group_by(batches.c.owner)
            query = query.having(waiting > 0).order_by(leased, sa.func.min(pieces.c.batch_id))
            for owner in connection.scalars(query).all():
                piece = connection.execute(
                    sa.select(
                        *[(pieces if name in pieces.c else batches).c[name] for name in _PIECE]
                    )
                    .select_from(joined)
                    .where(batches.c.owner == owner, free)
                    .order_by(pieces.c.batch_id, pieces.c.number)
                    .limit(1)
                    .with_for_update(skip_locked=True, of=pieces)
                ).first()
                if piece is not None:
                    lease = {"leased_by": server, "leased_until": now + seconds}
                    here = _piece(piece.batch_id, piece.number)
                    tries = pieces.c.tries + 1
                    connection.execute(sa.update(pieces).where(here).values(**lease, tries=tries))
                    return Piece(*piece)
        return None

    def renew(self, server: str, seconds: float) -> dict[tuple[str, int], bool]:
        """Renew the leases of a server; returns them, and whether to go on with each."""
        mine = pieces.c.leased_by == server
        with self._engine.begin() as connection:
            until = self._clock() + seconds
            connection.execute(sa.update(pieces).where(mine).values(leased_until=until))
            joined = pieces.join(batches, pieces.c.batch_id == batches.c.id)
            columns = (pieces.c.batch_id, pieces.c.number, batches.c.status)
            found = connection.execute(sa.select(*columns).select_from(joined).where(mine)).all()
        return {
            (batch_id, number): number == WRITE or status in ("validating", "in_progress")
            for batch_id, number, status in found
        }

    def release(self, server: str) -> None:
        """Release the leases of a server that stops normally; "": those of all servers."""
        values: dict[str, Any] = {"leased_by": "", "leased_until": 0.0}
        if server:
            values |= {"tries": pieces.c.tries - 1, "alone": None}
        mine = pieces.c.leased_by == server if server else pieces.c.leased_by != ""
        self._write(sa.update(pieces).where(mine).values(values))

    def ask_alone(self, piece: Piece, line: int) -> int:
        """Record that ``line`` is sent alone; returns how often servers crashed during that."""
        with self._engine.begin() as connection:
            here = _piece(*piece.key)
            row = connection.execute(sa.select(pieces.c.alone, pieces.c.deaths).where(here)).first()
            deaths = row.deaths + 1 if row is not None and row.alone == line else 0
            connection.execute(sa.update(pieces).where(here).values(alone=line, deaths=deaths))
            return deaths

    def answered(self, batch_id: str, first: int, last: int) -> set[int]:
        """Which of the lines ``first`` to ``last`` have answers."""
        where = (answers.c.batch_id == batch_id) & answers.c.line.between(first, last)
        return {row["line"] for row in self._rows(sa.select(answers.c.line).where(where))}

    def record(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Save answers; the first for a line wins. Those of ended batches are dropped."""
        with self._engine.begin() as connection:
            for batch_id in sorted({row["batch_id"] for row in rows}):
                batch = _row(connection, batch_id, lock=True)
                if batch is not None and batch.status in LIVE:
                    own = [row for row in rows if row["batch_id"] == batch_id]
                    connection.execute(self._insert(answers).on_conflict_do_nothing(), own)

    def validated(
        self,
        piece: Piece,
        server: str,
        found: Sequence[tuple[int, int, int]],
        total: int,
        errors: Sequence[Mapping[str, Any]],
        most: int,
    ) -> None:
        """Add the pieces ``found`` of an input of ``total`` lines: number, offset and size of each.

        Fails the batch if there are ``errors``, or above ``most`` unfinished lines of its owner.
        """
        with self._alone(piece.owner) as connection:
            batch = self._drop_piece(connection, piece, server)
            if batch is None:
                return
            if batch.status != "validating":
                self._go_on(connection, piece.batch_id, batch.status)
                return
            running = batches.c.status.in_(("in_progress", "finalizing", "cancelling"))
            query = sa.select(sa.func.coalesce(sa.func.sum(batches.c.total), 0))
            query = query.where(batches.c.owner == piece.owner, running)
            queued = connection.scalar(query) or 0
            if not errors and queued + total > most:
                message = (
                    f"the unfinished batches of this API key have {queued} requests, this one "
                    f"adds {total} and the limit is {most} (LEAPJSON_KEY_REQUESTS); wait for them "
                    "to finish"
                )
                error = {"code": "request_limit_exceeded", "message": message}
                errors = [{**error, "line": None, "param": None}]
            status = "failed" if errors else "in_progress"
            values: dict[str, Any] = {"status": status, f"{status}_at": self._now()}
            if errors:
                _set(connection, piece.batch_id, **values, errors=list(errors))
                return
            _set(connection, piece.batch_id, **values, total=total)
            names = ("batch_id", "number", "offset", "size")
            rows = [dict(zip(names, (piece.batch_id, *each), strict=True)) for each in found]
            connection.execute(sa.insert(pieces), rows)

    def finish(self, piece: Piece, server: str) -> None:
        """Delete a finished piece, whose lines have answers or need none."""
        with self._engine.begin() as connection:
            batch = self._drop_piece(connection, piece, server)
            if batch is not None:
                self._go_on(connection, piece.batch_id, batch.status)

    def _drop_piece(
        self, connection: sa.Connection, piece: Piece, server: str
    ) -> sa.Row[Any] | None:
        """Delete a piece; returns its batch, locked, or None if another server has the piece."""
        batch = _row(connection, piece.batch_id, lock=True)
        here = _piece(*piece.key) & (pieces.c.leased_by == server)
        return batch if connection.execute(sa.delete(pieces).where(here)).rowcount else None

    def answers_from(self, batch_id: str, line: int, limit: int) -> Sequence[Any]:
        """Line, ok and text of the answers from ``line`` on, in order."""
        query = sa.select(answers.c.line, answers.c.ok, answers.c.text)
        query = query.where(answers.c.batch_id == batch_id, answers.c.line >= line)
        with self._reading.connect() as connection:
            return connection.execute(query.order_by(answers.c.line).limit(limit)).all()

    def written(
        self, piece: Piece, server: str, written: Mapping[str, NewFile], completed: int, failed: int
    ) -> bool:
        """End a batch with its files, by column; returns False if another server writes them."""
        with self._engine.begin() as connection:
            batch = self._drop_piece(connection, piece, server)
            if batch is None:
                return False
            status = "cancelled" if batch.status == "cancelling" else "completed"
            moments = {f"{status}_at": self._now()}
            if batch.expired_at is not None:
                status, moments = "expired", {}
            for file in written.values():
                _complete(connection, file)
            values = {"status": status, "completed": completed, "failed": failed, **moments}
            ids = {column: file.id for column, file in written.items()}
            _set(connection, piece.batch_id, **values, **ids)
            connection.execute(sa.delete(answers).where(answers.c.batch_id == piece.batch_id))
            return True

    # Usage, and what is kept

    def add_usage(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Counts by ``owner`` and ``day`` (2026-11-26), which are added to those that are there."""
        statement = self._insert(usage)
        added = {name: usage.c[name] + statement.excluded[name] for name in COUNTS}
        with self._engine.begin() as connection:
            connection.execute(
                statement.on_conflict_do_update(index_elements=["owner", "day"], set_=added),
                sorted(rows, key=lambda row: (row["owner"], row["day"])),
            )

    def find_usage(self, owner: str, first: str, last: str) -> Sequence[Mapping[str, Any]]:
        where = (usage.c.owner == owner) & usage.c.day.between(first, last)
        return self._rows(sa.select(usage).where(where).order_by(usage.c.day))

    def keep(
        self, kind: str, owner: str, kept_id: str, body: bytes, nbytes: int, most: int
    ) -> None:
        """Store a body. Above ``most`` bytes, drop the owner's least recently used of that kind."""
        row = {"id": kept_id, "kind": kind, "owner": owner, "body": body, "nbytes": nbytes}
        with self._alone(owner) as connection:
            row |= {"used_at": self._now()}
            connection.execute(self._insert(kept).on_conflict_do_nothing(), row)
            own = (kept.c.owner == owner) & (kept.c.kind == kind)
            over = (connection.scalar(sa.select(sa.func.sum(kept.c.nbytes)).where(own)) or 0) - most
            if over <= 0:
                return
            columns = sa.select(kept.c.id, kept.c.nbytes).where(own)
            for each, size in connection.execute(columns.order_by(kept.c.used_at)):
                if over <= 0:
                    break
                connection.execute(sa.delete(kept).where(kept.c.id == each))
                over -= size

    def find_kept(
        self, kind: str, kept_id: str, *, owner: str | None = None, seconds: int | None = None
    ) -> bytes | None:
        """A kept body, if it is ``owner``'s and used in the last ``seconds``; counts as a use."""
        now = self._now()
        here = (kept.c.id == kept_id) & (kept.c.kind == kind)
        if owner is not None:
            here &= kept.c.owner == owner
        with self._reading.connect() as connection:
            found = connection.execute(sa.select(kept.c.body, kept.c.used_at).where(here)).first()
        if found is None or (seconds is not None and found.used_at <= now - seconds):
            return None
        if found.used_at < now - 60:  # to save writes
            self._write(sa.update(kept).where(here).values(used_at=now))
        body: bytes = found.body
        return body

    def delete_kept(self, kind: str, owner: str, kept_id: str) -> bool:
        """Delete a kept body; returns whether the owner had it."""
        here = (kept.c.id == kept_id) & (kept.c.kind == kind) & (kept.c.owner == owner)
        return self._write(sa.delete(kept).where(here)) > 0

    def _now(self) -> int:
        return int(self._clock())

    def _rows(self, query: Any) -> list[dict[str, Any]]:
        with self._reading.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def _write(self, statement: Any) -> int:
        """Execute ``statement``; returns the number of changed rows."""
        with self._engine.begin() as connection:
            return connection.execute(statement).rowcount


def _complete(connection: sa.Connection, file: NewFile) -> Mapping[str, Any]:
    statement = sa.update(files).where(files.c.id == file.id).returning(files)
    changed = {"purpose": file.purpose, "filename": file.filename, "bytes": file.size}
    expires = files.c.created_at + file.seconds
    found = connection.execute(statement.values(**changed, expires_at=expires, ready=True))
    return dict(found.one()._mapping)


def _paged(query: Any, key: Any, after: str | None, limit: int, order: str) -> Any:
    """The first ``limit`` rows of ``query`` after the row ``after``, in the order of ``key``."""
    if after is not None:
        query = query.where(key < after if order == "desc" else key > after)
    return query.order_by(key.desc() if order == "desc" else key).limit(limit)


def _piece(batch_id: str, number: int) -> Any:
    return (pieces.c.batch_id == batch_id) & (pieces.c.number == number)


def _set(connection: sa.Connection, batch_id: str, **values: Any) -> None:
    connection.execute(sa.update(batches).where(batches.c.id == batch_id).values(values))


def _row(connection: sa.Connection, batch_id: str, *, lock: bool = False) -> Any:
    query = sa.select(batches).where(batches.c.id == batch_id)
    return connection.execute(query.with_for_update() if lock else query).first()


def _in_use(file_id: Any) -> Any:
    """The batches that read a file and have not ended."""
    return sa.select(batches.c.id).where(
        batches.c.input_file_id == file_id, batches.c.status.in_(LIVE)
    )


def _prepare_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # transactions begin as ``_begin_sqlite`` says
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=20000"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: sa.Connection) -> None:
    """Writing transactions take the lock at once: after a read it may not be available."""
    reads = connection.get_execution_options().get("reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
