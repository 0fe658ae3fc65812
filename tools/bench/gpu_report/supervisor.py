"""Runs the parts one after the other, each in a process, and keeps the file up to date."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.parts import PARTS, Part
from tools.bench.gpu_report.record import Finding, read
from tools.bench.gpu_report.text import part_text, report_text

ROOT = Path(__file__).resolve().parents[3]
Status = Literal["waiting", "running", "ok", "failed", "timed out", "skipped"]

_LEAST_SECONDS = 8.0
"""Minimum seconds to start a part: with less it would end before it has imported torch."""
_DRY_RUN_FACTOR = 4
"""Factor on a part's time limit in a dry run, whose machine may be busy with other work."""
_PARALLEL = {"cuda": 4, "cpu": 2}
_TAIL = 3000
_POLL_SECONDS = 0.5
_GRACE_SECONDS = 3.0
"""Seconds after its limit in which a part can write its stack."""


@dataclass(slots=True)
class Outcome:
    """Outcome of one part, as in the file."""

    part: str
    title: str
    status: Status = "waiting"
    seconds: float = 0.0
    exit_status: int | None = None
    findings: list[Finding] = field(default_factory=list)
    log: str = ""
    """End of the process's output; kept if the part did not succeed."""

    def to_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


class Supervisor:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._end = time.monotonic() + options.seconds
        self._began = time.time()
        self._writing = threading.Lock()
        self.outcomes: list[Outcome] = []

    def run(self) -> bool:
        """Run all parts; returns whether every one succeeded.

        Parts that measure run alone, the others up to four at a time; a dry run, which measures
        nothing, runs all of them two at a time.
        """
        chosen = [part for part in PARTS if part.name in self._options.parts]
        self._options.out.parent.mkdir(parents=True, exist_ok=True)
        self.outcomes = [Outcome(part.name, part.title) for part in chosen]
        with tempfile.TemporaryDirectory(prefix="gpu-report-") as folder:
            pairs = zip(chosen, self.outcomes, strict=True)
            for alone, group in groupby(pairs, lambda pair: self._is_alone(pair[0])):
                with ThreadPoolExecutor(1 if alone else _PARALLEL[self._options.device]) as pool:
                    running = [
                        pool.submit(self._run_with_retry, part, outcome, Path(folder))
                        for part, outcome in group
                    ]
                    for each in running:
                        for outcome in each.result():
                            print(part_text(outcome.to_json()), flush=True)
        self._write()
        print(report_text([each.to_json() for each in self.outcomes]), flush=True)
        return all(each.status == "ok" and not _failures(each) for each in self.outcomes)

    def _is_alone(self, part: Part) -> bool:
        return part.timed and self._options.device == "cuda"

    def _run_with_retry(self, part: Part, outcome: Outcome, folder: Path) -> list[Outcome]:
        self._run(part, outcome, folder, self._options)
        found = any("table" in finding for finding in outcome.findings)
        if not part.again or found or outcome.status not in ("failed", "timed out"):
            return [outcome]
        second = Outcome(f"{part.name}, no graphs", part.title)
        self.outcomes.insert(self.outcomes.index(outcome) + 1, second)
        self._run(part, second, folder, replace(self._options, graphs=False))
        return [outcome, second]

    def _run(self, part: Part, outcome: Outcome, folder: Path, options: Options) -> None:
        whole = part.seconds * (1 if options.device == "cuda" else _DRY_RUN_FACTOR)
        limit = min(whole, self._end - time.monotonic())
        if limit < min(_LEAST_SECONDS, whole):
            outcome.status, outcome.log = "skipped", "no time was left"
            return
        outcome.status = "running"
        findings, log = folder / f"{outcome.part}.jsonl", folder / f"{outcome.part}.log"
        start = time.monotonic()
        with log.open("wb") as printed:
            process = subprocess.Popen(
                [
                    sys.executable, "-X", "faulthandler", "-m", "tools.bench.gpu_report.child",
                    part.name, str(findings), f"{limit:.1f}", options.to_json(),
                ],
                stdout=printed, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                cwd=ROOT, env=self._environment(folder), start_new_session=True,
            )  # fmt: skip
            try:
                self._wait(process, outcome, start + limit + _GRACE_SECONDS, findings)
            finally:  # kill all processes of the part
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        outcome.seconds = round(time.monotonic() - start, 1)
        outcome.findings = read(findings)
        if outcome.exit_status is None:
            outcome.status = "timed out"
        else:
            outcome.status = "failed" if outcome.exit_status else "ok"
        if outcome.status != "ok" or _failures(outcome):
            outcome.log = log.read_bytes()[-_TAIL:].decode(errors="replace")
        self._write()

    def _wait(
        self, process: subprocess.Popen[bytes], outcome: Outcome, end: float, findings: Path
    ) -> None:
        """Wait until the process ends, or until ``end``; new findings are written to the file."""
        known = 0
        while time.monotonic() < end:
            with contextlib.suppress(subprocess.TimeoutExpired):
                wait = min(_POLL_SECONDS, max(0.01, end - time.monotonic()))
                outcome.exit_status = process.wait(wait)
                return
            size = findings.stat().st_size if findings.exists() else 0
            if size != known:
                known = size
                outcome.findings = read(findings)
                self._write()

    def _environment(self, folder: Path) -> dict[str, str]:
        tiny = self._options.device == "cpu"
        return os.environ | {
            "TRITON_INTERPRET": "1" if tiny else "0",
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "PYTHONUNBUFFERED": "1",
        }

    def _write(self) -> None:
        """Replace the file atomically: a reader always sees complete JSON."""
        report = {
            "began": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self._began)),
            "seconds": round(time.time() - self._began, 1),
            "device": self._options.device,
            "tiny": self._options.tiny,
            "parts": [each.to_json() for each in self.outcomes],
        }
        out = self._options.out
        half = out.with_name(out.name + ".part")
        with self._writing:
            half.write_text(json.dumps(report, indent=1))
            half.replace(out)


def _failures(outcome: Outcome) -> list[Finding]:
    return [finding for finding in outcome.findings if "failed" in finding]
