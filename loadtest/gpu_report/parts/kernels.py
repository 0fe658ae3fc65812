"""The paged attention against attention written down plainly, over every kind of step."""

from __future__ import annotations

import random
from typing import Any

import torch

from app.model.cuda.attention import TritonAttention
from loadtest.gpu_report.device import device_of, kernels_loaded, release
from loadtest.gpu_report.options import Options
from loadtest.gpu_report.paged import (
    Heads,
    Lengths,
    plainly,
    random_storage,
    random_tokens,
    relative_error,
    step_of,
)
from loadtest.gpu_report.record import Record

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
)
TINY = (
    Heads("tiny", 4, 2, 16, 16, torch.float32),
    Heads("tiny, all", 4, 2, 16, 16, torch.float32, 9, 2.0, True),
)
TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
"""Relative; what rounding alone gives is some three times less."""


def steps(tiny: bool) -> dict[str, Lengths]:
    """Every way in which tiles and chunks of keys come about."""
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
                    errors[name] = _error(heads, lengths, device)
                    if not errors[name] < TOLERANCE[heads.dtype]:  # so written that NaN fails too
                        record.failed(f"{heads.name}, {name}", f"relative error {errors[name]:.2g}")
                except Exception as error:
                    record.failed(f"{heads.name}, {name}", error)
                    errors[name] = "failed"
            errors["bits alone"] = _bits_alone(record, heads, device, options.tiny)
        record.row(
            "relative errors; are rows the same bits alone?",
            heads=heads.name,
            **errors,
            kernels=len(loaded),
        )
        release(device)


def _attend(heads: Heads, lengths: Lengths, device: torch.device) -> tuple[Any, ...]:
    torch.manual_seed(0)
    step, blocks = step_of(lengths)
    storage = random_storage(heads, blocks, 1, device)
    asked = heads.options(device)
    query, key, value = random_tokens(heads, len(step.token_ids), device)
    attention = TritonAttention(storage, heads.group)
    attention.begin(step)
    return attention.attend(0, query, key, value, asked), query, key, value, storage, step, asked


def _error(heads: Heads, lengths: Lengths, device: torch.device) -> float:
    found, query, _, _, storage, step, asked = _attend(heads, lengths, device)
    return relative_error(found, plainly(query, storage, step, asked))


def _bits_alone(record: Record, heads: Heads, device: torch.device, tiny: bool) -> str:
    """Whether a decode gives the same bits alone and among others, over the same cache."""
    lengths = [(1, 37), (1, 9), (3, 20)] if tiny else [(1, 5000), (1, 90), (7, 800), (1, 1200)]
    try:
        together, query, key, value, storage, step, asked = _attend(heads, lengths, device)
        same = True
        for span in step.spans:
            rows = slice(span.row, span.row + span.length)
            single = _alone(step, span)
            attention = TritonAttention(storage, heads.group)
            attention.begin(single)
            alone = attention.attend(0, query[:, rows], key[:, rows], value[:, rows], asked)
            same &= torch.equal(alone, together[rows])
    except Exception as error:
        record.failed(f"{heads.name}, alone and together", error)
        return "failed"
    return "yes" if same else "no"


def _alone(step: Any, span: Any) -> Any:
    from dataclasses import replace

    rows = slice(span.row, span.row + span.length)
    return replace(
        step,
        token_ids=step.token_ids[rows],
        positions=step.positions[rows],
        slots=tuple(each[rows] for each in step.slots),
        logits_rows=step.logits_rows[:0],
        spans=(replace(span, row=0),),
    )
