"""Trees on the CPU: each token attends as if its path were computed alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from app.model.kv_storage import LayerShape
from tests.model.cpu.test_attention import (
    BATCH,
    OPTIONS,
    assert_naive_attention,
    scattered,
)
from tests.model.trees import random_tree


@pytest.mark.parametrize("name", OPTIONS)
def test_trees_among_plain_spans_get_plain_attention_to_their_ways(name: str) -> None:
    torch.manual_seed(0)
    dice = random.Random(name)
    spans = [
        replace(span, tree=random_tree(dice, len(span.tokens))) if dice.random() < 0.7 else span
        for span in scattered(BATCH, dice)
    ]
    assert_naive_attention(spans, LayerShape(2, 8, 6, 2, torch.float32), OPTIONS[name])
