"""Versions on this machine, and whether the code that the other parts need can be imported."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
import time

from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.record import Record

LIBRARIES = ("torch", "triton", "transformers", "numpy", "tokenizers", "numba", "pytest")
NEEDED = (
    "app.core.step", "app.constraint", "app.text", "app.kv.manager", "app.engine",
    "app.model.cuda.attention", "app.model.cuda.graphs", "app.model.cuda.sampling",
    "app.model.runner", "app.model.composition", "tests.model.tiny",
)  # fmt: skip
_QUERY = "driver_version,pstate,clocks.sm,clocks.mem,power.limit,ecc.mode.current,mig.mode.current"


def run(record: Record, options: Options) -> None:
    record.value("python", f"{platform.python_version()} {platform.machine()}")
    record.value("cores", len(os.sched_getaffinity(0)))
    for name in LIBRARIES:
        start = time.perf_counter()
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            record.left_out(name, str(error))
            continue
        record.value(name, str(getattr(module, "__version__", "there")))
        record.detail(f"seconds to import {name}", time.perf_counter() - start)
    _device(record, options)
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except Exception as error:
            record.failed(f"import of {name}", error)
    unwanted = [name for name in ("fastapi", "pydantic", "outlines") if name in sys.modules]
    record.value("imported without need", ", ".join(unwanted) or "nothing")


def _device(record: Record, options: Options) -> None:
    import torch

    if options.device != "cuda":
        record.left_out("the device", "this is a dry run on the CPU")
        return
    if not torch.cuda.is_available():
        record.failed("CUDA", "torch sees no CUDA device")
        return
    made = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    record.value("device", made.name)
    record.value("capability", f"{made.major}.{made.minor}")
    record.value("multiprocessors", made.multi_processor_count)
    record.value("GiB free of", f"{free / 2**30:.1f} of {total / 2**30:.1f}")
    record.value("CUDA", torch.version.cuda)
    record.value("bfloat16", torch.cuda.is_bf16_supported(including_emulation=False))
    try:
        completed = subprocess.run(
            ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=15, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        record.left_out("nvidia-smi", str(error))
        return
    record.value("driver, state, clocks, power, ECC, MIG", completed.stdout.strip())
