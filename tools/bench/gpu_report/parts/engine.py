"""8B: steps of the whole engine, free and constrained, against the forward pass inside them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tools.bench.gpu_report.device import device_of
from tools.bench.gpu_report.engine_bench import EngineBench, Mode, Steps
from tools.bench.gpu_report.model import loaded
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.record import Record
from tools.bench.gpu_report.shapes import LLAMA_8B

Case = tuple[int, Mode]
BOTH: tuple[Mode, ...] = ("free", "constrained")
CASES: tuple[Case, ...] = (
    *((batch, mode) for batch in (1, 32, 256, 8, 64) for mode in BOTH),
    *((batch, "no leap") for batch in (32, 1, 8, 64, 256)),
)
"""The most important cases come first."""
SERIAL_CASES: tuple[Case, ...] = tuple((batch, mode) for batch in (32, 1, 256) for mode in BOTH)
TINY_CASES: tuple[Case, ...] = ((2, "constrained"),)


def run(record: Record, options: Options) -> None:
    device = device_of(options)
    with loaded(record, options, LLAMA_8B) as (runner, folder):
        bench = EngineBench(runner, folder, device, options.tiny)
        measure(record, options, bench, "steps", CASES)
        first_tokens(record, options, bench)
        serial = EngineBench(runner, folder, device, options.tiny, overlap=False)
        measure(record, options, serial, "steps in the serial order", SERIAL_CASES)


def measure(
    record: Record, options: Options, bench: EngineBench, table: str, cases: Sequence[Case]
) -> None:
    """Write rows of ``table`` while time is left."""
    count, prompt = (2, 6) if options.tiny else (40, 448)
    if not options.tiny:  # compute the masks first, so that they do not count
        bench.steps(64, "constrained", 30, 16)
    for batch, mode in TINY_CASES if options.tiny else cases:
        name = f"{table}: {batch} {mode}"
        if record.seconds_left < 5:
            record.left_out(name, "no time left")
            continue
        try:
            steps = bench.steps(batch, mode, count, prompt)
        except Exception as error:
            record.failed(name, error)
            continue
        record.row(table, answers=batch, mode=mode, **_cells(batch, steps))
        if steps.kernels:
            record.failed(name, f"kernels compiled while serving: {set(steps.kernels)}")


def _cells(batch: int, steps: Steps) -> dict[str, object]:
    """Time of a step by the host's clock, and the times of its parts on the device."""
    return {
        "step_ms": 1e3 * steps.seconds / steps.count,
        "forward_ms": 1e3 * steps.forward / steps.count,
        "draw_ms": 1e3 * steps.drawing / steps.count,
        "launch_ms": 1e3 * steps.launching / steps.count,
        "idle": "" if steps.idle is None else steps.idle,
        "in_graphs": steps.in_graphs,
        "tokens": steps.tokens / steps.count,
        "tokens_s": steps.gained / steps.seconds,
        "ms_a_token": 1e3 * batch * steps.seconds / max(1, steps.gained),
        "compiled": len(steps.kernels),
    }


def first_tokens(record: Record, options: Options, bench: EngineBench) -> None:
    for prompt in (9,) if options.tiny else (128, 512, 2048, 8192, 32_768):
        if record.seconds_left < 3:
            return
        try:
            seconds = [bench.first_token(prompt) for _ in range(1 if options.tiny else 3)]
        except Exception as error:
            record.failed(f"first token after {prompt}", error)
            continue
        middle = statistics.median(seconds)
        record.row("first token, alone", prompt=prompt, ms=1e3 * middle, tokens_s=prompt / middle)
