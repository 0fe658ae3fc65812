"""The pieces of a step, each alone: small kernels, draws, attention."""

from __future__ import annotations

from tools.bench.gpu_report.attention_alone import attention_alone
from tools.bench.gpu_report.device import device_of, release
from tools.bench.gpu_report.draws_alone import draws_alone
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.record import Record
from tools.bench.gpu_report.shapes import LLAMA_8B, TINY
from tools.bench.gpu_report.small_kernels import small_kernels


def run(record: Record, options: Options) -> None:
    device = device_of(options)
    small_kernels(record, device, TINY if options.tiny else LLAMA_8B, options.tiny)
    release(device)
    draws_alone(record, options)
    release(device)
    attention_alone(record, options)
