"""``python3 -m loadtest.gpu_report`` runs ``tools.bench.gpu_report``."""

from __future__ import annotations

import sys

from tools.bench.gpu_report.__main__ import main

if __name__ == "__main__":
    sys.exit(not main())
