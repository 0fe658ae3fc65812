"""``python3 -m loadtest.gpu_report``; see the package."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import loadtest.gpu_report
from loadtest.gpu_report.options import parse
from loadtest.gpu_report.supervisor import Supervisor


def main(arguments: Sequence[str] | None = None) -> bool:
    """Whether all went well."""
    return Supervisor(parse(arguments, loadtest.gpu_report.__doc__)).run()


if __name__ == "__main__":
    sys.exit(not main())
