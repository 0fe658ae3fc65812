"""``python3 -m loadtest.gpu_report``; see the package."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import tools.bench.gpu_report
from tools.bench.gpu_report.options import parse
from tools.bench.gpu_report.supervisor import Supervisor


def main(arguments: Sequence[str] | None = None) -> bool:
    """Run the report; returns whether all parts succeeded."""
    return Supervisor(parse(arguments, tools.bench.gpu_report.__doc__)).run()


if __name__ == "__main__":
    sys.exit(not main())
