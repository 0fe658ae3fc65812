"""Time of draws at the full vocabulary size, with masks that are already on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

import torch

from app.core.step import PendingDraws, SampledToken
from app.model.cuda.sampling import DeviceSampler
from tools.bench.gpu_report.device import bandwidth, device_of, timed, waited
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.parts.sampler import KINDS, TINY_VOCABULARY, VOCABULARY, draws
from tools.bench.gpu_report.record import Record

TIMED = ("greedy", "plain", "top_p", "all filters", "logprobs")


def draws_alone(record: Record, options: Options) -> None:
    """A row for each kind of draw, by number of rows."""
    device, tiny = device_of(options), options.tiny
    size = TINY_VOCABULARY if tiny else VOCABULARY
    sampler, speed = DeviceSampler(size, device), bandwidth(device)
    for kind in TIMED[:2] if tiny else TIMED:
        cells: dict[str, object] = {}
        for rows in (1,) if tiny else (1, 32, 256):
            logits = (torch.randn(rows, size, device=device) * 3).to(torch.bfloat16)
            sample = partial(sampler.sample, logits, draws(KINDS[kind], rows, size, "wide", False))
            try:
                of_device = timed(sample, device, launches=60)
                whole = waited(partial(_drawn, sample), device)
            except Exception as error:
                record.failed(f"{kind}, {rows} rows", error)
                continue
            cells[f"us of {rows}"] = 1e6 * of_device.median
            cells[f"waited {rows}"] = 1e6 * whole.median
            cells[f"floor {rows}"] = 1e6 * logits.nbytes / speed
            record.detail(f"draws, {kind}, {rows} rows", asdict(of_device))
        record.row(
            "draws: the device's time, a host's that waits, reading once", kind=kind, **cells
        )


def _drawn(sample: Callable[[], PendingDraws]) -> Sequence[SampledToken]:
    return sample().wait().tokens
