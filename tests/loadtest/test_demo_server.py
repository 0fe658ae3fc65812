"""A short run against the real server: it accepts the requests, and answers are valid."""

from __future__ import annotations

import csv
from pathlib import Path

from loadtest.__main__ import main

WORKLOADS = ("character", "tools", "pattern", "free:8")


def test_our_own_server_answers_what_is_sent_and_reports_its_passes(tmp_path: Path) -> None:
    options = ["--clients", "1", "--requests", "2", "--repeats", "1", "--warm-up", "0"]
    assert main(["run", "--workload", *WORKLOADS, *options, "--out", str(tmp_path)]) == 0
    with (tmp_path / "summary.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["workload"] for row in rows] == list(WORKLOADS)
    for row in rows:
        assert row["outcomes.valid"] == "2", row
        assert row["tokens_counted"] == "True"
        assert 0 < float(row["passes_per_answer"]) <= float(row["tokens_per_answer"])
        assert float(row["server_passes_per_answer"]) > 0
