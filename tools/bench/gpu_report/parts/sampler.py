"""The device's sampler: the same tokens as the CPU's for the same keys, among 128,256."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from app.core.constraint import Mask
from app.core.request import SamplingParams
from app.core.step import Draw, SampledToken
from app.model.cpu.sampling import CpuSampler
from app.model.cuda.sampling import DeviceSampler
from tools.bench.gpu_report.device import device_of
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.record import Record

VOCABULARY = 128_256
TINY_VOCABULARY = 160

KINDS = {
    "greedy": SamplingParams(temperature=0.0),
    "plain": SamplingParams(),
    "top_p": SamplingParams(top_p=0.9),
    "top_k": SamplingParams(top_k=40),
    "min_p": SamplingParams(min_p=0.05),
    "all filters": SamplingParams(temperature=0.7, top_k=100, top_p=0.95, min_p=0.01),
    "logprobs": SamplingParams(logprobs=5),
    "penalties": SamplingParams(
        repetition_penalty=1.2, frequency_penalty=0.4, presence_penalty=0.3
    ),
    "bias": SamplingParams(logit_bias={3: 5.0, 17: -4.0, 100: 2.0}),
}  # fmt: skip
_TOLERANCE = 2e-3
"""Tolerance of log probabilities: bfloat16 logits are the same, sums are not."""


def run(record: Record, options: Options) -> None:
    device = device_of(options)
    size = TINY_VOCABULARY if options.tiny else VOCABULARY
    ours = DeviceSampler(size, device)
    torch.manual_seed(0)
    _compare(record, ours, device, size, options.tiny)


def draws(params: SamplingParams, rows: int, size: int, masked: str, history: bool) -> list[Draw]:
    """``masked``: "none", "wide" (four of five tokens allowed) or "narrow" (some 20)."""
    chance = np.random.default_rng(rows)
    spoken = chance.integers(0, size, 300)
    known = (spoken[200:].tolist(), np.unique(spoken[:200])) if history else ()
    masks = [_mask(chance, size, masked) for _ in range(min(rows, 8))]
    dice = random.Random(1)
    return [
        Draw(params, dice.getrandbits(64), masks[row % len(masks)], *known) for row in range(rows)
    ]


def _mask(chance: Any, size: int, masked: str) -> Mask | None:
    if masked == "none":
        return None
    allowed = chance.random(size) < (0.8 if masked == "wide" else 20 / size)
    allowed[chance.integers(size)] = True
    bits = np.zeros(-(-size // 32) * 32, dtype=np.uint8)
    bits[:size] = allowed
    mask = np.packbits(bits, bitorder="little").view(np.uint32).copy()
    mask.flags.writeable = False
    return mask


def _compare(
    record: Record, ours: DeviceSampler, device: torch.device, size: int, tiny: bool
) -> None:
    oracle = CpuSampler(size)
    rows = 2 if tiny else 32
    for kind, params in KINDS.items():
        same: dict[str, Any] = {}
        for masked in ("wide",) if tiny else ("none", "wide", "narrow"):
            if record.seconds_left < 8:
                same[masked] = "no time"
                continue
            asked = draws(params, rows, size, masked, params.has_penalties)
            # As peaked as a trained model's logits, and rounded like them.
            logits = (torch.randn(rows, size) * 3).to(torch.bfloat16)
            try:
                expected = oracle.sample(logits, asked).wait().tokens
                found = ours.sample(logits.to(device), asked).wait().tokens
            except Exception as error:
                record.failed(f"{kind}, mask {masked}", error)
                same[masked] = "failed"
                continue
            agreeing = sum(map(_agree, found, expected))
            same[masked] = f"{agreeing} of {rows}"
            if agreeing < rows:
                record.failed(f"{kind}, mask {masked}", f"{agreeing} of {rows} tokens are the same")
        record.row("the same tokens, by mask", draws=kind, **same)


def _agree(found: SampledToken, expected: SampledToken) -> bool:
    if found.token_id != expected.token_id or abs(found.logprob - expected.logprob) > _TOLERANCE:
        return False
    ours, theirs = ([top.logprob for top in token.top] for token in (found, expected))
    return len(ours) == len(theirs) and bool(np.allclose(ours, theirs, atol=_TOLERANCE))
