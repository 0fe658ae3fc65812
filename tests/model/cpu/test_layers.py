"""Fused layers against transformers' own, in bfloat16, in random batches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.core.step import Span
from app.model.composition import load_runner
from app.model.config import ModelConfig
from app.model.cpu.attention import CpuAttention
from app.model.cpu.kernels import jobs, panels
from app.model.cpu.layers import FusedLayer, PanelEmbedding, PanelLinear, can_fuse, fuse
from app.model.cpu.weights import PanelWeights
from app.model.cpu.workspace import CpuTeam
from app.model.forward import RaggedForward
from app.model.inputs import lay_out
from app.model.kv_storage import allocate
from app.model.layers.attention import AttentionRoute, probe_layers
from app.model.layers.recurrent import RecurrentRoute
from tests.model.tiny import (
    eager_logits,
    mean_error,
    random_texts,
    run_in_random_batches,
    save_kind,
    varied_model,
)
from tests.steps import planned

FITS = pytest.mark.skipif(not panels.runs_here(), reason="needs AVX2 on Linux")

SIZES = {
    "hidden_size": 72,
    "intermediate_size": 136,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama with biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "llama, a head of keys for each": ("LlamaConfig", {"num_key_value_heads": 6}),
    "llama, tied embeddings": ("LlamaConfig", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2 with a window in some layers": (
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3Config", {}),
    "mistral with a window": ("MistralConfig", {"sliding_window": 5}),
}

OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": ("Gemma2Config", {"sliding_window": 6}),
    "llama that multiplies rounding errors": (
        "LlamaConfig",
        {"initializer_range": 1.0, "num_hidden_layers": 6},
    ),
}


def saved(folder: Path, kind: str) -> str:
    name, extra = (KINDS | OTHERS)[kind]
    return save_kind(folder, name, **(SIZES | extra))


def fused_forward(model: PreTrainedModel, *, layers: bool = True) -> tuple[RaggedForward, int, int]:
    """The forward pass of a model that is fused here, over 100 blocks.

    The numbers are those of its cache groups and of the linear layers that became panels.
    """
    route = AttentionRoute()
    shapes = probe_layers(model, route, RecurrentRoute(model))
    assert can_fuse(model)
    packed = fuse(model, route, RecurrentRoute(model), layers=layers)
    model.set_attn_implementation(route.name)
    storage = allocate(shapes, num_blocks=100, block_size=4, device=model.device)
    return (
        RaggedForward(model, route, RecurrentRoute(model), CpuAttention(storage)),
        len(storage.groups),
        packed,
    )


def in_random_batches(
    forward: RaggedForward, groups: int, texts: Sequence[Sequence[int]], dice: random.Random
) -> list[torch.Tensor]:
    """Logits of the texts, in random chunks that are long, too."""
    return run_in_random_batches(
        forward, groups, texts, dice, blocks=100, lengths=(1, 1, 2, 5, 20, 40)
    )


@pytest.fixture
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@FITS
@pytest.mark.parametrize("threads", [1, 2], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_random_batches_differ_from_float32_no_more_than_transformers_does(
    kind: str, threads: int, tmp_path: Path
) -> None:
    folder = saved(tmp_path, kind)
    dice = random.Random(kind)
    texts = random_texts(dice, (41, 3, 17, 90, 1))
    exact = eager_logits(varied_model(folder, torch.float32), texts)
    plain = eager_logits(varied_model(folder), texts)

    model = varied_model(folder)
    forward, groups, packed = fused_forward(model)
    assert packed == 3 * 7 + 1
    assert sum(isinstance(m, FusedLayer) for m in model.modules()) == 3
    assert not any(type(m) is torch.nn.Linear for m in model.modules())
    tied = model.config.tie_word_embeddings
    assert isinstance(model.get_input_embeddings(), PanelEmbedding) == tied
    found = in_random_batches(forward, groups, texts, dice)
    assert mean_error(found, exact) < 1.3 * mean_error(plain, exact) < 0.1


@FITS
@pytest.mark.parametrize("biased", ["gate", "up"])
@torch.inference_mode()
def test_a_bias_of_one_half_of_an_mlp_is_added(biased: str) -> None:
    gate, up = (
        torch.nn.Linear(72, 136, bias=name == biased, dtype=torch.bfloat16)
        for name in ("gate", "up")
    )
    rows, found = torch.randn(3, 72).bfloat16(), torch.empty(3, 136, dtype=torch.bfloat16)
    weights, team = PanelWeights([gate, up], interleaved=True), CpuTeam(1, 0)
    arguments = (len(rows), rows.data_ptr(), weights.address, 1, 0, found.data_ptr(), 136)
    team.reserve(len(rows) * weights.rounded_bytes)
    jobs.product(*team.shared, jobs._SWIGLU, jobs.ROUND, *arguments)
    wanted = torch.nn.functional.silu(gate(rows).float()) * up(rows).float()
    torch.testing.assert_close(found.float(), wanted, rtol=0.02, atol=0.01)


@FITS
def test_a_layer_of_another_kind_keeps_its_own_code_and_gets_panels(tmp_path: Path) -> None:
    folder = saved(tmp_path, "gemma2")
    config = ModelConfig(model=folder, random_weights=True, device="cpu", dtype="bfloat16")
    runner = load_runner(config)
    modules = list(runner._forward._model.modules())
    assert not any(isinstance(m, FusedLayer) for m in modules)
    assert sum(isinstance(m, PanelLinear) for m in modules) == 3 * 7 + 1
    assert not any(isinstance(m, PanelEmbedding) for m in modules)  # its code may read the weight
    assert runner.description.packed_linears == 3 * 7 + 1


@FITS
def test_a_model_that_multiplies_rounding_errors_is_measured_before_its_layers_are_gone(
    tmp_path: Path,
) -> None:
    folder = saved(tmp_path, "llama that multiplies rounding errors")
    config = ModelConfig(model=folder, random_weights=True, device="cpu", dtype="bfloat16")
    assert load_runner(config).description.packed_linears == 6 * 7 + 1


def invariant(folder: str, **changes: Any) -> ModelConfig:
    config = ModelConfig(
        model=folder,
        random_weights=True,
        device="cpu",
        dtype="bfloat16",
        block_size=4,
        batch_invariant=True,
    )
    return replace(config, **changes)


@FITS
@torch.inference_mode()
def test_a_token_is_the_same_in_any_chunks_and_any_batch(
    tmp_path: Path,
) -> None:
    runner = load_runner(invariant(saved(tmp_path, "qwen3")))
    assert runner.description.batch_invariant
    forward = runner._forward
    dice = random.Random(0)
    text, *texts = random_texts(dice, (90, 1, 20, 3, 40, 1, 1, 17))
    others = [Span(each, 0, (range(30 + 10 * i, 40 + 10 * i),)) for i, each in enumerate(texts)]

    def logits(cuts: list[int], beside: list[Span]) -> torch.Tensor:
        parts, first = [], 0
        for last in [*cuts, len(text)]:
            span = Span(text[first:last], first, (range(23),))
            rows = [(len(beside), offset) for offset in range(last - first)]
            parts.append(forward.run(lay_out(planned([*beside, span], rows), 4)))
            first = last
        return torch.cat(parts)

    alone = logits(list(range(1, 90)), [])
    for cuts in ([], [17], [1, 40, 56], list(range(16, 90, 16))):
        for beside in ([], others[:1], others[1:4], others):
            assert torch.equal(logits(cuts, beside), alone)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {"dtype": "float32"}),
        ("gemma2", {}),
    ],
)
def test_where_torch_multiplies_there_is_no_batch_invariant_mode(
    kind: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModel, match="batch_invariant is not supported here"):
        load_runner(invariant(saved(tmp_path, kind), **changes))
