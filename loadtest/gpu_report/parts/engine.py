"""8B: steps of the whole engine, free and constrained, against the forward pass inside them."""

from __future__ import annotations

import statistics

from loadtest.gpu_report.device import device_of
from loadtest.gpu_report.engine_bench import MODES, EngineBench, Steps
from loadtest.gpu_report.model import loaded
from loadtest.gpu_report.options import Options
from loadtest.gpu_report.record import Record
from loadtest.gpu_report.shapes import LLAMA_8B

BATCHES = (1, 32, 256, 8, 64)
"""The ones that say most come first."""


def run(record: Record, options: Options) -> None:
    with loaded(record, options, LLAMA_8B) as (runner, folder):
        bench = EngineBench(runner, folder, device_of(options), options.tiny)
        measure(record, options, bench, (2,) if options.tiny else BATCHES)
        first_tokens(record, options, bench)


def measure(record: Record, options: Options, bench: EngineBench, batches: tuple[int, ...]) -> None:
    count, prompt = (2, 6) if options.tiny else (40, 448)
    if not options.tiny:  # where nobody stood before, a mask is worked out: not in what is counted
        bench.steps(64, "constrained", 30, 16)
    for batch in batches:
        for mode in MODES[::2] if options.tiny else MODES:
            name = f"{batch} {mode}"
            if record.seconds_left < 5:
                record.left_out(name, "no time left")
                continue
            try:
                _tell(record, batch, mode, bench.steps(batch, mode, count, prompt))
            except Exception as error:
                record.failed(name, error)


def _tell(record: Record, batch: int, mode: str, steps: Steps) -> None:
    record.row(
        "steps", answers=batch, mode=mode,
        step_ms=1e3 * steps.seconds / steps.count,
        forward_ms=1e3 * steps.forward / steps.count,
        draw_ms=1e3 * steps.drawing / steps.count,
        launch_ms=1e3 * steps.launching / steps.count,
        idle="" if steps.idle is None else steps.idle,
        in_graphs=steps.in_graphs,
        tokens=steps.tokens / steps.count,
        tokens_s=steps.gained / steps.seconds,
        ms_a_token=1e3 * batch * steps.seconds / max(1, steps.gained),
        compiled=len(steps.kernels),
    )  # fmt: skip
    if steps.kernels:
        record.failed(f"{batch} {mode}", f"kernels compiled while serving: {set(steps.kernels)}")


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
