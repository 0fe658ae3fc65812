"""8B: time of a step by kernel, and how busy the device is, from its profiler."""

from __future__ import annotations

from typing import Any

from torch.profiler import ProfilerActivity, profile

from tools.bench.gpu_report.device import device_of
from tools.bench.gpu_report.engine_bench import EngineBench, Mode, Steps
from tools.bench.gpu_report.model import loaded
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.record import Record
from tools.bench.gpu_report.shapes import LLAMA_8B

KEPT, SHOWN = 20, 10
CASES: tuple[tuple[int, Mode], ...] = ((1, "free"), (32, "free"), (32, "constrained"))


def run(record: Record, options: Options) -> None:
    device = device_of(options)
    cuda = device.type == "cuda"
    count, prompt = (1, 4) if options.tiny else (10, 448)
    with loaded(record, options, LLAMA_8B) as (runner, folder):
        bench = EngineBench(runner, folder, device, options.tiny)
        for batch, mode in ((2, "free"),) if options.tiny else CASES:
            profiler: Any = profile(
                activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]
            )
            try:
                steps = bench.steps(batch, mode, count, prompt, profiler)
                _record_kernels(record, f"{batch} {mode}", profiler, steps, cuda)
            except Exception as error:
                record.failed(f"{batch} {mode}", error)


def _record_kernels(record: Record, name: str, profiler: Any, steps: Steps, cuda: bool) -> None:
    clock = "self_device_time_total" if cuda else "self_cpu_time_total"
    found = [each for each in profiler.key_averages() if getattr(each, clock) > 0]
    found.sort(key=lambda each: -getattr(each, clock))
    whole = sum(getattr(each, clock) for each in found)
    record.value(
        name,
        {
            "step ms": 1e3 * steps.seconds / steps.count,
            "of it busy": _busy(profiler) / (1e6 * steps.seconds),
            "kernels a step": sum(each.count for each in found) / steps.count,
        },
    )
    for place, each in enumerate(found[:KEPT]):
        spent = getattr(each, clock)
        row = {
            "kernel": each.key,
            "share": spent / whole,
            "a_step": each.count / steps.count,
            "us": spent / each.count,
        }
        record.detail(f"kernel {place + 1} of {name}", row)
        if place < SHOWN:
            record.row(f"kernels of {name}", **row)


def _busy(profiler: Any) -> float:
    """Microseconds in which some kernel or copy ran."""
    spans = sorted(
        (each.time_range.start, each.time_range.end)
        for each in profiler.events()
        if each.device_type.name == "CUDA"
    )
    total, reached = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
