"""The report as text: a line for each fact, a table for each kind of row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_MAX_CELL = 46
_MAX_REASON = 220
_FAILURES = 6
MOST_CHARACTERS = 9_800
"""Maximum characters of the report: a remote run may show only the end of the output."""
_ROWS = (100, 24, 16, 12, 10, 8, 6, 4, 2)


def report_text(outcomes: Sequence[dict[str, Any]]) -> str:
    """The verdict in the first line, then the findings: as many rows of each table as fit."""
    for rows in _ROWS:
        parts = [part_text(each, rows) for each in outcomes]
        text = "\n".join(["", verdict(outcomes), "", *parts])
        if len(text) <= MOST_CHARACTERS:
            return text
    end = "\nand more, in the file\n"
    return text[: MOST_CHARACTERS - len(end)] + end


def verdict(outcomes: Sequence[dict[str, Any]]) -> str:
    """One line with the parts that did not succeed, and the reason."""
    bad = [f"{each['part']} ({how})" for each in outcomes if (how := _trouble(each)) is not None]
    if not bad:
        return f"ALL {len(outcomes)} PARTS WENT WELL"
    return f"{len(bad)} OF {len(outcomes)} PARTS DID NOT GO WELL: {', '.join(bad)}"


def _trouble(outcome: dict[str, Any]) -> str | None:
    if outcome["status"] != "ok":
        status: str = outcome["status"]
        return status
    failures = sum("failed" in finding for finding in outcome["findings"])
    return f"{failures} failures inside" if failures else None


def part_text(outcome: dict[str, Any], most_rows: int = _ROWS[0]) -> str:
    lines = [f"## {outcome['title']} ({outcome['part']}, {outcome['seconds']} s)"]
    if outcome["status"] != "ok":
        lines.append(f"{outcome['status'].upper()}: {_last_line(outcome['log'])}")
    tables: dict[str, list[dict[str, Any]]] = {}
    facts, failures = [], []
    for finding in outcome["findings"]:
        if "table" in finding:
            tables.setdefault(finding["table"], []).append(finding["row"])
        elif "value" in finding:
            facts.append(f"{finding['value']}: {cell(finding['is'])}")
        elif "failed" in finding:
            failures.append(f"FAILED {finding['failed']}: {finding['why'][:_MAX_REASON]}")
        elif "left out" in finding:
            facts.append(f"{finding['left out']}: left out, {finding['why'][:_MAX_REASON]}")
    lines += failures[:_FAILURES]
    if len(failures) > _FAILURES:
        lines.append(f"and {len(failures) - _FAILURES} more failures, in the file")
    if facts:
        lines.append("; ".join(dict.fromkeys(facts)))
    for name, rows in tables.items():
        lines += [name, *table(rows[:most_rows])]
        if len(rows) > most_rows:
            lines.append(f"and {len(rows) - most_rows} more rows, in the file")
    return "\n".join([*lines, ""])


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Lines of one table, without padding; its columns are those of all its rows."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[cell(row.get(name, "")) for name in columns] for row in rows]
    return ["|".join(line) for line in ([columns, *cells])]


def cell(value: object) -> str:
    """Text of a value, shortened; a float has three significant digits."""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {cell(each)}" for name, each in value.items())
    return str(value)[:_MAX_CELL]


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:_MAX_REASON] if lines else "no output"
