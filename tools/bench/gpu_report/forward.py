"""Time of a forward pass, against the bytes it must read and the operations it must do."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence

import torch

from app.core.step import Span
from app.model.runner import TorchRunner
from tools.bench.gpu_report.device import Timing, bandwidth, device_of, synchronize, timed, timing
from tools.bench.gpu_report.model import Watch, answers_plan, memory
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.record import Record
from tools.bench.gpu_report.shapes import TINY, Shape

CELLS = (
    *itertools.product((1, 8, 32, 64, 128, 256), (512,)),
    *itertools.product((1, 8, 32, 64, 128), (8192,)),
    *itertools.product((1, 8), (65_536,)),
)
"""Number of answers, and context of each."""
PROMPTS = ((512, 512), (2048, 2048), (8192, 8192), (512, 32_768))
"""Tokens computed at once, and the context at their end."""
PEAK = 989.5e12
"""bfloat16 operations a second by the data sheet of H100 and H200 SXM, dense."""


def measure(
    record: Record, options: Options, runner: TorchRunner, shape: Shape, *, brief: bool = False
) -> None:
    """Write rows of decode and prefill passes, and the peak of memory."""
    device, shape = device_of(options), TINY if options.tiny else shape
    speed = bandwidth(device)
    cells = ((2, 20),) if options.tiny else CELLS[:6] if brief else CELLS
    for batch, context in cells:
        name = f"{batch} x {context}"
        if record.seconds_left < 5:
            record.left_out(name, "no time left")
            continue
        try:
            plan = answers_plan(runner, batch, context)
        except ValueError as error:
            record.left_out(name, str(error))
            continue
        try:
            way, found, host = forward_pass(runner, plan, device, options.tiny)
        except Exception as error:
            record.failed(name, error)
            continue
        floor = shape.step_bytes(batch, context) / speed
        record.row(
            "decode: the pass alone",
            answers=batch,
            context=context,
            ms=found.ms,
            spread=found.spread,
            floor_ms=1e3 * floor,
            over_floor=found.median / floor,
            way=way,
            launch_us=1e6 * host,
        )
    for length, context in ((9, 9),) if options.tiny else PROMPTS[:2] if brief else PROMPTS:
        name = f"prompt of {length} up to {context}"
        try:
            plan = answers_plan(runner, 1, context, length)
            way, found, _ = forward_pass(runner, plan, device, options.tiny)
        except Exception as error:
            record.failed(name, error)
            continue
        operations = shape.operations(length, context - length / 2, 1)
        record.row(
            "prefill: one pass",
            tokens=length,
            context=context,
            ms=found.ms,
            spread=found.spread,
            tokens_s=length / found.median,
            MFU=operations / found.median / PEAK,
            way=way,
        )
    if device.type == "cuda":
        memory(record, "at most while measuring")


def forward_pass(
    runner: TorchRunner, plan: Sequence[Span], device: torch.device, tiny: bool
) -> tuple[str, Timing, float]:
    """Way of the launch, the device's time for the pass alone, the host's time to launch it."""
    no_draws = [None] * len(plan)
    hosts = []
    watch = Watch()
    with watch.recording():
        for _ in range(1 if tiny else 8):
            synchronize(device)
            start = time.perf_counter()
            runner.launch(plan)
            hosts.append(time.perf_counter() - start)
            runner.sample(no_draws).wait()
    synchronize(device)
    last = watch.passes[-1]
    host = statistics.median(hosts)
    if device.type != "cuda":
        return last.way, timing(hosts), host
    if last.graph is not None:
        return last.way, timed(last.graph.replay, device, launches=20), host
    # Launched kernel by kernel: the times are those of the events around each launch.
    return last.way, timing([each.seconds for each in watch.passes[2:]]), host
