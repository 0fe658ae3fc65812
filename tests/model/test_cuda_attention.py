"""The Triton kernels against plain attention: on the GPU where there is one, else interpreted."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from app.core.step import Span, StepPlan
from app.model.attention import AttentionOptions
from app.model.cpu.attention import CpuAttention
from app.model.cuda.attention import TritonAttention
from app.model.cuda.tiles import Device
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import CacheGroup, KvStorage, LayerShape

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CPU = torch.device("cpu")
BLOCK = 16
SMALL = Device(multiprocessors=1, shared_bytes=99 << 10, capability=8)

SHAPES = {
    "grouped heads": LayerShape(2, 16, 16, 3, torch.float32),
    "odd dimensions": LayerShape(2, 24, 12, 1, torch.float32),
    "a group of seven": LayerShape(1, 16, 16, 7, torch.float32),
    "a group of thirty-two": LayerShape(1, 16, 16, 32, torch.float32),
}

BATCH = [(9, 20), (5, 10), (1, 7), (1, 40), (3, 0), (30, 3)]
"""Length and start of each span: a leap, an extension, two decodes and two prefills."""

FAR = [(1, 700), (3, 530), (30, 1010)]
"""The same for spans whose keys are several chunks, the last one of its own long tiles' size."""

SINKS = torch.tensor([1.0, -1.0, 0.5, 2.0, 0.0, 3.0])

OPTIONS = {
    "plain": AttentionOptions(0.3, None, None, None),
    "window": AttentionOptions(0.3, 9, None, None),
    "softcap": AttentionOptions(0.3, None, 2.0, None),
    "sinks": AttentionOptions(0.3, None, None, SINKS),
    "everything": AttentionOptions(0.3, 300, 3.0, SINKS),
}


def make_step(
    batch: Sequence[tuple[int, int]], dice: random.Random, window: int | None = None
) -> StepArrays:
    """Spans of these lengths and starts on shuffled blocks; what no token reads is block 0."""
    needed = [-(-(start + length) // BLOCK) for length, start in batch]
    pool = list(range(1, sum(needed) + 1))
    dice.shuffle(pool)
    spans = []
    for (length, start), count in zip(batch, needed, strict=True):
        table = [pool.pop() for _ in range(count)]
        given_back = 0 if window is None else max(0, start - window + 1) // BLOCK
        table[:given_back] = [0] * given_back
        spans.append(Span([1] * length, start, [np.array(table, dtype=np.int32)]))
    return lay_out(StepPlan(spans, []), BLOCK)


def make_storage(
    shapes: Mapping[int, LayerShape], blocks: int, window: int | None = None
) -> KvStorage:
    """One group of layers, with keys and values at random."""

    def normal(shape: LayerShape, dim: int) -> Tensor:
        return torch.randn((blocks + 1) * BLOCK, shape.kv_heads, dim).to(shape.dtype)

    return KvStorage(
        block_size=BLOCK,
        groups=(CacheGroup(layers=tuple(shapes), num_blocks=blocks, window=window),),
        keys={layer: normal(shape, shape.key_dim) for layer, shape in shapes.items()},
        values={layer: normal(shape, shape.value_dim) for layer, shape in shapes.items()},
    )


def on_device(storage: KvStorage) -> KvStorage:
    return replace(
        storage,
        keys={layer: each.clone().to(DEVICE) for layer, each in storage.keys.items()},
        values={layer: each.clone().to(DEVICE) for layer, each in storage.values.items()},
    )


def new_heads(shape: LayerShape, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of a step's tokens."""
    q_heads = shape.kv_heads * shape.group
    return (
        torch.randn(q_heads, tokens, shape.key_dim).to(shape.dtype),
        torch.randn(shape.kv_heads, tokens, shape.key_dim).to(shape.dtype),
        torch.randn(shape.kv_heads, tokens, shape.value_dim).to(shape.dtype),
    )


@pytest.mark.parametrize(
    ("shape", "option", "batch"),
    [
        *(("grouped heads", option, BATCH) for option in OPTIONS),
        *(("grouped heads", option, FAR) for option in ("plain", "everything")),
        *((shape, "plain", BATCH) for shape in SHAPES if shape != "grouped heads"),
        ("odd dimensions", "window", FAR),
    ],
)
@pytest.mark.parametrize("batch_invariant", [False, True], ids=["", "batch-invariant"])
def test_the_kernels_give_what_the_cpu_attention_gives(
    shape: str, option: str, batch: Sequence[tuple[int, int]], batch_invariant: bool
) -> None:
    torch.manual_seed(0)
    layer, options = SHAPES[shape], OPTIONS[option]
    step = make_step(batch, random.Random(0), options.window)
    blocks = 1 + sum(len(span.blocks[0]) for span in step.spans)
    storage = make_storage({0: layer}, blocks, options.window)
    copy = on_device(storage)
    query, key, value = new_heads(layer, len(step.token_ids))
    cpu = CpuAttention(storage)
    cpu.begin(step)
    expected = cpu.attend(0, query, key, value, options)

    device = TritonAttention(
        copy,
        {0: layer},
        max_model_len=2048,
        batch_invariant=batch_invariant,
        device=SMALL,
        partial_tokens=1,
    )
    device.begin(step)
    sinks = None if options.sinks is None else options.sinks.to(DEVICE)
    found = device.attend(
        0, query.to(DEVICE), key.to(DEVICE), value.to(DEVICE), replace(options, sinks=sinks)
    )
    torch.testing.assert_close(found.cpu(), expected, atol=2e-5, rtol=1e-4)
    for ours, theirs in ((copy.keys, storage.keys), (copy.values, storage.values)):
        torch.testing.assert_close(ours[0].cpu(), theirs[0])
