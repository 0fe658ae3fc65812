"""The files of ``leapjson batch``: lines in, a journal of what came of them, answers out.

The journal is append-only. Each record is written with one call as soon as it is known, so a kill
loses none, and a record that a crash has torn has no newline and is cut off at the next start::

    leapjson batch 1 FINGERPRINT
    NUMBER <tab> KIND <tab> {"id": ..., "custom_id": ..., "response": ..., "error": ...}

The output is made from it at the end, whole, by renaming: it is there complete or not at all.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import json
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from pydantic_core import from_json, to_json

from app.cli.specification import UnusableInput

URLS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
Kind = Literal["valid", "invalid", "answer", "error"]
"""``valid`` and ``invalid`` are answers that were asked to have a schema, and have it or not;
``answer`` is any other, ``error`` is none."""

_LONGEST_FIELD = 1 << 28
"""Bytes of a field of a CSV file; Python's own limit is 128 KiB."""
_ROWS = 1000
"""Rows of a Parquet file that are read or written at a time."""
_TYPES: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_PLACEHOLDER = re.compile(r"\{([^{}\"\n:]+)\}")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the input."""

    number: int
    """From 0."""
    custom_id: str
    url: str = ""
    body: Mapping[str, Any] | None = None
    problem: str | None = None
    """Why it cannot be asked, and what to change."""


@dataclass(frozen=True, slots=True)
class Template:
    """What is asked about each row of a table."""

    prompt: str
    """``{name}`` stands for a column, ``{text}`` for ``column`` where that is given."""
    column: str | None
    id_column: str | None
    response_format: Mapping[str, Any] | None

    def check(self, columns: Sequence[str], name: str) -> None:
        """Raises ``UnusableInput`` for a column that is not in the file ``name``."""
        needed = [self._column(each) for each in _PLACEHOLDER.findall(self.prompt)]
        needed += [each for each in (self.column, self.id_column) if each is not None]
        for each in needed:
            if each not in columns:
                raise UnusableInput(
                    f"{name} has no column {each!r}; it has {', '.join(map(repr, columns))}"
                )
        if not _PLACEHOLDER.search(self.prompt):
            raise UnusableInput(
                "--prompt names no column: write {text} for that of --column, or {name} for one"
            )

    def _column(self, placeholder: str) -> str:
        return self.column if placeholder == "text" and self.column else placeholder

    def line(self, number: int, row: Mapping[str, Any]) -> Line:
        def cell(name: str) -> str:
            value = row.get(self._column(name))
            return value if isinstance(value, str) else json.dumps(value, default=str)

        given = row.get(self.id_column) if self.id_column else None
        if self.id_column and given in (None, ""):
            return Line(
                number, f"row-{number + 1}", problem=f"{self.id_column} is empty; give it an id"
            )
        missing = [
            each
            for each in _PLACEHOLDER.findall(self.prompt)
            if row.get(self._column(each)) is None
        ]
        custom_id = f"row-{number + 1}" if given is None else str(given)
        if missing:
            problem = f"the row has no {', '.join(map(repr, missing))}, which the prompt names"
            return Line(number, custom_id, problem=problem)
        content = _PLACEHOLDER.sub(lambda found: cell(found[1]), self.prompt)
        body: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
        if self.response_format is not None:
            body["response_format"] = self.response_format
        return Line(number, custom_id, URLS[0], body)


class Input:
    """A file of requests, read as a stream as often as needed."""

    def __init__(self, name: str, template: Template | None) -> None:
        """``template`` None: lines of OpenAI's batches. Raises ``UnusableInput``."""
        self._name = name
        self._template = template
        self._suffix = Path(name).suffix.lower().lstrip(".")
        known = ("jsonl",) if template is None else ("csv", "tsv", "parquet", "jsonl")
        if self._suffix not in known:
            endings = " or ".join(f".{each}" for each in known)
            raise UnusableInput(
                f"{name}: the name of the input has to end in {endings}"
                + ("; for a table add --prompt" if template is None else "")
            )
        try:
            self.size = os.path.getsize(name)
            with open(name, "rb") as file:
                head = file.read(1 << 16)
                file.seek(max(0, self.size - (1 << 16)))
                self.identity = hashlib.sha256(b"%d" % self.size + head + file.read()).hexdigest()
        except OSError as error:
            raise UnusableInput(f"{name}: {error.strerror}") from None
        self.count = sum(1 for _ in self._rows(count=True))

    def lines(self) -> Iterator[Line]:
        """All of them; those that cannot be asked tell why."""
        seen: set[bytes] = set()
        """Digests of ids: 100,000 of them take 10 MB."""
        for number, row in enumerate(self._rows()):
            line = self._line(number, row)
            digest = hashlib.blake2b(line.custom_id.encode(), digest_size=8).digest()
            if digest in seen:
                problem = f"custom_id {line.custom_id!r} is that of an earlier line; change it"
                line = Line(number, line.custom_id, problem=line.problem or problem)
            seen.add(digest)
            yield line

    def _line(self, number: int, row: Any) -> Line:
        if isinstance(row, bytes):
            try:
                row = from_json(row)
            except ValueError as error:
                return Line(number, f"line-{number + 1}", problem=f"not JSON: {error}")
        if not isinstance(row, dict):
            return Line(number, f"line-{number + 1}", problem="not a JSON object")
        if self._template is not None:
            return self._template.line(number, row)
        custom_id = row.get("custom_id")
        url, body, problem = row.get("url"), row.get("body"), None
        if not isinstance(custom_id, str) or not custom_id:
            custom_id = f"line-{number + 1}"
            problem = "custom_id has to be a string that no other line has"
        elif row.get("method") != "POST":
            problem = 'method has to be "POST"'
        elif url not in URLS:
            problem = f"url has to be one of {', '.join(URLS)}"
        elif not isinstance(body, dict):
            problem = "body has to be an object, the request itself"
        elif body.get("stream"):
            problem = "lines are not streamed; leave body.stream out"
        return Line(number, custom_id, str(url), None if problem else body, problem)

    def _rows(self, *, count: bool = False) -> Iterator[Any]:
        """The lines of a JSONL file as bytes, the rows of others as objects.

        ``count``: they are counted and not looked at. Raises ``UnusableInput``.
        """
        name, template = self._name, self._template
        try:
            if self._suffix == "jsonl":
                with open(name, "rb") as file:
                    for line in filter(bytes.strip, file):
                        if template is not None and (row := _object(line)) is not None:
                            template.check(list(row), name)  # as of the first row
                            template = None
                        yield line
            elif self._suffix == "parquet":
                parquet = _parquet()
                table = parquet.ParquetFile(name)
                assert template is not None
                template.check(table.schema_arrow.names, name)
                for batch in table.iter_batches(_ROWS):
                    yield from range(batch.num_rows) if count else batch.to_pylist()
            else:
                assert template is not None
                csv.field_size_limit(_LONGEST_FIELD)
                with open(name, encoding="utf-8-sig", newline="") as text:
                    rows = csv.DictReader(text, delimiter="\t" if self._suffix == "tsv" else ",")
                    template.check(rows.fieldnames or (), name)
                    for row in rows:
                        yield {key: value for key, value in row.items() if isinstance(key, str)}
        except OSError as error:
            raise UnusableInput(f"{name}: {error.strerror or error}") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise UnusableInput(f"{name}: {error}") from None


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row = from_json(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


class Journal:
    """What came of each line. Memory: eight bytes for each."""

    def __init__(self, name: str, fingerprint: str, count: int, *, ask_failed_again: bool) -> None:
        """Opens or begins the journal ``name``, which no other process may have open.

        Raises ``UnusableInput`` where it is of another run, or in use.
        """
        self.name = name
        self.counts: dict[Kind, int] = {"valid": 0, "invalid": 0, "answer": 0, "error": 0}
        self._kinds: list[Kind] = list(self.counts)
        self._offsets = array("q", [-1]) * count
        self._dirty = False
        head = f"leapjson batch 1 {fingerprint}\n".encode()
        try:
            self._file = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UnusableInput(f"{name}: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._end = self._read(head)
        except BaseException as error:
            os.close(self._file)
            if isinstance(error, BlockingIOError):
                raise UnusableInput(f"{name}: another process is writing it") from None
            raise
        if ask_failed_again:
            for number in [number for number, kind, _ in self.records() if kind == "error"]:
                self._offsets[number] = -1
                self.counts["error"] -= 1
        if not self._end:
            self._append(head)

    def _read(self, head: bytes) -> int:
        """Take in what was written before; the size without a torn end."""
        end = 0
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if end == 0 and line != head:
                    raise UnusableInput(
                        f"{self.name} is of a run with another input or other options; run that "
                        "again, or begin anew with --overwrite"
                    )
                if end:
                    number, kind = self._parse(line)
                    before = self._offsets[number]
                    if before >= 0:
                        self.counts[self._kind_at(before)] -= 1
                    self._offsets[number] = end
                    self.counts[kind] += 1
                end += len(line)
        os.ftruncate(self._file, end)
        return end

    def _parse(self, line: bytes) -> tuple[int, Kind]:
        number, kind, _ = line.split(b"\t", 2)
        return int(number), self._kinds[int(kind)]

    def _kind_at(self, offset: int) -> Kind:
        return self._parse(os.pread(self._file, 64, offset))[1]

    def has(self, number: int) -> bool:
        return self._offsets[number] >= 0

    def add(self, number: int, kind: Kind, record: Mapping[str, Any]) -> None:
        """Write what came of a line. Raises ``UnusableInput`` where there is no room for it."""
        assert not self.has(number), "a line was asked twice"
        self._offsets[number] = self._end
        self._append(b"%d\t%d\t%b\n" % (number, self._kinds.index(kind), to_json(record)))
        self.counts[kind] += 1

    def _append(self, data: bytes) -> None:
        try:
            written = os.pwrite(self._file, data, self._end)
            if written < len(data):  # the disk is full: the next call says so
                written += os.pwrite(self._file, data[written:], self._end + written)
        except OSError as error:
            raise UnusableInput(
                f"{self.name}: {error.strerror}; what was written before is kept: make room and "
                "run the same command again"
            ) from None
        self._end += len(data)
        self._dirty = True

    def sync(self) -> None:
        """Have what was written survive a crash of the machine, too. Any thread may call it."""
        if self._dirty:
            self._dirty = False
            os.fsync(self._file)

    def records(self, *, ordered: bool = False) -> Iterator[tuple[int, Kind, bytes]]:
        """Number, kind and JSON of what came of each line; ``ordered`` as the input is, or as they
        came."""
        with os.fdopen(os.dup(self._file), "rb") as file:
            if ordered:
                for number, offset in enumerate(self._offsets):
                    if offset >= 0:
                        file.seek(offset)
                        line = file.readline()
                        yield number, self._parse(line)[1], line.split(b"\t", 2)[2]
                return
            file.seek(0)
            place = len(file.readline())
            for line in file:
                number, kind = self._parse(line)
                if self._offsets[number] == place:
                    yield number, kind, line.split(b"\t", 2)[2]
                place += len(line)

    def close(self, *, delete: bool) -> None:
        self.sync()
        if delete:
            os.unlink(self.name)
        os.close(self._file)


@contextmanager
def _whole(name: str, mode: str) -> Iterator[IO[Any]]:
    """A file that gets its name when it is complete."""
    part = f"{name}.new"
    text = {"encoding": "utf-8", "newline": ""} if "b" not in mode else {}
    with open(part, mode, **text) as file:  # type: ignore[call-overload]
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, name)


def write_output(
    name: str,
    errors: str,
    journal: Journal,
    *,
    ordered: bool,
    schema: Any,
    confidence: bool,
) -> None:
    """Write the answers, by the ending of ``name``, and ``errors``, where there are any.

    A table has a row for each line, with its error where it has no answer. Raises
    ``UnusableInput``.
    """
    try:
        with _whole(errors, "wb") as file:
            for _, kind, record in journal.records(ordered=ordered):
                if kind == "error":
                    file.write(record)
        if not journal.counts["error"]:
            os.unlink(errors)
        if name.endswith(".jsonl"):
            with _whole(name, "wb") as file:
                for _, kind, record in journal.records(ordered=ordered):
                    if kind != "error":
                        file.write(record)
            return
        table = _Table(schema, confidence=confidence)
        rows = (table.row(record) for _, _, record in journal.records(ordered=ordered))
        if name.endswith(".csv"):
            with _whole(name, "w") as file:
                writer = csv.DictWriter(file, list(table.columns))
                writer.writeheader()
                for row in rows:
                    writer.writerow({key: _as_text(value) for key, value in row.items()})
            return
        with _whole(name, "wb") as file, _parquet_writer(file, table.columns) as write:
            write(rows)
    except (OverflowError, TypeError, ValueError) as error:  # pyarrow's
        raise UnusableInput(
            f"{name}: a value does not fit its column ({error}); the answers are kept: rename "
            f"{journal.name} to OUT.jsonl.journal, and run the same command for OUT.jsonl"
        ) from None
    except OSError as error:
        raise UnusableInput(
            f"{error.filename or name}: {error.strerror}; the answers are kept in {journal.name}: "
            "make room and run the same command again"
        ) from None


def _column_type(field: Any) -> str:
    """Of a field's schema; null is any column's."""
    if not isinstance(field, dict):
        return "json"
    found = field.get("type")
    kinds = set(found if isinstance(found, list) else [] if found is None else [found])
    values = field.get("enum", [field["const"]] if "const" in field else [])
    if not kinds:
        kinds = {"null" if value is None else _TYPES.get(type(value), "json") for value in values}
    [kind, *others] = sorted(kinds - {"null"}) or ["json"]
    return kind if not others and kind in _TYPES.values() else "json"


class _Table:
    """Answers as rows: id, the fields of the schema, the answer's text without one, the error."""

    def __init__(self, schema: Any, *, confidence: bool) -> None:
        self.columns: dict[str, str] = {"custom_id": "string"}
        """Their types: string, integer, number, boolean, or json for anything else."""
        self._fields: list[str] = []
        properties = schema.get("properties") if isinstance(schema, dict) else None
        for name, field in (properties if isinstance(properties, dict) else {}).items():
            self._fields.append(name)
            self.columns[self._named(name)] = _column_type(field)
        self._confidence = self._fields if confidence else []
        self.columns |= {self._named(f"{name}_confidence"): "number" for name in self._confidence}
        if not self._fields:
            self.columns["content"] = "string"
        self.columns["error"] = "string"

    @staticmethod
    def _named(name: str) -> str:
        """A field's column: those of the table itself keep their names."""
        return f"answer.{name}" if name in ("custom_id", "error") else name

    def row(self, record: bytes) -> dict[str, Any]:
        found = from_json(record)
        row: dict[str, Any] = dict.fromkeys(self.columns)
        row["custom_id"] = found["custom_id"]
        response = found["response"]
        if found["error"] is not None or response["status_code"] != 200:
            error = found["error"] or (response["body"] or {}).get("error") or {}
            row["error"] = error.get("message") or f"status {response['status_code']}"
            return row
        content = content_of(response["body"])
        if not self._fields:
            return row | {"content": content}
        value = _object((content or "").encode())
        if value is None:
            return row | {"error": "the answer is not an object: it was cut, or refused"}
        for name in self._fields:
            row[self._named(name)] = self._cell(name, value.get(name))
        if self._confidence:
            sure = {each["pointer"]: each for each in _measured(response["body"], "confidence")}
            for name in self._confidence:
                pointer = "/" + name.replace("~", "~0").replace("/", "~1")
                row[self._named(f"{name}_confidence")] = sure.get(pointer, {}).get("probability")
        return row

    def _cell(self, name: str, value: Any) -> Any:
        kind = self.columns[self._named(name)]
        if kind == "json" and value is not None:
            return json.dumps(value, ensure_ascii=False)
        if kind == "number" and isinstance(value, int):
            return float(value)
        return value


def content_of(body: Mapping[str, Any]) -> str | None:
    """The text of the first choice of an answer of any of ``URLS``."""
    if choices := body.get("choices"):
        text: str | None = choices[0].get("text") or (choices[0].get("message") or {}).get(
            "content"
        )
        return text
    parts = body.get("content") or [
        part for item in body.get("output") or () for part in item.get("content") or ()
    ]
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _measured(body: Mapping[str, Any], name: str) -> Iterable[Mapping[str, Any]]:
    choices = body.get("choices") or [body]
    return [each for each in choices[0].get(name) or () if "next" not in each]


def _as_text(value: Any) -> Any:
    """As JSON spells it: Python's booleans are nobody else's."""
    return json.dumps(value) if isinstance(value, bool | float) else value


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UnusableInput("Parquet files need pyarrow: pip install 'leapjson[batch]'") from None
    return pyarrow.parquet


def check_output(name: str) -> None:
    """Raises ``UnusableInput`` where no such file can be written."""
    if not name.endswith((".jsonl", ".csv", ".parquet")):
        raise UnusableInput(f"{name}: the name has to end in .jsonl, .csv or .parquet")
    if name.endswith(".parquet"):
        _parquet()
    folder = Path(name).parent
    if not folder.is_dir():
        raise UnusableInput(f"{name}: there is no folder {folder}")


@contextmanager
def _parquet_writer(
    file: IO[bytes], columns: Mapping[str, str]
) -> Iterator[Callable[[Iterable[Mapping[str, Any]]], None]]:
    import pyarrow

    types = {
        "string": pyarrow.string(),
        "json": pyarrow.string(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
    }
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    writer: AbstractContextManager[Any] = _parquet().ParquetWriter(file, schema)

    def write(rows: Iterable[Mapping[str, Any]]) -> None:
        kept: list[Mapping[str, Any]] = []
        for row in rows:
            kept.append(row)
            if len(kept) == _ROWS:
                opened.write_table(pyarrow.Table.from_pylist(kept, schema))
                kept.clear()
        if kept:
            opened.write_table(pyarrow.Table.from_pylist(kept, schema))

    with writer as opened:
        yield write
