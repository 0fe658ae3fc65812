"""What drawing takes, at the vocabulary's full size, with masks that the device knows already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from app.core.step import PendingDraws, SampledToken
from app.model.cuda.sampling import DeviceSampler
from loadtest.gpu_report.device import bandwidth, device_of, timed, waited
from loadtest.gpu_report.options import Options
from loadtest.gpu_report.parts.sampler import KINDS, TINY_VOCABULARY, VOCABULARY, draws
from loadtest.gpu_report.record import Record

TIMED = ("greedy", "plain", "top_p", "all filters", "logprobs")


def draws_alone(record: Record, options: Options) -> None:
    """Rows ``draws``: the device's time, and that of a host which waits for each."""
    device, tiny = device_of(options), options.tiny
    size = TINY_VOCABULARY if tiny else VOCABULARY
    sampler, speed = DeviceSampler(size, device), bandwidth(device)
    for rows in (1,) if tiny else (1, 32, 256):
        logits = (torch.randn(rows, size, device=device) * 3).to(torch.bfloat16)
        for kind in TIMED[:2] if tiny else TIMED:
            asked = draws(KINDS[kind], rows, size, "wide", False)
            try:
                sample = partial(sampler.sample, logits, asked)
                of_device = timed(sample, device, launches=60)
                whole = waited(partial(_drawn, sample), device)
            except Exception as error:
                record.failed(f"{kind}, {rows} rows", error)
                continue
            record.row(
                "draws", rows=rows, kind=kind, device_us=1e6 * of_device.median,
                spread=of_device.spread, waited_us=1e6 * whole.median,
                floor_us=1e6 * logits.nbytes / speed,
            )  # fmt: skip


def _drawn(sample: Callable[[], PendingDraws]) -> Sequence[SampledToken]:
    return sample().wait().tokens
