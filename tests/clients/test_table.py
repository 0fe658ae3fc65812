"""The page shows the result of every client and feature."""

from __future__ import annotations

from tests.clients.catalogue import CLIENTS
from tests.clients.table import Outcome, Report, page


def test_a_cell_is_ok_a_share_a_failure_or_a_dash() -> None:
    outcomes = (
        Outcome("text", "one", True, ""),
        Outcome("stream", "one", True, ""),
        Outcome("stream", "two", False, "Error:\n a | b"),
        Outcome("tools", "one", False, "no"),
        Outcome("errors", "one", None, "not here"),
    )
    text = page([Report(CLIENTS[0], outcomes)], "Python")
    row = next(line for line in text.splitlines() if line.startswith(f"| **{CLIENTS[0].title}**"))
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["ok", "1 of 2", "fails", "-"]
    assert "| stream | two | fails: Error: a \\| b |" in text
    assert "| errors | one | not applicable: not here |" in text


def test_a_client_that_cannot_be_installed_says_so_in_every_column() -> None:
    ran = Report(CLIENTS[0], (Outcome("text", "one", True, ""),))
    absent = Report(CLIENTS[1], (), "cannot be installed: no network")
    text = page([ran, absent], "Python")
    row = next(line for line in text.splitlines() if line.startswith(f"| **{CLIENTS[1].title}**"))
    assert "did not run" in row
    assert "cannot be installed: no network" in text
    assert absent.failed
    assert not ran.failed


def test_every_client_pins_the_versions_of_its_packages() -> None:
    for client in CLIENTS:
        assert client.versions(), client.name
