"""8B in bfloat16: the forward pass alone, prefill, and memory."""

from __future__ import annotations

from tools.bench.gpu_report.forward import measure
from tools.bench.gpu_report.model import loaded
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.parts.invariance import compare
from tools.bench.gpu_report.record import Record
from tools.bench.gpu_report.shapes import LLAMA_8B


def run(record: Record, options: Options) -> None:
    # As many rows of each sequence as in the server, so that the cache gets the same memory.
    with loaded(record, options, LLAMA_8B, max_rows_each=17) as (runner, _):
        measure(record, options, runner, LLAMA_8B)
        compare(record, runner, options.tiny, required=False)
