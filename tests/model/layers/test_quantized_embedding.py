"""Rows of an embedding equal those of the weight that it is stored in."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from app.model.cpu.kernels.quantized_panels import KINDS, PanelKind, dequantize
from app.model.cpu.layers import PanelEmbedding, PanelLinear
from app.model.cpu.workspace import CpuTeam
from app.model.layers.architecture import is_plain_embedding
from app.model.layers.quantized import QuantizedEmbedding, QuantizedLinear
from tests.model.cpu.test_quantized_panels import random_weight

IDS = torch.tensor([[3, 0, 69, 64, 3, 63]])


def embedding_of(dtype: torch.dtype, scale: float | None = None) -> SimpleNamespace:
    made = SimpleNamespace(weight=torch.empty(0, dtype=dtype))
    if scale is not None:
        made.scalar_embed_scale = scale
    return made


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rows_are_those_of_the_weight_as_floats(kind: PanelKind, dtype: torch.dtype) -> None:
    stored = random_weight(kind, 70, 96)
    found = QuantizedEmbedding(stored, embedding_of(dtype))(IDS)
    assert torch.equal(found, dequantize(stored, dtype)[IDS])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rows_of_panels_are_those_of_the_quantised_weight(kind: PanelKind) -> None:
    stored = random_weight(kind, 70, 96)
    embedding = QuantizedEmbedding(stored, embedding_of(torch.bfloat16, 8.3))
    output = PanelLinear(QuantizedLinear(stored, None), CpuTeam(1))
    assert torch.equal(PanelEmbedding(embedding, output)(IDS), embedding(IDS))


def test_rows_of_panels_are_those_of_the_bfloat16_weight() -> None:
    embedding = nn.Embedding(70, 96, dtype=torch.bfloat16)
    output = nn.Linear(96, 70, bias=False)
    output.weight = embedding.weight
    read = PanelEmbedding(embedding, PanelLinear(output, CpuTeam(1)))
    assert torch.equal(read(IDS), embedding(IDS))
    assert read(torch.empty(1, 0, dtype=torch.int64)).shape == (1, 0, 96)


def test_an_embedding_with_a_scale_keeps_it() -> None:
    stored = random_weight(KINDS[0], 70, 64)
    plain: Tensor = QuantizedEmbedding(stored, embedding_of(torch.bfloat16))(IDS)
    scaled = QuantizedEmbedding(stored, embedding_of(torch.bfloat16, 8.5))(IDS)
    assert torch.equal(scaled, plain * 8.5)


def test_embeddings_of_other_kinds_are_not_replaced() -> None:
    class Other(nn.Embedding):
        pass

    assert not is_plain_embedding(Other(70, 64))
    assert is_plain_embedding(nn.Embedding(70, 64))


@pytest.mark.parametrize("number", [-1, 128])
def test_an_id_without_a_row_is_an_error(number: int) -> None:
    stored = random_weight(KINDS[0], 70, 64)
    by_rows = QuantizedEmbedding(stored, embedding_of(torch.bfloat16))
    output = PanelLinear(QuantizedLinear(stored, None), CpuTeam(1))
    for embedding in (by_rows, PanelEmbedding(by_rows, output)):
        with pytest.raises(IndexError, match="out of range"):
            embedding(torch.tensor([[0, number]]))
