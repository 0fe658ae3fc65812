"""Writes the results of the checks as a page: docs/clients.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.clients.catalogue import FEATURES, Client


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check; ``ok`` is None if the check does not apply."""

    feature: str
    check: str
    ok: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one client; ``problem`` says why it did not run, or not to its end."""

    client: Client
    outcomes: tuple[Outcome, ...]
    problem: str | None = None

    @property
    def failed(self) -> bool:
        return self.problem is not None or any(outcome.ok is False for outcome in self.outcomes)


_INTRODUCTION = """# Clients

Find your client in the table. Each was run, in an environment of its own, against servers of the
two demo models (images: the vision model). *ok*: every check of the feature passed, so answers
and arguments of calls were valid, streamed parts were equal to the whole, and images were read. A
dash: the client does not have the feature, or it was not checked. To run the checks, which are in
`tests/clients`, and to write this page again, use `make clients`.
"""


def page(reports: Sequence[Report], runtimes: str) -> str:
    """The table of clients and features, then every check with its result."""
    parts = [_INTRODUCTION, f"Run with {runtimes}.\n", _overview(reports), "## Checks\n"]
    parts += [_details(report) for report in reports]
    return "\n".join(parts)


def _overview(reports: Sequence[Report]) -> str:
    features = [
        feature
        for feature in FEATURES
        if any(outcome.feature == feature for report in reports for outcome in report.outcomes)
    ]
    lines = [_row(["client", *features]), _row(["---"] * (len(features) + 1))]
    for report in reports:
        versions = ", ".join(f"{k} {v}" for k, v in report.client.versions().items())
        cells = [_cell(report, feature) for feature in features]
        lines.append(_row([f"**{report.client.title}** ({versions})", *cells]))
    return "\n".join(lines) + "\n"


def _cell(report: Report, feature: str) -> str:
    verdicts = [outcome.ok for outcome in report.outcomes if outcome.feature == feature]
    counted = [ok for ok in verdicts if ok is not None]
    if not counted:
        return "-" if report.problem is None or report.outcomes else "did not run"
    if all(counted):
        return "ok"
    return f"{sum(counted)} of {len(counted)}" if any(counted) else "fails"


def _details(report: Report) -> str:
    lines = [f"### {report.client.title}\n"]
    if report.problem is not None:
        lines.append(f"{_plain(report.problem)}\n")
    if report.outcomes:
        lines += [_row(["feature", "check", "result"]), _row(["---"] * 3)]
    for outcome in report.outcomes:
        verdict = {True: "ok", False: "fails", None: "not applicable"}[outcome.ok]
        result = f"{verdict}: {outcome.detail}" if outcome.detail else verdict
        lines.append(_row([outcome.feature, outcome.check, _plain(result)]))
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """``text`` on one line of at most 300 characters, without mark-up."""
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= 300 else line[:297] + "..."


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
