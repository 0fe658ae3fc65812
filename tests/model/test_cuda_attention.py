"""The Triton kernel against plain attention: on the GPU where there is one, else interpreted."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from app.core.step import Span, StepPlan
from app.model.attention import AttentionOptions
from app.model.cpu.attention import CpuAttention
from app.model.cuda.attention import TritonAttention, attend_paged, upload
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import KvStorage, LayerShape, allocate

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CPU = torch.device("cpu")

SHAPES = {
    "grouped heads": (6, 2, 16, 16, 8),
    "odd dimensions": (2, 2, 24, 12, 4),
}
"""Query heads, key heads, key dimensions, value dimensions, block size."""

BATCH = [(9, 20), (5, 10), (1, 7), (1, 40), (3, 0)]
"""Length and start of each span: a chunk, an extension, two decodes and a prefill."""

TILINGS = [(4, 1, 64), (1, 3, 16), (8, 16, 32)]
"""Query tokens in a tile, splits of the keys, keys at a time."""

OPTIONS = {
    "plain": AttentionOptions(0.3, None, None, None),
    "window": AttentionOptions(0.3, 9, None, None),
    "softcap": AttentionOptions(0.3, None, 2.0, None),
    "sinks": AttentionOptions(0.3, None, None, torch.tensor([1.0, -1.0, 0.5, 2.0, 0.0, 3.0])),
    "everything": AttentionOptions(0.3, 12, 3.0, torch.tensor([1.0, -1.0, 0.5, 2.0, 0.0, 3.0])),
}


def make_step(batch: list[tuple[int, int]], block_size: int, dice: random.Random) -> StepArrays:
    needed = [-(-(start + length) // block_size) for length, start in batch]
    pool = list(range(sum(needed) + 3))
    dice.shuffle(pool)
    spans = [
        Span(tokens=[1] * length, start=start, block_tables=[[pool.pop() for _ in range(count)]])
        for (length, start), count in zip(batch, needed, strict=True)
    ]
    return lay_out(StepPlan(spans, []), block_size)


def filled_storage(layer: LayerShape, blocks: int, block_size: int) -> KvStorage:
    storage = allocate({0: layer}, num_blocks=blocks, block_size=block_size, device=CPU)
    storage.keys[0].normal_()
    storage.values[0].normal_()
    return storage


def on_device(storage: KvStorage) -> KvStorage:
    return KvStorage(
        storage.block_size,
        storage.groups,
        {0: storage.keys[0].clone().to(DEVICE)},
        {0: storage.values[0].clone().to(DEVICE)},
    )


@pytest.mark.parametrize(
    ("shape", "option", "tiling"),
    [
        *(("grouped heads", option, tiling) for option in OPTIONS for tiling in TILINGS[:2]),
        *(("odd dimensions", "plain", tiling) for tiling in TILINGS),
    ],
)
def test_the_kernel_gives_what_the_cpu_attention_gives(
    shape: str, option: str, tiling: tuple[int, int, int]
) -> None:
    torch.manual_seed(0)
    q_heads, kv_heads, key_dim, value_dim, block_size = SHAPES[shape]
    step = make_step(BATCH, block_size, random.Random(0))
    blocks = 3 + sum(len(span.blocks[0]) for span in step.spans)
    layer = LayerShape(kv_heads, key_dim, value_dim, q_heads // kv_heads, torch.float32)
    storage = filled_storage(layer, blocks, block_size)
    copy = on_device(storage)
    tokens = len(step.token_ids)
    query = torch.randn(q_heads, tokens, key_dim)
    key, value = torch.randn(kv_heads, tokens, key_dim), torch.randn(kv_heads, tokens, value_dim)
    options = OPTIONS[option]
    cpu = CpuAttention(storage)
    cpu.begin(step)
    expected = cpu.attend(0, query, key, value, options)

    tile, splits, tile_keys = tiling
    sinks = None if options.sinks is None else options.sinks.to(DEVICE)
    found = attend_paged(
        query.to(DEVICE),
        copy.keys[0].index_copy_(0, torch.from_numpy(step.slots[0]).to(DEVICE), rows(key)),
        copy.values[0].index_copy_(0, torch.from_numpy(step.slots[0]).to(DEVICE), rows(value)),
        upload(step, tile, DEVICE),
        replace(options, sinks=sinks),
        block_size=block_size,
        splits=splits,
        tile_keys=tile_keys,
    )
    torch.testing.assert_close(found.cpu(), expected, atol=2e-5, rtol=1e-4)


def rows(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).to(DEVICE)


def test_the_attention_of_a_step_writes_the_cache_and_reads_it() -> None:
    torch.manual_seed(0)
    step = make_step([(2, 3), (1, 0)], 4, random.Random(0))
    storage = filled_storage(LayerShape(1, 8, 8, 2, torch.float32), 6, 4)
    copy = on_device(storage)
    query, key, value = torch.randn(2, 3, 8), torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    cpu, device = CpuAttention(storage), TritonAttention(copy, group=2)
    cpu.begin(step)
    device.begin(step)
    expected = cpu.attend(0, query, key, value, OPTIONS["plain"])
    found = device.attend(0, query.to(DEVICE), key.to(DEVICE), value.to(DEVICE), OPTIONS["plain"])
    torch.testing.assert_close(found.cpu(), expected, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(copy.keys[0].cpu(), storage.keys[0])
    torch.testing.assert_close(copy.values[0].cpu(), storage.values[0])


COMPILE = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from app.model.cuda.kernels.attention import merge_splits, paged_attention

def build(kernel, types, constants):
    names = kernel.arg_names
    signature = {n: "constexpr" if n in constants else types.get(n, "*i64") for n in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    compile(ASTSource(kernel, signature, values), target=GPUTarget("cuda", 90, 32))

partial = dict.fromkeys(("partial_out", "partial_max", "partial_sum"), "*fp32")
data = dict.fromkeys(("query", "keys", "values", "out", "sinks"), "*bf16")
numbers = dict(scale="fp32", softcap="fp32", window="i32", rows="i32")
numbers |= dict(query_head_stride="i32", query_row_stride="i32")
sizes = dict(VALUE_DIM=64, VALUE_PAD=64, SPLITS=4)
tiles = dict(GROUP=7, KEY_DIM=64, KEY_PAD=64, BLOCK=16, TILE=4, TILE_ROWS=32, TILE_KEYS=64)
flags = dict(WINDOWED=True, CAPPED=True, SINKS=True, PRECISION="tf32")
build(paged_attention, data | partial | numbers, sizes | tiles | flags)
build(merge_splits, data | partial | numbers, sizes)
"""


def test_the_kernels_compile_for_an_h100_with_no_gpu_here() -> None:
    # The interpreter accepts Python that the compiler refuses, so it alone proves too little.
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
