"""Trees on the CPU: each token attends as if its path were computed alone."""

from __future__ import annotations

import random

import pytest
import torch

from app.core.step import Span
from app.model.cpu.attention import CpuAttention
from app.model.inputs import lay_out
from app.model.kv_storage import LayerShape, allocate
from tests.model.cpu.test_attention import BATCH, BLOCK_SIZE, OPTIONS, naive
from tests.model.trees import random_tree

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", OPTIONS)
def test_trees_among_plain_spans_get_plain_attention_to_their_ways(name: str) -> None:
    torch.manual_seed(0)
    dice = random.Random(name)
    pool = list(range(60))
    dice.shuffle(pool)
    spans = [
        Span(
            [0] * length,
            start,
            [[pool.pop() for _ in range(-(-(start + length) // BLOCK_SIZE))]],
            tree=random_tree(dice, length) if dice.random() < 0.7 else (),
        )
        for length, start in BATCH
    ]
    step = lay_out(spans, BLOCK_SIZE)
    shape = LayerShape(2, 8, 6, 2, torch.float32)
    storage = allocate({0: shape}, num_blocks=60, block_size=BLOCK_SIZE, device=CPU)
    storage.keys[0][:-BLOCK_SIZE].normal_()
    storage.values[0][:-BLOCK_SIZE].normal_()
    tokens = len(step.token_ids)
    query = torch.randn(4, tokens, 8)
    attention = CpuAttention(storage)
    attention.begin(step)
    found = attention.attend(
        0, query, torch.randn(2, tokens, 8), torch.randn(2, tokens, 6), OPTIONS[name]
    )
    expected = naive(query, storage, step, OPTIONS[name])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
