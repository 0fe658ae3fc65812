from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.faults.findings import Report, fault_table, quantile, write_json
from loadtest.faults.fuzz_cases import KINDS, case
from loadtest.faults.soak import gradient


def test_the_slope_of_memory_is_that_of_the_line_through_it() -> None:
    times = [0.0, 5.0, 10.0, 20.0]
    assert gradient(times, [100 + 0.25 * time for time in times]) == pytest.approx(0.25)
    # Symmetric noise around a flat line has no slope.
    assert gradient([0, 1, 2, 3], [1, 2, 2, 1]) == pytest.approx(0)


def test_a_report_fails_with_one_of_its_rows_and_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report("a fault")
    report.note("seconds", 1.23456)
    report.at_most("growth", 3.0, 4.0)
    before = report.held
    report.equal("lost", 1, 0)
    assert (before, report.held) == (True, False)
    assert "| a fault | lost | 1 | = 0 | NO |" in fault_table([report])
    assert "| a fault | seconds | 1.235 |  |  |" in capsys.readouterr().out
    write_json(tmp_path / "figures.json", [report], {"cpus": 2})
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["faults"][0]["rows"][2]["held"] is False


def test_cases_follow_from_their_numbers_and_every_kind_has_its_turn() -> None:
    assert [case(number) for number in range(64)] == [case(number) for number in range(64)]
    assert [case(number).kind for number in range(len(KINDS))] == [kind for kind, _ in KINDS]


def test_quantiles_are_values_that_were_seen() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert quantile([], 0.5) == 0.0
