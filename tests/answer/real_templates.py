"""``python -m tests.answer.real_templates FOLDER``: round trips of all chat templates in a folder.

Prints a table of templates, detected formats and failures. Exits with 1 if there is a failure.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.answer.rendered import TURNS
from tests.answer.round_trips import Report, check


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of NAME.jinja files")
    parser.add_argument("--match", default="", help="only templates with this text in their names")
    parser.add_argument("--verbose", action="store_true", help="print failures and refusals")
    options = parser.parse_args()
    failed = chats = 0
    files = sorted(each for each in options.folder.glob("*.jinja") if options.match in each.name)
    for file in files:
        report = check(file.read_text(encoding="utf-8"))
        if not report.is_chat:
            print(f"{file.stem[:50]:50}  no answers: {next(iter(report.refused.values()))[:80]}")
            continue
        chats += 1
        print(f"{file.stem[:50]:50}  {_summary(report)}", flush=True)
        if options.verbose:
            for name, why in (report.failed | report.refused).items():
                print(f"    {name}: {why}")
        failed += bool(report.failed)
    print(f"{chats} templates with answers, {failed} with failures; {len(files) - chats} others")
    return 1 if failed else 0


def _summary(report: Report) -> str:
    reasoning = report.format.reasoning
    marks = "-" if reasoning is None else reasoning.begin.strip()[:16]
    verdict = f"{len(report.passed)} of {len(TURNS)} ok"
    if report.failed:
        causes: dict[str, list[str]] = {}
        for name, cause in report.causes.items():
            causes.setdefault(cause or "?", []).append(name)
        verdict += "".join(f", failed: {', '.join(n)} ({why})" for why, n in causes.items())
    if report.refused:
        verdict += f", refused: {', '.join(report.refused)}"
    verdict = "; ".join((verdict, *report.notes))
    return f"{report.format.tools.name:16}  {marks:12}  {verdict}"


if __name__ == "__main__":
    sys.exit(main())
