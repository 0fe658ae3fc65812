"""Rows of a quantised embedding equal those of its dequantised weight."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from app.model.cpu.kernels.quantized_panels import KINDS, PanelKind, dequantize
from app.model.layers.quantized import QuantizedEmbedding
from tests.model.cpu.test_quantized_panels import random_weight

IDS = torch.tensor([[3, 0, 69, 3]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rows_are_those_of_the_weight_as_floats(kind: PanelKind, dtype: torch.dtype) -> None:
    stored = random_weight(kind, 70, 96)
    found = QuantizedEmbedding(stored, dtype, None)(IDS)
    assert torch.equal(found, dequantize(stored, dtype)[IDS])


def test_an_embedding_with_a_scale_keeps_it() -> None:
    stored = random_weight(KINDS[0], 70, 64)
    plain = QuantizedEmbedding(stored, torch.bfloat16, None)(IDS)
    scaled = QuantizedEmbedding(stored, torch.bfloat16, 8.5)(IDS)
    assert torch.equal(scaled, plain * 8.5)


def test_embeddings_of_other_kinds_are_not_replaced() -> None:
    class Other(nn.Embedding):
        pass

    stored = random_weight(KINDS[0], 70, 64)
    assert QuantizedEmbedding.in_place_of(Other(70, 64), stored) is None
    assert QuantizedEmbedding.in_place_of(nn.Embedding(70, 64), stored) is not None
