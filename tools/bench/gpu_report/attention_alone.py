"""The speed of attention alone: 8B's sizes, one layer at a time, by answers and by context."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict, replace

import torch

from tools.bench.gpu_report.device import Timing, bandwidth, device_of, release, timed
from tools.bench.gpu_report.options import Options
from tools.bench.gpu_report.paged import (
    Heads,
    Lengths,
    attention_over,
    random_storage,
    random_tokens,
    step_of,
)
from tools.bench.gpu_report.record import Record

HEADS = Heads("8B", 32, 8, 128, 128, torch.bfloat16)
TINY = Heads("tiny", 4, 2, 16, 16, torch.float32)
MOST_BYTES = 70 << 30
CACHED_BYTES = 256 << 20
"""Bytes that are read in turn: several times the size of the device's cache."""


def attention_alone(record: Record, options: Options) -> None:
    """Write the rows of decode steps, and of prompts and leaps."""
    device = device_of(options)
    heads, speed = TINY if options.tiny else HEADS, bandwidth(device)
    for batch in (1,) if options.tiny else (1, 8, 32, 64, 128, 256):
        _decodes(record, options, heads, batch, speed)
    for batch in (1,) if options.tiny else (8, 64):
        _decodes(record, options, replace(heads, fp8=True), batch, speed)
    prompts: tuple[tuple[str, Lengths], ...] = (
        ("512", [(512, 0)]), ("2048", [(2048, 0)]), ("8192", [(8192, 0)]),
        ("512 after 32k", [(512, 32_768)]), ("64 leaps of 9 at 1k", [(9, 1000)] * 64),
        ("128 and 64 x 1k decodes", [(128, 0), *[(1, 1000)] * 64]),
    )  # fmt: skip
    for name, lengths in prompts[:1] if options.tiny else prompts:
        shown = [(5, 0)] if options.tiny else lengths
        release(device)
        try:
            found = _time(heads, shown, device, CACHED_BYTES)
        except Exception as error:
            record.failed(name, error)
            continue
        pairs = sum(length * (start + (length + 1) / 2) for length, start in shown)
        rate = 4 * heads.heads * heads.key_dim * pairs / found.median
        record.row(
            "attention of prompts and leaps",
            step=name,
            us=1e6 * found.median,
            spread=found.spread,
            TFLOPs=rate / 1e12,
        )


def _decodes(record: Record, options: Options, heads: Heads, batch: int, speed: float) -> None:
    """Write a row: ``batch`` answers at each context; a copy moves ``speed`` bytes a second."""
    device = device_of(options)
    token = heads.layer.token_bytes
    kept = "fp8" if heads.fp8 else str(heads.dtype).removeprefix("torch.")
    cells: dict[str, object] = {}
    for context in (20,) if options.tiny else (512, 8192, 65_536):
        read = batch * context * token
        if read > MOST_BYTES:
            continue
        if record.seconds_left < 6:
            record.left_out(f"{batch} x {context}, {kept}", "no time left")
            continue
        release(device)
        try:
            found = _time(heads, [(1, context - 1)] * batch, device, read)
        except Exception as error:
            record.failed(f"{batch} x {context}, {kept}", error)
            continue
        cells[f"us at {context}"] = 1e6 * found.median
        cells["of a copy"] = read / found.median / speed
        record.detail(f"attention of {batch} answers at {context}, {kept}", asdict(found))
    record.row(
        "attention of decodes; share of a copy's speed at the last",
        answers=batch,
        kept=kept,
        **cells,
    )


def _time(heads: Heads, lengths: Lengths, device: torch.device, read: int) -> Timing:
    layers = 1 if device.type == "cpu" else max(1, min(32, -(CACHED_BYTES // -read)))
    step, blocks = step_of(lengths)
    storage = random_storage(heads, blocks, layers, device)
    query, key, value = random_tokens(heads, len(step.token_ids), device)
    attention = attention_over(heads, storage)
    attention.begin(step)
    asked = heads.options(device)
    turn: Iterator[int] = itertools.cycle(range(layers))

    def attend() -> None:
        for _ in range(layers):
            attention.attend(next(turn), query, key, value, asked)

    found = timed(attend, device, repeats=10, launches=8 * layers)
    return Timing(found.median / layers, found.low / layers, found.high / layers)
