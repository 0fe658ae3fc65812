"""Paged attention against a plain attention, over every kind of step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from app.core.step import Span
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import KvStorage
from app.model.layers.attention import AttentionOptions
from tools.bench.gpu_report.device import device_of, kernels_loaded, release
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.paged import (
    BLOCK_SIZE,
    Heads,
    Lengths,
    attention_over,
    plain_attention,
    plan_of,
    random_storage,
    random_tokens,
    relative_error,
)
from tools.bench.gpu_report.record import Record

HALF = torch.bfloat16
HEADS = (
    Heads("Llama 8B", 32, 8, 128, 128, HALF),
    Heads("Llama 8B, float32", 32, 8, 128, 128, torch.float32),
    Heads("Llama 1B, float16", 32, 8, 64, 64, torch.float16),
    Heads("Gemma 2", 16, 8, 256, 256, HALF, window=512, softcap=50.0),
    Heads("gpt-oss", 64, 8, 64, 64, HALF, window=128, sinks=True),
    Heads("heads of 512", 8, 2, 512, 512, HALF),
    Heads("latent attention", 16, 16, 192, 128, HALF),
    Heads("one key head", 32, 1, 128, 128, HALF),
    Heads("Llama 8B, fp8", 32, 8, 128, 128, HALF, fp8=True),
)
TINY = (
    Heads("tiny", 4, 2, 16, 16, torch.float32),
    Heads("tiny, all", 4, 2, 16, 16, torch.float32, 9, 2.0, True),
    Heads("tiny, fp8", 4, 2, 16, 16, torch.float32, fp8=True),
)
TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
"""Relative; the error of rounding alone is about a third of it."""


def steps(tiny: bool) -> dict[str, Lengths]:
    """Steps that exercise every division into tiles and chunks of keys."""
    chance = random.Random(0)
    if tiny:
        return {"decode 2": [(1, 20), (1, 3)], "mixed": [(1, 40), (5, 9), (9, 0)]}
    return {
        **{f"decode {n}": [(1, chance.randrange(2000)) for _ in range(n)] for n in (1, 8, 33)},
        "decode 256": [(1, chance.randrange(700)) for _ in range(256)],
        "leaps 64": [(chance.randint(1, 17), chance.randrange(900)) for _ in range(64)],
        "mixed": [(1, 700), (1, 31), (1, 1500), (4, 333), (8, 96), (40, 100), (200, 0)],
        "prefill": [(700, 0), (300, 3000)],
        "one long": [(1, 30_000), *((1, 100 * i) for i in range(7)), (3, 9000)],
    }


def run(record: Record, options: Options) -> None:
    device = device_of(options)
    kinds = steps(options.tiny)
    for heads in TINY if options.tiny else HEADS:
        errors: dict[str, Any] = {}
        with kernels_loaded() as loaded:
            for name, lengths in kinds.items():
                if record.seconds_left < 4:
                    errors[name] = "no time"
                    continue
                try:
                    errors[name] = Attended.of(heads, lengths, device).error()
                    if not errors[name] < TOLERANCE[heads.dtype]:  # a NaN fails, too
                        record.failed(f"{heads.name}, {name}", f"relative error {errors[name]:.2g}")
                except Exception as error:
                    record.failed(f"{heads.name}, {name}", error)
                    errors[name] = "failed"
            errors["bits"] = _bits(record, heads, device, options.tiny)
        record.row("relative errors", heads=heads.name, **errors, kernels=len(loaded))
        release(device)


@dataclass(frozen=True, slots=True)
class Attended:
    """Attention of one step, with its inputs and its result."""

    heads: Heads
    storage: KvStorage
    plan: Sequence[Span]
    step: StepArrays
    tokens: tuple[Tensor, Tensor, Tensor]
    options: AttentionOptions
    out: Tensor

    @staticmethod
    def of(
        heads: Heads, lengths: Lengths, device: torch.device, *, batch_invariant: bool = False
    ) -> Attended:
        torch.manual_seed(0)
        plan, blocks = plan_of(lengths)
        step = lay_out(plan, BLOCK_SIZE)
        storage = random_storage(heads, blocks, 1, device)
        options, tokens = heads.options(device), random_tokens(heads, len(step.token_ids), device)
        attention = attention_over(heads, storage, batch_invariant=batch_invariant)
        attention.begin(step)
        out = attention.attend(0, *tokens, options)
        return Attended(heads, storage, plan, step, tokens, options, out)

    def error(self) -> float:
        expected = plain_attention(self.tokens[0], self.storage, self.step, self.options)
        return relative_error(self.out, expected)

    def same_alone(self, *, batch_invariant: bool) -> bool:
        """Whether every span gives the same bits when it is the only span of a step."""
        for span, layout in zip(self.plan, self.step.spans, strict=True):
            rows = slice(layout.row, layout.row + layout.length)
            attention = attention_over(self.heads, self.storage, batch_invariant=batch_invariant)
            attention.begin(lay_out([span], BLOCK_SIZE))
            query, key, value = (each[:, rows] for each in self.tokens)
            alone = attention.attend(0, query, key, value, self.options)
            if not torch.equal(alone, self.out[rows]):
                return False
        return True


def _bits(record: Record, heads: Heads, device: torch.device, tiny: bool) -> str:
    """Whether spans give the same bits alone: by default, and in batch-invariant mode."""
    lengths = [(1, 37), (3, 9)] if tiny else [(1, 5000), (1, 90), (7, 800), (1, 1200), (40, 0)]
    results = []
    for invariant in (False, True):
        try:
            together = Attended.of(heads, lengths, device, batch_invariant=invariant)
            same = together.same_alone(batch_invariant=invariant)
        except Exception as error:
            record.failed(f"{heads.name}, alone and together", error)
            return "failed"
        results.append("same" if same else "differ")
        if invariant and not same:
            record.failed(f"{heads.name}, batch-invariant", "rows depend on the rest of the step")
    return ", ".join(results)
