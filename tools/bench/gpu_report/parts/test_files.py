"""The repository's tests of the CUDA path, each file in a process of its own, eight at a time."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.record import Record

ROOT = Path(__file__).resolve().parents[4]
INI = """[pytest]
markers =
    needs(*names): left out where none of these programs or libraries is here
"""
"""Replaces the repository's configuration, which needs plugins and turns warnings into errors."""

_MAX_PARALLEL = 8
_SHOWN = 300


def run(record: Record, options: Options) -> None:
    if importlib.util.find_spec("pytest") is None:
        record.left_out("all tests", "pytest is not installed")
        return
    files = [
        str(file.relative_to(ROOT)) for file in sorted(ROOT.glob("tests/model/cuda/test_*.py"))
    ]
    groups = {"all": files} if options.tiny else {Path(file).stem: [file] for file in files}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_MAX_PARALLEL) as pool:
        (Path(folder) / "pytest.ini").write_text(INI)
        limit = record.seconds_left - 3
        done = {
            name: pool.submit(_run, Path(folder), name, files, limit, options.tiny)
            for name, files in groups.items()
        }
        for name, future in done.items():
            _record_tests(record, name, *future.result())


def _run(
    folder: Path, name: str, files: Sequence[str], seconds: float, tiny: bool
) -> tuple[str, list[dict[str, str]]]:
    """Status of the process, and its tests; a dry run only collects them."""
    out = folder / f"{name}.jsonl"
    command = [
        sys.executable, "-m", "pytest", *files, "-q", "-c",
        str(folder / "pytest.ini"), "--rootdir", str(ROOT), "--import-mode=importlib",
        "-p", "no:cacheprovider", "-p", "tools.bench.gpu_report.pytest_findings",
        *(["--collect-only"] if tiny else []),
    ]  # fmt: skip
    environment = os.environ | {"FINDINGS": str(out), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, timeout=seconds, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        status = f"{ended.returncode}" + ("" if ended.returncode in (0, 1) else _end(ended.stdout))
    except subprocess.TimeoutExpired:
        status = "no time left"
    lines = out.read_text().split("\n")[:-1] if out.exists() else []
    return status, [json.loads(line) for line in lines]


def _record_tests(record: Record, name: str, status: str, tests: list[dict[str, str]]) -> None:
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for test in tests:
        counts[test["outcome"]] += 1
        record.detail(test["test"], test)
        if test["outcome"] == "failed":
            record.failed(test["test"].split("::", 1)[-1], test["why"][-_SHOWN:])
    record.row("tests", file=name, **counts, status=status[:20])
    if status not in ("0", "1"):
        record.failed(name, f"pytest ended with {status}")


def _end(printed: str) -> str:
    return ": " + " ".join(line.strip() for line in printed.splitlines()[-6:])[-_SHOWN:]
