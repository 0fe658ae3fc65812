"""The files of a run: two CSV files and one JSON file."""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loadtest.measure import Results
from loadtest.summary import Comparison, Summary, comparisons, summaries

_ANSWER_FIELDS = (
    "workload", "load", "arm", "repeat", "number", "task", "outcome", "seconds", "first",
    "tokens", "forward_passes", "leapt", "drafted", "right", "parts", "text", "detail",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run; ``about`` describes the machine and the command."""

    about: Mapping[str, str]
    results: Results
    summaries: list[Summary]
    comparisons: list[Comparison]


def report(results: Results, about: Mapping[str, str], baseline: str | None) -> Report:
    compared = comparisons(results, baseline) if baseline is not None else []
    return Report({**about, **machine()}, results, summaries(results), compared)


def machine() -> dict[str, str]:
    """The machine and software of the load generator; servers started here share them."""
    packages = {}
    for name in ("torch", "transformers", "leapjson"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": platform.platform(),
        "python": platform.python_version(),
        **packages,
    }


def write(report: Report, folder: Path) -> None:
    """Write ``summary.csv``, ``answers.csv`` and ``report.json`` to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [_flat(asdict(each)) for each in report.summaries]
    _write_csv(folder / "summary.csv", list(rows[0]) if rows else [], rows)
    _write_csv(folder / "answers.csv", _ANSWER_FIELDS, _answers(report.results))
    content = json.dumps(as_json(report), indent=1, ensure_ascii=False)
    (folder / "report.json").write_text(content, encoding="utf-8")


def as_json(report: Report) -> dict[str, Any]:
    """The report as JSON, without the individual answers."""
    return {
        "about": dict(report.about),
        "notes": report.results.notes,
        "summaries": [asdict(each) for each in report.summaries],
        "comparisons": [asdict(each) for each in report.comparisons],
        "rounds": [
            {
                "workload": cell.workload,
                "load": str(cell.load),
                "arm": arm,
                "repeat": each.repeat,
                "seconds": each.seconds,
                "answers": len(each.answers),
                "server_counts": each.counts,
            }
            for (cell, arm), rounds in report.results.rounds.items()
            for each in rounds
        ],
    }


def _answers(results: Results) -> Iterable[dict[str, Any]]:
    for (cell, arm), rounds in results.rounds.items():
        for each in rounds:
            for number, answer in enumerate(each.answers):
                values = asdict(answer)
                place = {
                    "workload": cell.workload,
                    "load": str(cell.load),
                    "arm": arm,
                    "repeat": each.repeat,
                    "number": number,
                }
                yield {**place, **{name: values[name] for name in _ANSWER_FIELDS[5:]}}


def _flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary as a flat row with columns like ``latency.p50``; None for missing distributions.

    Every row has the same columns.
    """
    flat: dict[str, Any] = {}
    for name, value in summary.items():
        if name in ("latency", "first_token", "gap", "per_token"):
            for part in ("p50", "p90", "p95", "p99", "mean"):
                flat[f"{name}.{part}"] = None if value is None else value[part]
        elif isinstance(value, Mapping):
            flat.update({f"{name}.{part}": count for part, count in value.items()})
        else:
            flat[name] = value
    return flat


def _write_csv(path: Path, fields: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(fields))
        writer.writeheader()
        writer.writerows(rows)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()
