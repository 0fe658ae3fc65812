"""The process of one part: ``... tools.bench.gpu_report.child PART FINDINGS SECONDS OPTIONS``."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import sys
from pathlib import Path

from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.record import Record


class _Warnings(logging.Handler):
    """Records warnings as findings: that no graph could be captured, for example."""

    def __init__(self, record: Record) -> None:
        super().__init__(logging.WARNING)
        self._record = record

    def emit(self, record: logging.LogRecord) -> None:
        self._record.value("warned", f"{record.name}: {record.getMessage()}"[:400])


def main(part: str, findings: str, seconds: str, options: str) -> None:
    limit = float(seconds)
    faulthandler.dump_traceback_later(limit, exit=False)  # the log then has the stack of a hang
    record = Record(Path(findings), limit)
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("app").addHandler(_Warnings(record))
    module = importlib.import_module(f"tools.bench.gpu_report.parts.{part}")
    module.run(record, Options.from_json(options))


if __name__ == "__main__":
    main(*sys.argv[1:])
