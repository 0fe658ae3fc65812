"""MaskBench: ``python -m tests.conformance.maskbench [DATA] [--count N] [--engines NAME...]``.

Every engine compiles every schema and follows each of its instances, as ``json.dumps`` writes it,
token by token: is each token in the mask, and may the answer end after the last one? An engine
passes a schema if it compiles it, accepts all valid instances and rejects all invalid ones. The
engines take turns on a schema inside one process. ``--no-masks`` only builds our language and tries
the instances by bytes (also with their keys in another order). In both modes, random texts of our
language are checked with the ``jsonschema`` library.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from tests.conformance import peers, tokenizers, trials, workers
from tests.conformance.trials import Judge, Trial, dumps
from tools import datasets
from tools.datasets import Case

LANGUAGE = "language"
"""Name of the judge that works on bytes, without a vocabulary."""


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    cases = datasets.maskbench(options.data, options.count, options.seed)
    judges = _judges(options)
    found: dict[str, list[Trial]] = {name: [Trial("missing")] * len(cases) for name in judges}
    start = time.monotonic()
    for done, (place, name, trial) in enumerate(
        workers.run(cases, judges, workers=options.workers, seconds=options.seconds), start=1
    ):
        found[name][place] = trial
        if done % 500 == 0:
            print(f"{done} trials in {time.monotonic() - start:.0f} s", file=sys.stderr)
    print(_table(cases, found))
    print(f"\n{len(cases)} schemas, {time.monotonic() - start:.0f} s")
    for name, column in found.items():
        _print_refusals(name, column)
    for name in (LANGUAGE, "leapjson"):
        _print_problems(name, cases, found.get(name, []), options.show)
    if options.json:
        options.json.write_text(json.dumps(_details(cases, found), ensure_ascii=False, indent=1))
    bad = [name for name in (LANGUAGE, "leapjson") if name in found and not _sound(found[name])]
    return 1 if bad else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.maskbench")
    parser.add_argument("data", nargs="?", type=Path, default=datasets.MASKBENCH)
    parser.add_argument("--count", type=int, help="schemas, drawn by --seed (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engines", nargs="+", choices=peers.ENGINES, default=["leapjson"])
    parser.add_argument("--seconds", type=float, default=10.0, help="limit per schema and engine")
    parser.add_argument("--tokenizer", choices=datasets.tokenizers(), default="qwen2_5")
    parser.add_argument("--no-masks", action="store_true", help="only our language, by bytes")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--show", type=int, default=20, help="problems of each kind to print")
    parser.add_argument("--json", type=Path, help="file for the details of every schema")
    return parser.parse_args(arguments)


def _judges(options: argparse.Namespace) -> dict[str, Judge]:
    judges: dict[str, Judge] = {}
    if not options.no_masks:
        tokenizer = tokenizers.tokenizer(options.tokenizer)
        for name in options.engines:
            engine = peers.ENGINES[name](tokenizer)
            warm = {"schema": {"type": "string"}, "tests": [{"data": "a", "valid": True}]}
            trials.with_masks(engine, tokenizer, warm)  # warm-up: work done once per process
            judges[name] = partial(trials.with_masks, engine, tokenizer)
    if options.no_masks or "leapjson" in options.engines:
        judges[LANGUAGE] = trials.by_bytes
    return judges


def _sound(column: list[Trial]) -> bool:
    return not any(
        trial.invalid_accepted or trial.wrong_samples or trial.outcome in ("crash", "time-out")
        for trial in column
    )


def _table(cases: list[Case], found: dict[str, list[Trial]]) -> str:
    rows = {name: _row(cases, column) for name, column in found.items()}
    titles = list(next(iter(rows.values())))
    lines = [["", *rows], *([title, *(row[title] for row in rows.values())] for title in titles)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    shown = []
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        shown.append(f"| {' | '.join(cells)} |")
    shown.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(shown)


def _row(cases: list[Case], column: list[Trial]) -> dict[str, str]:
    """The measurements of one engine, by title."""
    outcomes = Counter(trial.outcome for trial in column)
    compiled = [trial for trial in column if trial.outcome == "compiled"]
    compile_ms = [trial.compile_cpu / 1e6 for trial in compiled]
    wall_ms = [trial.compile_wall / 1e6 for trial in compiled]
    first = [time / 1e3 for trial in compiled for time in trial.first_masks]
    second = [time / 1e3 for trial in compiled for time in trial.second_masks]
    accepts = [time / 1e3 for trial in compiled for time in trial.accepts]
    tests = Counter(
        test["valid"]
        for case, trial in zip(cases, column, strict=True)
        for test in case["tests"]
        if trial.outcome == "compiled"
    )
    passed = sum(trial.passed for trial in column)
    rejected = sum(len(trial.valid_rejected) for trial in column)
    return {
        "passed": f"{passed} ({passed / len(column):.1%})",
        "refused": str(outcomes["refused"]),
        "crashes": str(outcomes["crash"]),
        "time-outs": str(outcomes["time-out"]),
        "valid rejected": f"{rejected} of {tests[True]}",
        "... only by the key order": str(sum(len(trial.other_order) for trial in column)),
        "invalid accepted": f"{sum(len(t.invalid_accepted) for t in column)} of {tests[False]}",
        "wrong samples": str(sum(len(trial.wrong_samples) for trial in column)),
        "compile, CPU ms: median, 90%, 99%, max": _percentiles(compile_ms, 0.5, 0.9, 0.99, 1),
        "compile, wall ms: median, 90%, 99%, max": _percentiles(wall_ms, 0.5, 0.9, 0.99, 1),
        "mask, first pass, us: average": f"{sum(first) / len(first):.1f}" if first else "-",
        "mask, first pass, us: median, 99%, max": _percentiles(first, 0.5, 0.99, 1),
        "mask, second pass, us: median, 99%, max": _percentiles(second, 0.5, 0.99, 1),
        "accept a token, us: median, 99%, max": _percentiles(accepts, 0.5, 0.99, 1),
    }


def _percentiles(values: list[float], *shares: float) -> str:
    if not values:
        return "-"
    ranked = sorted(values)
    return ", ".join(f"{ranked[round(share * (len(ranked) - 1))]:.2f}" for share in shares)


def _print_refusals(name: str, column: list[Trial]) -> None:
    refused = [trial for trial in column if trial.outcome == "refused"]
    if refused:
        counts = Counter(trial.keyword or _without_details(trial.reason) for trial in refused)
        print(f"\nrefused by {name}:")
        for reason, count in counts.most_common(30):
            print(f"  {count:5} {reason}")


def _without_details(reason: str) -> str:
    """The first line of a message, cut so that similar messages are equal."""
    return (reason.strip().splitlines() or [""])[0][:70]


def _print_problems(name: str, cases: list[Case], column: list[Trial], show: int) -> None:
    kinds: dict[str, list[str]] = {}

    def note(kind: str, case: Case, what: Any) -> None:
        kinds.setdefault(kind, []).append(f"{case['id']}: {str(what)[:300]}")

    for case, trial in zip(cases, column, strict=False):
        if trial.outcome in ("crash", "time-out"):
            note(trial.outcome, case, trial.reason)
        for kind in ("invalid_accepted", "valid_rejected"):
            for place in getattr(trial, kind):
                order = " (in this key order)" if place in trial.other_order else ""
                note(kind + order, case, dumps(case["tests"][place]["data"]))
        for text in trial.wrong_samples:
            note("wrong sample", case, text)
        if trial.keyword in ("invalid_schema", "schema_too_complex", "unsatisfiable_schema"):
            note(trial.keyword, case, trial.reason)
    for kind, entries in kinds.items():
        print(f"\n{name}, {kind}: {len(entries)}")
        for entry in entries[:show]:
            print("  " + entry)


def _details(cases: list[Case], found: dict[str, list[Trial]]) -> list[dict[str, Any]]:
    return [
        {"id": case["id"], **{name: column[place].as_json() for name, column in found.items()}}
        for place, case in enumerate(cases)
    ]


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
