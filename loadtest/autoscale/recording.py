"""A recorded load: one row for each second of a server under steps of Poisson arrivals."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

RECORDED = Path(__file__).with_name("load.csv")


@dataclass(frozen=True, slots=True)
class Second:
    """``arrived`` and ``finished`` are requests within it, the others stand at its end."""

    step: int
    arrived: int
    finished: int
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Recording:
    max_running: int
    """The server's ``LEAPJSON_MAX_RUNNING``."""
    start_up: float
    """Seconds from the start of the process until ``/ready`` said 200."""
    seconds: Sequence[Second]


def write(recording: Recording, file: Path = RECORDED) -> None:
    """A CSV file; what holds for the whole recording stands in ``#`` lines above it."""
    with file.open("w", newline="", encoding="utf-8") as out:
        for name in ("max_running", "start_up"):
            out.write(f"# {name}={getattr(recording, name)}\n")
        writer = csv.DictWriter(out, [each.name for each in fields(Second)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(second) for second in recording.seconds)


def read(file: Path = RECORDED) -> Recording:
    lines = file.read_text(encoding="utf-8").splitlines()
    about = dict(line[2:].split("=") for line in lines if line.startswith("# "))
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return Recording(
        int(about["max_running"]),
        float(about["start_up"]),
        [Second(**{name: int(value) for name, value in row.items()}) for row in rows],
    )
