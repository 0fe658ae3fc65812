"""The process of one part: ``python -m loadtest.gpu_report.child PART FINDINGS SECONDS OPTIONS``."""

from __future__ import annotations

import faulthandler
import importlib
import sys
from pathlib import Path

from loadtest.gpu_report import without_numba
from loadtest.gpu_report.options import Options
from loadtest.gpu_report.record import Record


def main(part: str, findings: str, seconds: str, options: str) -> None:
    limit = float(seconds)
    faulthandler.dump_traceback_later(limit, exit=False)  # so that the log says where it hung
    record = Record(Path(findings), limit)
    without_numba.stand_in()
    module = importlib.import_module(f"loadtest.gpu_report.parts.{part}")
    module.run(record, Options.from_json(options))


if __name__ == "__main__":
    main(*sys.argv[1:])
