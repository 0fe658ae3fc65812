"""Simulate the autoscaling of ``k8s/`` under the recorded load.

    python -m loadtest.autoscale            the table, and the figure docs/autoscaling.svg
    python -m loadtest.autoscale record     record the load anew with the demo model: 6 minutes

The rules are read from the manifests, the load and the server's speed from ``load.csv``; the same
manifests and recording give the same figure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from loadtest.autoscale.figure import figure
from loadtest.autoscale.recording import RECORDED, read, write
from loadtest.autoscale.report import Outcome, capacity, cluster, outcome, recorded_loads
from loadtest.autoscale.rules import hpa, keda, queue_alone
from loadtest.tables import table

COLUMNS = ("rule", "slowest reaction, s", "decisions", "taken back", "pod-hours", "refused")
FIGURE = Path(__file__).resolve().parents[2] / "docs/autoscaling.svg"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.autoscale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=("simulate", "record"), default="simulate")
    if parser.parse_args(arguments).command == "record":
        from loadtest.autoscale.record import record  # it needs the server's own dependencies

        write(record())
        print(f"written: {RECORDED}", file=sys.stderr)
        return 0
    recording = read()
    surroundings, loads = cluster(recording), recorded_loads(recording)
    outcomes = [outcome(rule, surroundings, loads) for rule in (hpa(), keda(), queue_alone(hpa()))]
    print(outcome_table(outcomes))
    server = capacity(surroundings.service)
    FIGURE.write_text(figure(outcomes[0], outcomes[-1], server), encoding="utf-8")
    print(f"\nwritten: {FIGURE}", file=sys.stderr)
    return 0


def outcome_table(outcomes: Sequence[Outcome]) -> str:
    """In Markdown."""
    rows = []
    for each in outcomes:
        arrived = sum(moment.arrivals for moment in each.run.moments)
        hours = sum(moment.replicas for moment in each.run.moments) / 3600
        slowest = max(each.reactions, default=0)
        changes, flaps = len(each.run.changes), len(each.flaps)
        refused = f"{each.run.refused / arrived:.2%}"
        rows.append((each.rule.name, slowest, changes, flaps, f"{hours:.1f}", refused))
    return table(COLUMNS, rows)


if __name__ == "__main__":
    sys.exit(main())
