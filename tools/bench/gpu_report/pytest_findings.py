"""A pytest plugin: writes each test's outcome to the file ``FINDINGS`` as soon as it is known."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        for item in session.items:
            _write(item.nodeid, "skipped", 0.0, "this is a dry run")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    if report.when == "teardown" and report.outcome == "skipped":
        return
    why = report.longreprtext.strip()
    shown = why if report.outcome == "failed" else why[-200:]
    _write(report.nodeid, report.outcome, report.duration, shown)


def _write(test: str, outcome: str, seconds: float, why: str) -> None:
    found = {"test": test, "outcome": outcome, "seconds": f"{seconds:.2f}", "why": why}
    with Path(os.environ["FINDINGS"]).open("a") as file:
        file.write(json.dumps(found) + "\n")
