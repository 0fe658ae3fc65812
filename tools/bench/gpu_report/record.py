"""Findings of a part on their way to the report: one line of JSON for each."""

from __future__ import annotations

import json
import time
import traceback
from pathlib import Path
from typing import Any

Finding = dict[str, Any]


class Record:
    """Appends findings to a file, each one complete and at once, so that a crash loses none."""

    def __init__(self, path: Path, seconds: float) -> None:
        """``seconds``: time that the part has, from now."""
        self._path = path
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        return self._end - time.monotonic()

    def value(self, name: str, value: object) -> None:
        """One named figure or fact of the part."""
        self._write({"value": name, "is": value})

    def row(self, table: str, **cells: object) -> None:
        """One row of a table; all rows of a table have the same columns."""
        self._write({"table": table, "row": cells})

    def detail(self, name: str, value: object) -> None:
        """A fact that is kept in the file and not printed."""
        self._write({"detail": name, "is": value})

    def failed(self, what: str, error: BaseException | str) -> None:
        """A failure inside the part; the part continues."""
        text = error if isinstance(error, str) else _described(error)
        self._write({"failed": what, "why": text})

    def left_out(self, what: str, why: str) -> None:
        """A measurement that was skipped; this is no failure."""
        self._write({"left out": what, "why": why})

    def _write(self, finding: Finding) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(finding, default=str) + "\n")


def read(path: Path) -> list[Finding]:
    """All complete findings written so far."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]  # the last one may be half written
    return [json.loads(line) for line in lines]


def _described(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in last)
    return f"{type(error).__name__}: {str(error)[:600]}{place}"
