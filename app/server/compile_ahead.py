"""Compiles all loops before a server starts, while an image is built.

``python -m app.server.compile_ahead MODEL`` loads the demo model in each form that has loops of its
own, then MODEL, once for every kind of processor whose features this one has. If there is none, as
in a build for another architecture, the server compiles at its first start.
"""

from __future__ import annotations

import os
import subprocess
import sys

from app.core.kernels import PROCESSORS, SHIPPED, features_of, name_image, runs_here
from app.server.backend import load_backend
from app.server.settings import Settings
from app.telemetry.metrics import Metrics

FORMS = ({"dtype": "float32"}, {"dtype": "bfloat16"}, {"quantize": "int4"}, {"quantize": "int8"})


def main(model: str) -> None:
    for kind, (name, _) in PROCESSORS.items():
        if not runs_here(kind):
            print(f"{kind}: not supported by this processor, skipped", flush=True)
            continue
        chosen = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features_of(kind)}
        kept = {"NUMBA_CACHE_DIR": str(SHIPPED / kind)}
        command = [sys.executable, "-m", "app.server.compile_ahead", "--one", model]
        subprocess.run(command, env=os.environ | chosen | kept, check=True)
        name_image(SHIPPED / kind)
        print(f"{kind}: compiled", flush=True)


def compile_one(model: str) -> None:
    """Compile for the processor that the environment variables name."""
    for form in [*({"model": "demo", **form} for form in FORMS), {"model": model}]:
        settings = Settings.model_validate({"device": "cpu", "kv_cache_bytes": 1 << 26, **form})
        load_backend(settings, Metrics())


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else compile_one(sys.argv[2])
