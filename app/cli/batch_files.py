"""The files of ``leapjson batch``: lines in, a journal of their answers, tables out.

The output is written from the journal at the end, and renamed when it is complete: so there is
never a partial output.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

from pydantic_core import from_json, to_json

from app.answer.pieces import pointer_below
from app.cli.specification import UnusableInput
from app.http.batches import ENDPOINTS as URLS
from app.serving.batches import wrong_request

Kind = Literal["valid", "invalid", "answer", "error"]
"""``valid`` and ``invalid``: an answer that satisfies or violates the schema of its request;
``answer``: one without a schema; ``error``: no answer."""

_LONGEST_FIELD = 1 << 28
"""Bytes of a field of a CSV file; Python's own limit is 128 KiB."""
_ROWS = 1000
"""Rows of a Parquet file that are read or written at a time."""
_TABLES = """
    PRAGMA locking_mode = EXCLUSIVE;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS run (fingerprint TEXT);
    CREATE TABLE IF NOT EXISTS lines (
        place INTEGER PRIMARY KEY, number INTEGER UNIQUE, kind TEXT, record BLOB
    );
"""
_PLACEHOLDER = re.compile(r"\{([^{}\"\n:]+)\}")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the input."""

    number: int
    """Line number, from 0."""
    custom_id: str
    url: str = ""
    body: Mapping[str, Any] | None = None
    problem: str | None = None
    """Reason why the line cannot be sent, and what to change."""


@dataclass(frozen=True, slots=True)
class Template:
    """The request for each row of a table."""

    prompt: str
    """``{name}`` stands for a column, ``{text}`` for ``column`` where that is given."""
    column: str | None
    schema: Any
    """Schema of the answers; None: plain text."""

    def check(self, columns: Sequence[str], name: str) -> None:
        """Raises ``UnusableInput`` for a column that is not in the file ``name``."""
        needed = [self._column(each) for each in _PLACEHOLDER.findall(self.prompt)]
        if not needed:
            raise UnusableInput(
                "--prompt names no column: write {text} (see --column) or {name} for one"
            )
        for each in [*needed, *([self.column] if self.column else [])]:
            if each not in columns:
                raise UnusableInput(
                    f"{name} has no column {each!r}; it has {', '.join(map(repr, columns))}"
                )

    def _column(self, placeholder: str) -> str:
        return self.column if placeholder == "text" and self.column else placeholder

    def line(self, number: int, row: Mapping[str, Any]) -> Line:
        cells, custom_id = dict[str, str](), f"row-{number + 1}"
        for name in _PLACEHOLDER.findall(self.prompt):
            value = row.get(self._column(name))
            if value is None:
                problem = f"the row has no {self._column(name)!r}, a column that the prompt uses"
                return Line(number, custom_id, problem=problem)
            cells[name] = value if isinstance(value, str) else json.dumps(value, default=str)
        content = _PLACEHOLDER.sub(lambda found: cells[found[1]], self.prompt)
        body: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
        if self.schema is not None:
            named = {"name": "answer", "schema": self.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return Line(number, custom_id, URLS[0], body)


class Input:
    """A file of requests, read as a stream as often as needed."""

    def __init__(self, name: str, template: Template | None) -> None:
        """``template`` None: lines of OpenAI's batches. Raises ``UnusableInput``."""
        self._name = name
        self._template = template
        self._suffix = Path(name).suffix.lower()
        known = (".jsonl",) if template is None else (".csv", ".parquet", ".jsonl")
        if self._suffix not in known:
            raise UnusableInput(
                f"{name}: the input's name must end in {' or '.join(known)}"
                + ("; for a table add --prompt" if template is None else "")
            )
        try:
            with open(name, "rb") as file:
                self.digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise UnusableInput(f"{name}: {error.strerror}") from None
        first = next(self._rows(), None)
        if template is not None and (row := parsed_object(first)) is not None:
            template.check(list(row), name)
        if self._suffix == ".parquet":
            self.count: int = _parquet().ParquetFile(name).metadata.num_rows
        else:
            self.count = sum(1 for _ in self._rows())

    def lines(self) -> Iterator[Line]:
        """All lines; those that cannot be sent have a ``problem``."""
        seen: set[bytes] = set()
        """Digests of the ids so far: 10 MB for 100,000."""
        for number, row in enumerate(islice(self._rows(), self.count)):
            line = self._line(number, row)
            digest = hashlib.blake2b(line.custom_id.encode(), digest_size=8).digest()
            if digest in seen and line.problem is None:
                problem = f"custom_id {line.custom_id!r} is used by an earlier line; change it"
                line = Line(number, line.custom_id, problem=problem)
            seen.add(digest)
            yield line

    def _line(self, number: int, given: Any) -> Line:
        row = parsed_object(given)
        if row is None:
            return Line(number, f"line-{number + 1}", problem="not a JSON object")
        if self._template is not None:
            return self._template.line(number, row)
        if (wrong := wrong_request(row, URLS)) is not None:
            custom_id = f"line-{number + 1}" if wrong[2] == "custom_id" else row["custom_id"]
            return Line(number, custom_id, problem=wrong[1])
        if row["body"].get("stream"):
            problem = "stream is not supported in a batch; leave body.stream out"
            return Line(number, row["custom_id"], problem=problem)
        return Line(number, row["custom_id"], row["url"], row["body"])

    def _rows(self) -> Iterator[Any]:
        """The lines of a JSONL file as bytes, the rows of others as objects.

        Raises ``UnusableInput``.
        """
        try:
            if self._suffix == ".jsonl":
                with open(self._name, "rb") as file:
                    yield from filter(bytes.strip, file)
            elif self._suffix == ".parquet":
                for batch in _parquet().ParquetFile(self._name).iter_batches(_ROWS):
                    yield from batch.to_pylist()
            else:
                csv.field_size_limit(_LONGEST_FIELD)
                with open(self._name, encoding="utf-8-sig", newline="") as text:
                    for row in csv.DictReader(text):
                        row.pop(None, None)  # cells without a column
                        yield row
        except OSError as error:
            raise UnusableInput(f"{self._name}: {error.strerror or error}") from None
        except (ValueError, csv.Error) as error:  # not UTF-8; pyarrow's errors
            raise UnusableInput(f"{self._name}: {error}") from None


def parsed_object(given: Any) -> dict[str, Any] | None:
    """``given``, or its JSON value, if that is an object; else None."""
    try:
        row = from_json(given) if isinstance(given, bytes | str) else given
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


class Journal:
    """The records of finished lines, in an SQLite file.

    Each is written (to the write-ahead log) at once, so a kill loses none.
    """

    def __init__(self, name: str, fingerprint: str) -> None:
        """Open or create the journal ``name``, which no other process may have open.

        Raises ``UnusableInput`` if it belongs to another run, or is in use.
        """
        self.name = name
        self.counts: dict[Kind, int] = {"valid": 0, "invalid": 0, "answer": 0, "error": 0}
        try:
            # One thread at a time uses it: the output is written in another one.
            self._database = sqlite3.connect(
                name, timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.OperationalError as error:
            raise UnusableInput(f"{name}: {error}; choose a folder that is writable") from None
        try:
            with self._explained():
                self._database.executescript(_TABLES)
                found = self._database.execute("SELECT fingerprint FROM run").fetchone()
                if found is None:
                    self._database.execute("INSERT INTO run VALUES (?)", (fingerprint,))
                self.counts |= self._database.execute(
                    "SELECT kind, count(*) FROM lines GROUP BY kind"
                ).fetchall()
            if found not in (None, (fingerprint,)):
                raise UnusableInput(
                    f"{name} belongs to a run with another input or other options; repeat that "
                    "run, or delete the file to start over"
                )
        except BaseException:
            self._database.close()
            raise

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    def has(self, number: int) -> bool:
        found = self._database.execute("SELECT 1 FROM lines WHERE number = ?", (number,))
        return found.fetchone() is not None

    def add(self, number: int, kind: Kind, record: Mapping[str, Any]) -> None:
        """Write the record of a line, its only one. Raises ``UnusableInput``."""
        with self._explained():
            self._database.execute(
                "INSERT INTO lines (number, kind, record) VALUES (?, ?, ?)",
                (number, kind, to_json(record)),
            )
        self.counts[kind] += 1

    def forget_errors(self) -> None:
        """Delete failed lines, so that they are sent again."""
        with self._explained():
            self._database.execute("DELETE FROM lines WHERE kind = 'error'")
        self.counts["error"] = 0

    def records(self, *, ordered: bool) -> Iterator[tuple[Kind, bytes]]:
        """Kind and JSON of each line that is done, in input order if ``ordered``, else as added."""
        order = "number" if ordered else "place"
        return self._database.execute(f"SELECT kind, record FROM lines ORDER BY {order}")

    def close(self, *, delete: bool) -> None:
        self._database.close()
        if delete:
            os.unlink(self.name)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise UnusableInput(f"{self.name}: another process is writing to it") from None
            raise UnusableInput(
                f"{self.name}: {error}; earlier answers are saved: free some space and run the "
                "same command again"
            ) from None


@contextmanager
def _whole(name: str) -> Iterator[IO[bytes]]:
    """A file that is renamed to ``name`` when it is complete."""
    with open(f"{name}.new", "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{name}.new", name)


def write_output(
    name: str, errors: str, journal: Journal, *, ordered: bool, schema: Any, confidence: bool
) -> None:
    """Write the answers, in the format of the suffix of ``name``, and ``errors``, if any.

    A table has a row for each line, with its error where it has no answer. Raises
    ``UnusableInput``.
    """
    try:
        with _whole(errors) as file:
            found = journal.records(ordered=ordered)
            file.writelines(record + b"\n" for kind, record in found if kind == "error")
        if not journal.counts["error"]:
            os.unlink(errors)
        records = journal.records(ordered=ordered)
        with _whole(name) as file:
            if name.endswith(".jsonl"):
                file.writelines(record + b"\n" for kind, record in records if kind != "error")
                return
            table = _Table(schema, confidence=confidence)
            rows = (table.row(record) for _, record in records)
            if name.endswith(".csv"):
                table.write_csv(file, rows)
            else:
                table.write_parquet(file, rows)
    except OSError as error:
        raise UnusableInput(
            f"{error.filename or name}: {error.strerror}; the answers are saved in "
            f"{journal.name}: free some space and run the same command again"
        ) from None


class _Table:
    """Rows of a table: id, fields of the schema (or the answer's text without one), and error."""

    def __init__(self, schema: Any, *, confidence: bool) -> None:
        properties = schema.get("properties") if isinstance(schema, dict) else None
        self._fields: dict[str, Any] = properties if isinstance(properties, dict) else {}
        self._columns = ["custom_id", *map(_column_of, self._fields)]
        self._pointers: dict[str, str] = {}
        """Columns of confidences, by the JSON Pointers of their fields."""
        for name in self._fields if confidence else ():
            self._pointers[pointer_below("", name)] = f"{name}_confidence"
        self._columns += self._pointers.values()
        self._columns += ["error"] if self._fields else ["content", "error"]

    def row(self, record: bytes) -> dict[str, Any]:
        """A value for each column that has one."""
        found = from_json(record)
        row: dict[str, Any] = {"custom_id": found["custom_id"]}
        response, error = found["response"], found["error"]
        if error is not None or response["status_code"] != 200:
            error = error or response["body"].get("error")
            message = error.get("message") if isinstance(error, dict) else error
            return row | {"error": message or json.dumps(response)}
        content = content_of(response["body"])
        if not self._fields:
            return row | {"content": content}
        value = parsed_object(content)
        if value is None:
            return row | {
                "error": f"not an object, because the answer was cut off or refused: {content}"
            }
        row |= {_column_of(name): value.get(name) for name in self._fields}
        for each in response["body"]["choices"][0].get("confidence") or ():
            column = self._pointers.get(each["pointer"])
            if column is not None and "next" not in each:
                row[column] = each["probability"]
        return row

    def write_csv(self, file: IO[bytes], rows: Iterator[dict[str, Any]]) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.DictWriter(text, self._columns)
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _as_text(value) for name, value in row.items()})
        text.detach()

    def write_parquet(self, file: IO[bytes], rows: Iterator[dict[str, Any]]) -> None:
        import pyarrow

        types = {
            "integer": pyarrow.int64(),
            "number": pyarrow.float64(),
            "boolean": pyarrow.bool_(),
        }
        typed: dict[str, Any] = dict.fromkeys(self._pointers.values(), "number")
        for name, field in self._fields.items():
            found = field.get("type") if isinstance(field, dict) else None
            if isinstance(found, list):  # a type besides null
                others = [kind for kind in found if kind != "null"]
                found = others[0] if len(others) == 1 else None
            typed[_column_of(name)] = found
        schema = pyarrow.schema(
            [(name, types.get(str(typed.get(name)), pyarrow.string())) for name in self._columns]
        )

        def table(rows: Sequence[Mapping[str, Any]]) -> Any:
            texts = [field.name for field in schema if field.type == pyarrow.string()]
            values = [{**row, **{name: _as_text(row.get(name)) for name in texts}} for row in rows]
            try:
                return pyarrow.Table.from_pylist(values, schema)
            except (OverflowError, TypeError, ValueError):
                if len(rows) > 1:
                    return pyarrow.concat_tables([table([row]) for row in rows])
                text = f"a value does not have the type of its column: {json.dumps(rows[0])}"
                return table([{"custom_id": rows[0]["custom_id"], "error": text}])

        with _parquet().ParquetWriter(file, schema) as writer:
            while part := list(islice(rows, _ROWS)):
                writer.write_table(table(part))


def _column_of(name: str) -> str:
    """Column of a field, renamed if the table itself has one of that name."""
    return f"answer.{name}" if name in ("custom_id", "error") else name


def _as_text(value: Any) -> str | None:
    """Strings as they are, anything else as JSON spells it."""
    plain = value is None or isinstance(value, str)
    return value if plain else json.dumps(value, ensure_ascii=False)


def content_of(body: Mapping[str, Any]) -> str:
    """The text of the first choice of an answer of any of ``URLS``; "" where it has none."""
    if choices := body.get("choices"):
        return choices[0].get("text") or (choices[0].get("message") or {}).get("content") or ""
    parts = body.get("content") or [
        part for item in body.get("output") or () for part in item.get("content") or ()
    ]
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UnusableInput("Parquet files need pyarrow: pip install 'leapjson[batch]'") from None
    return pyarrow.parquet


def check_output(name: str, journal: str) -> bool:
    """Whether an earlier run, which left its ``journal``, has written the output.

    Raises ``UnusableInput`` if no such file can be written.
    """
    if not name.endswith((".jsonl", ".csv", ".parquet")):
        raise UnusableInput(f"{name}: the name must end in .jsonl, .csv or .parquet")
    if name.endswith(".parquet"):
        _parquet()
    if not Path(name).parent.is_dir():
        raise UnusableInput(f"{name}: the folder {Path(name).parent} does not exist")
    if Path(name).exists() and not Path(journal).exists():
        raise UnusableInput(f"{name} already exists; choose another name, or delete it")
    return Path(name).exists()
