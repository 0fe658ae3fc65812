"""Measurements and checks of a fault test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loadtest.tables import table, table_row


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    measured: str
    bound: str = ""
    """The condition; "" for a figure that is only reported."""
    held: bool = True


@dataclass(slots=True)
class Report:
    """The rows of one fault. Each is printed at once, since a test may take long."""

    fault: str
    rows: list[Row] = field(default_factory=list)

    def note(self, what: str, measured: object) -> None:
        self._add(Row(what, _text(measured)))

    def check(self, what: str, measured: object, bound: str, held: bool) -> None:
        self._add(Row(what, _text(measured), bound, held))

    def equal(self, what: str, measured: object, wanted: object) -> None:
        self.check(what, measured, f"= {_text(wanted)}", measured == wanted)

    def at_most(self, what: str, measured: float, bound: float) -> None:
        self.check(what, measured, f"<= {_text(bound)}", measured <= bound)

    @property
    def held(self) -> bool:
        return all(row.held for row in self.rows)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        print(table_row(_cells(self.fault, row)), flush=True)


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


COLUMNS = ("fault", "what", "measured", "expected", "passed")


def fault_table(reports: Sequence[Report]) -> str:
    return table(COLUMNS, [_cells(each.fault, row) for each in reports for row in each.rows])


def _cells(fault: str, row: Row) -> Sequence[str]:
    verdict = "" if not row.bound else "yes" if row.held else "NO"
    return fault, row.what, row.measured, row.bound, verdict


def write_json(path: Path, reports: Sequence[Report], machine: dict[str, Any]) -> None:
    content = {"machine": machine, "faults": [asdict(report) for report in reports]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile by nearest rank; 0.0 if there are no values."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0
