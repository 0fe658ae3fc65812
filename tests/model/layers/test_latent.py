"""Layers that cache latents instead of keys and values, against transformers' own forward pass."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

from app.core.step import Span
from app.model.adapters.targets import find_targets
from app.model.composition import load_runner
from app.model.cpu import attention as cpu_attention
from app.model.cpu.attention import CpuAttention
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import LayerShape, allocate
from app.model.layers.attention import AttentionOptions, AttentionRoute, probe_layers
from app.model.layers.latent import LatentHeads, LatentProjection, keep_latents
from app.model.layers.recurrent import RecurrentRoute
from app.model.loaded import load
from app.model.self_check import worst_error
from tests.model.tiny import (
    VOCAB,
    assert_close,
    eager_logits,
    eager_model,
    random_texts,
    run_in_random_batches,
    runner_config,
)

TINY: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 48,
    "moe_intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "q_lora_rank": 16,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "pad_token_id": 0,
}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "DeepSeek V2": ("DeepseekV2Config", {}),
    "DeepSeek V2 Lite": ("DeepseekV2Config", {"q_lora_rank": None}),
    "DeepSeek V3": ("DeepseekV3Config", {}),
    "MiniCPM 3": ("MiniCPM3Config", {}),
    "GLM 4.7 Flash": ("Glm4MoeLiteConfig", {"mlp_layer_types": ["dense", "sparse"]}),
    "LongCat Flash": (
        "LongcatFlashConfig",
        {
            "num_layers": 1,
            "head_dim": 4,
            "ffn_hidden_size": 48,
            "expert_ffn_hidden_size": 24,
            "moe_topk": 2,
            "zero_expert_num": 1,
        },
    ),
    "Youtu": ("YoutuConfig", {}),
    "A.X K1": ("AXK1Config", {}),
}


def save(folder: Path, kind: str, **changes: Any) -> str:
    class_name, settings = KINDS[kind]
    getattr(transformers, class_name)(**(TINY | settings | changes)).save_pretrained(folder)
    return str(folder)


def forward_of(model: Any, blocks: int = 60) -> tuple[RaggedForward, dict[int, LayerShape]]:
    route = AttentionRoute()
    shapes = keep_latents(model, route, probe_layers(model, route, RecurrentRoute(model)))
    storage = allocate(shapes, num_blocks=blocks, block_size=4, device=torch.device("cpu"))
    return RaggedForward(model, route, RecurrentRoute(model), CpuAttention(storage)), shapes


@pytest.mark.parametrize("kind", KINDS)
def test_random_batches_give_the_logits_of_plain_eager_attention(kind: str, tmp_path: Path) -> None:
    folder = save(tmp_path, kind)
    forward, shapes = forward_of(eager_model(folder))
    assert all(shape.latent for shape in shapes.values())
    assert {(s.kv_heads, s.key_dim, s.value_dim, s.group) for s in shapes.values()} == {
        (1, 12, 8, 6)
    }
    dice = random.Random(kind)
    texts = random_texts(dice, (41, 3, 17, 30))
    found = run_in_random_batches(forward, 1, texts, dice)
    assert_close(found, eager_logits(eager_model(folder), texts))


def test_layers_of_a_hybrid_model_keep_latents_beside_those_with_states(tmp_path: Path) -> None:
    hybrid = {
        "linear_head_dim": 8,
        "linear_num_heads": 2,
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "full_attention"],
    }
    transformers.KimiLinearConfig(**(TINY | hybrid)).save_pretrained(tmp_path)
    config = runner_config(str(tmp_path), kv_cache_bytes=1 << 23)
    loaded = load(config, torch.device("cpu"), torch.float32)
    assert {layer: shape.latent for layer, shape in loaded.shapes.items()} == {1: True, 2: True}
    assert loaded.recurrent.shapes.keys() == {0}
    load_runner(config)  # includes the self-check


def test_the_kernels_of_a_gpu_read_them_too(tmp_path: Path) -> None:
    from app.model.cuda.attention import TritonAttention
    from app.model.cuda.tiles import Device
    from tests.model.interpreter import DEVICE

    folder = save(tmp_path, "DeepSeek V3", num_hidden_layers=1)
    model: Any = eager_model(folder)
    route = AttentionRoute()
    shapes = keep_latents(
        model.to(DEVICE), route, probe_layers(model, route, RecurrentRoute(model))
    )
    storage = allocate(shapes, num_blocks=30, block_size=4, device=DEVICE)
    small = Device(multiprocessors=1, shared_bytes=99 << 10, capability=8)
    attention = TritonAttention(storage, shapes, max_model_len=128, device=small)
    dice = random.Random(2)
    texts = random_texts(dice, (21, 3))
    found = run_in_random_batches(
        RaggedForward(model, route, RecurrentRoute(model), attention), 1, texts, dice, blocks=30
    )
    assert_close(found, eager_logits(eager_model(folder), texts))


@pytest.mark.parametrize("expanded", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_long_spans_are_the_same_absorbed_and_expanded(
    expanded: bool, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.model.cpu.attention.is_better_expanded", lambda *_: expanded)
    monkeypatch.setattr(cpu_attention, "_EXPANDED_BYTES", 2000)  # a few heads at a time
    folder = save(tmp_path, "DeepSeek V3")
    model: Any = eager_model(folder)
    forward, _ = forward_of(model.to(dtype))
    dice = random.Random(1)
    texts = random_texts(dice, (41, 3, 17, 30))
    found = run_in_random_batches(forward, 1, texts, dice, lengths=(1, 9, 20))
    model = eager_model(folder)
    plain = model.to(dtype).float()  # weights rounded to ``dtype``
    tolerance = 1e-5 if dtype == torch.float32 else 0.06
    for rows, wanted in zip(found, eager_logits(plain, texts), strict=True):
        assert worst_error(rows, wanted) < tolerance


SINKS = torch.tensor([1.0, -1.0, 0.5])


@pytest.mark.parametrize("expanded", [True, False])
@pytest.mark.parametrize(
    "options",
    [AttentionOptions(0.3, 6, None, None), AttentionOptions(0.3, None, 2.0, SINKS)],
    ids=["window", "softcap and sinks"],
)
def test_windows_softcap_and_sinks_hold_for_latents_too(
    options: AttentionOptions, expanded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.model.cpu.attention.is_better_expanded", lambda *_: expanded)
    monkeypatch.setattr(cpu_attention, "_EXPANDED_BYTES", 4000)
    heads, query, entries = new_heads(3, 36)
    own = LayerShape(1, 12, 8, 3, torch.float32, latent=True)
    usual = LayerShape(3, 9, 6, 1, torch.float32)
    key, value = heads.expand(entries[0], slice(None))
    results: list[list[Tensor]] = []
    for shape, new, asked in (
        (own, (entries, entries[..., :8]), replace(options, latent=heads)),
        (usual, (key, value), options),
    ):
        storage = allocate({0: shape}, num_blocks=40, block_size=4, device=torch.device("cpu"))
        attention = CpuAttention(storage)
        found = []
        for step in (make_step(0), make_step(1)):
            attention.begin(step)
            tokens = len(step.token_ids)
            parts = [part[:, -tokens:] for part in (query, *new)]
            found.append(attention.attend(0, parts[0], parts[1], parts[2], asked))
        results.append(found)
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def make_step(number: int) -> StepArrays:
    """Step 0 computes the prefixes of the spans in step 1."""
    tables = [[range(0, 15)], [range(15, 30)]]
    lengths = [(11, 0), (25, 0)] if number == 0 else [(20, 11), (3, 25)]
    spans = [
        Span([0] * length, start, table)
        for (length, start), table in zip(lengths, tables, strict=True)
    ]
    return lay_out(spans, 4)


def new_heads(count: int, tokens: int) -> tuple[LatentHeads, Tensor, Tensor]:
    """Latent heads with N = 5, R = 8, P = 4 and Dv = 6, a query, and cache entries."""
    torch.manual_seed(0)
    heads = LatentHeads(keys=torch.randn(count, 5, 8), values=torch.randn(count, 8, 6))
    return heads, torch.randn(count, tokens, 9), torch.randn(1, tokens, 12)


def test_latent_keys_and_values_share_memory_that_is_counted_once(tmp_path: Path) -> None:
    runner = load_runner(
        runner_config(save(tmp_path, "DeepSeek V3"), kv_cache_bytes=52 * 2 * 4 * 48)
    )
    [group] = runner.cache_groups
    assert group.num_blocks == 51  # and a spare one; 4 tokens of 12 floats in 2 layers each
    shape = LayerShape(1, 12, 8, 6, torch.float32, latent=True)
    assert shape.token_bytes == 48
    storage = allocate({0: shape}, num_blocks=9, block_size=4, device=torch.device("cpu"))
    assert storage.nbytes == 10 * 4 * 48
    assert storage.is_latent(0)
    storage.keys[0][3, 0, :8] = 7.0
    assert storage.values[0][3].eq(7.0).all()


def test_shapes_of_known_models_say_what_a_token_takes() -> None:
    bf16 = torch.bfloat16
    lite = (
        LayerShape(16, 192, 128, 1, bf16).token_bytes,
        LayerShape(1, 576, 512, 16, bf16, latent=True),
    )
    assert (lite[0] * 27, lite[1].token_bytes * 27) == (276_480, 31_104)
    large = LayerShape(128, 192, 128, 1, bf16).token_bytes
    assert (large * 61, lite[1].token_bytes * 61) == (4_997_120, 70_272)


def test_values_that_are_not_what_the_projection_gave_are_kept_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expand = DeepseekV3Attention.expand_kv

    def doubled(self: Any, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        key, value = expand(self, *arguments)
        return key, value * 2

    monkeypatch.setattr(DeepseekV3Attention, "expand_kv", doubled)
    folder = save(tmp_path, "DeepSeek V3")
    model = eager_model(folder)
    forward, shapes = forward_of(model)
    assert not any(shape.latent for shape in shapes.values())
    assert not any(isinstance(module, LatentProjection) for module in model.modules())
    text = list(range(30))
    found = run_in_random_batches(forward, 1, [text], random.Random(0))
    assert_close(found, eager_logits(eager_model(folder), [text]))


def test_latents_that_are_larger_than_keys_and_values_are_not_kept(tmp_path: Path) -> None:
    _, shapes = forward_of(eager_model(save(tmp_path, "DeepSeek V3", kv_lora_rank=200)))
    assert {(s.kv_heads, s.latent) for s in shapes.values()} == {(6, False)}


def test_outside_of_a_step_the_model_computes_what_it_always_did(tmp_path: Path) -> None:
    model = eager_model(save(tmp_path, "DeepSeek V3"))
    text = list(range(20))
    [before] = eager_logits(model, [text])
    forward_of(model)
    assert any(isinstance(module, LatentProjection) for module in model.modules())
    [after] = eager_logits(model, [text])
    assert torch.equal(after, before)


def test_an_adapter_cannot_be_added_to_what_computes_nothing(tmp_path: Path) -> None:
    model = eager_model(save(tmp_path, "DeepSeek V3"))
    assert any(name.endswith("kv_b_proj") for name in find_targets(model))
    forward_of(model)
    left = find_targets(model)
    assert not any(name.endswith("kv_b_proj") for name in left)
    assert any(name.endswith("kv_a_proj_with_mqa") for name in left)


@pytest.mark.parametrize(
    ("tokens", "positions", "expanded"),
    [(4, 1024, False), (64, 1024, False), (64, 128, False), (256, 1024, True), (1024, 1024, True)],
)
def test_the_way_with_fewer_products_is_taken(tokens: int, positions: int, expanded: bool) -> None:
    heads = LatentHeads(keys=torch.empty(16, 128, 512), values=torch.empty(16, 512, 128))
    assert cpu_attention.is_better_expanded(tokens, positions, heads, 576) is expanded
