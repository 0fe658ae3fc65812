"""1B: the forward pass and a few steps of the engine."""

from __future__ import annotations

from tools.bench.gpu_report.device import device_of
from tools.bench.gpu_report.engine_bench import EngineBench
from tools.bench.gpu_report.forward import measure
from tools.bench.gpu_report.model import loaded
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.parts import engine
from tools.bench.gpu_report.record import Record
from tools.bench.gpu_report.shapes import LLAMA_1B


def run(record: Record, options: Options) -> None:
    with loaded(record, options, LLAMA_1B) as (runner, folder):
        measure(record, options, runner, LLAMA_1B, brief=True)
        bench = EngineBench(runner, folder, device_of(options), options.tiny)
        engine.measure(record, options, bench, "steps", engine.CASES[:4])
