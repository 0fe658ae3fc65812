"""Limits of the device: a large copy, products of a model's sizes, a graph of empty launches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch.nn import functional

from tools.bench.gpu_report.device import bandwidth, device_of, replayed, timed
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.record import Record
from tools.bench.gpu_report.shapes import LLAMA_8B, TINY


def run(record: Record, options: Options) -> None:
    device = device_of(options)
    shape = TINY if options.tiny else LLAMA_8B
    speed = bandwidth(device)
    record.value("GB/s of a large copy", speed / 1e9)
    record.value("8B: ms to read the weights at that", 1e3 * LLAMA_8B.weight_bytes / speed)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    size = 64 if options.tiny else 8192
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    record.value(
        "TFLOP/s of a large product",
        2 * size**3 / timed(lambda: left @ right, device).median / 1e12,
    )
    small = torch.randn(1024, device=device)
    record.value(
        "us of the smallest kernel in a graph",
        1e6 * replayed(lambda: small.add_(1.0), device, 200).median,
    )
    sizes = {
        "qkv": (shape.hidden, (shape.heads + 2 * shape.kv_heads) * shape.head_dim),
        "output": (shape.heads * shape.head_dim, shape.hidden),
        "gate and up": (shape.hidden, 2 * shape.intermediate),
        "down": (shape.intermediate, shape.hidden),
        "logits": (shape.hidden, shape.vocabulary),
    }
    for name, (inner, outer) in sizes.items():
        # Several copies, so that no weight is still in the cache when it is read again.
        copies = 1 if options.tiny else max(2, (256 << 20) // (2 * inner * outer))
        weights = [torch.randn(outer, inner, device=device, dtype=dtype) for _ in range(copies)]
        speeds = {}
        for rows in (1, 8, 32, 64, 128, 256, 512):
            given = torch.randn(rows, inner, device=device, dtype=dtype)
            work = partial(_products, given, weights)
            seconds = timed(work, device, launches=copies).median / copies
            speeds[f"{rows} rows"] = weights[0].nbytes / seconds / 1e9
        record.row("GB/s of weights read by torch's products, by rows", product=name, **speeds)


def _products(given: torch.Tensor, weights: Sequence[torch.Tensor]) -> None:
    for weight in weights:
        functional.linear(given, weight)
