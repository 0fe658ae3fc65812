"""A plugin of pytest: each test's outcome is written to the file ``FINDINGS`` when it is known."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from loadtest.gpu_report import without_numba

without_numba.stand_in()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("FIRST_TEST_ALONE"):
        del items[1:]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    if report.when == "teardown" and report.outcome == "skipped":
        return
    why = report.longreprtext.strip()
    found = {
        "test": report.nodeid,
        "outcome": report.outcome,
        "seconds": f"{report.duration:.2f}",
        "why": why if report.outcome == "failed" else why[-200:],
    }
    with Path(os.environ["FINDINGS"]).open("a") as file:
        file.write(json.dumps(found) + "\n")
