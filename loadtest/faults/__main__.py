"""Inject faults into a real server, and report measurements of its reaction.

``python -m loadtest.faults`` runs all faults except the soak; ``python -m loadtest.faults soak``
takes half an hour. Exit status: 0 if all checks passed. The servers are started here, on
127.0.0.1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from app.core.progress import reporting
from app.terminal.screen import open_screen
from loadtest.faults import (
    clocks,
    compilers,
    descriptors,
    disconnects,
    engine_death,
    fuzz_http,
    kv_pressure,
    many_streams,
    overload,
    shutdown,
    slow_clients,
    soak,
)
from loadtest.faults.findings import COLUMNS, Report, fault_table, write_json
from loadtest.faults.setting import Setting
from loadtest.tables import heading

FAULTS: dict[str, Callable[[Setting, Report], Coroutine[Any, Any, None]]] = {
    "disconnects": disconnects.run,
    "engine": engine_death.run,
    "compilers": compilers.run,
    "kv": kv_pressure.run,
    "clocks": clocks.run,
    "sigterm": shutdown.run,
    "slow": slow_clients.run,
    "descriptors": descriptors.run,
    "streams": many_streams.run,
    "overload": overload.run,
    "fuzz": fuzz_http.run,
    "soak": soak.run,
}

LOOPS = {"overload": uvloop.new_event_loop}
"""Event loops of faults whose client uses much CPU time; the others use asyncio's loop."""


@dataclass(frozen=True, slots=True)
class _Options:
    names: list[str]
    scale: float
    minutes: float
    model: Path | None
    out: Path | None


def _options() -> _Options:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="fault", help=", ".join(FAULTS))
    parser.add_argument("--scale", type=float, default=1.0, help="factor for counts and times")
    parser.add_argument("--minutes", type=float, default=30.0, help="duration of the soak")
    parser.add_argument("--model-folder", type=Path, help="model folder (default: the demo model)")
    parser.add_argument("--out", type=Path, help="file for the results as JSON (and .md)")
    given = parser.parse_args()
    unknown = set(given.names) - set(FAULTS)
    if unknown:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    names = given.names or [name for name in FAULTS if name != "soak"]
    return _Options(names, given.scale, given.minutes, given.model_folder, given.out)


def main() -> int:
    options = _options()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    reports = []
    print(heading(COLUMNS), flush=True)
    with tempfile.TemporaryDirectory(prefix="leapjson-faults-") as folder:
        progress = open_screen(sys.stderr, still=True).progress
        for name in reporting(progress, "injecting faults", options.names, unit="faults"):
            report = Report(name)
            reports.append(report)
            start = time.perf_counter()
            setting = Setting(Path(folder), options.scale, options.minutes, options.model)
            try:
                with asyncio.Runner(loop_factory=LOOPS.get(name)) as runner:
                    runner.run(FAULTS[name](setting, report))
            except Exception as error:
                traceback.print_exc()
                report.check("the test was completed", type(error).__name__, "yes", False)
            report.note("seconds", time.perf_counter() - start)
    if options.out is not None:
        machine = {"cpus": os.cpu_count(), "platform": platform.platform(), "python": sys.version}
        write_json(options.out, reports, machine | {"scale": options.scale})
        options.out.with_suffix(".md").write_text(fault_table(reports) + "\n", encoding="utf-8")
    return 0 if all(report.held for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
