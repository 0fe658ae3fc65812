"""``python -m tests.answer.real_templates FOLDER``: round trips of all chat templates in a folder.

Prints a table: the template, the formats found, and what failed. Ends with 1 where something did.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.answer.round_trips import TURNS, Report, check


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="with files NAME.jinja")
    parser.add_argument("--match", default="", help="only those with this in their names")
    parser.add_argument("--verbose", action="store_true", help="what failed and was refused")
    options = parser.parse_args()
    failed = 0
    files = sorted(each for each in options.folder.glob("*.jinja") if options.match in each.name)
    for file in files:
        report = check(file.read_text(encoding="utf-8"))
        print(f"{file.stem[:50]:50}  {_summary(report)}", flush=True)
        if options.verbose:
            for name, why in (report.failed | report.refused).items():
                print(f"    {name}: {why}")
        failed += bool(report.failed)
    print(f"{len(files)} templates, {failed} with failures")
    return 1 if failed else 0


def _summary(report: Report) -> str:
    reasoning = report.format.reasoning
    marks = "-" if reasoning is None else reasoning.begin.strip()[:16]
    verdict = f"{len(report.passed)} of {len(TURNS)} ok"
    if report.failed:
        verdict += f", failed: {', '.join(report.failed)}"
    if report.refused:
        verdict += f", refused: {', '.join(report.refused)}"
    return f"{report.format.tools.name:16}  {marks:12}  {verdict}"


if __name__ == "__main__":
    sys.exit(main())
