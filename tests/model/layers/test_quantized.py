"""Models whose weights are rounded to 8 or 4 bits at load: exact for these weights, or refused."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.composition import load_runner
from app.model.config import ModelConfig, QuantizeName
from app.model.cpu.kernels import panels, quantized_panels
from app.model.cpu.kernels.quantized_panels import INT4, INT8_HALVES, dequantize, quantize
from app.model.cpu.layers import FusedLayer, PanelLinear
from app.model.layers.quantized import (
    QuantizedLinear,
    quantize_linears,
    refine_inputs,
    require_loops,
)
from app.model.runner import TorchRunner
from tests.model.cpu.test_layers import fused_forward, in_random_batches
from tests.model.cpu.test_quantized_panels import random_weight
from tests.model.tiny import (
    eager_logits,
    mean_error,
    random_texts,
    save_kind,
    varied_model,
)

RUNS = pytest.mark.skipif(not panels.runs_here(), reason="needs AVX2 on Linux")

SIZES = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama with biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "qwen3, tied": ("Qwen3Config", {"tie_word_embeddings": True}),
    "mistral with a window": ("MistralConfig", {"sliding_window": 5}),
    "gemma2": ("Gemma2Config", {"sliding_window": 6}),
    "narrow llama": ("LlamaConfig", {"hidden_size": 72, "intermediate_size": 120}),
    "mixture": (
        "Qwen3MoeConfig",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    ),
}


def saved(folder: Path, kind: str) -> str:
    name, extra = KINDS[kind]
    return save_kind(folder, name, **(SIZES | extra))


def loaded(folder: Path, kind: str, quantize: QuantizeName, **changes: Any) -> TorchRunner:
    model = saved(folder, kind)
    return load_runner(
        ModelConfig(model, random_weights=True, device="cpu", quantize=quantize, **changes)
    )


def in_pieces(model: PreTrainedModel, texts: list[list[int]], dice: random.Random) -> list[Tensor]:
    """Logits of the texts by the model's panels, in random batches."""
    forward, groups, _ = fused_forward(model)
    assert not any(isinstance(module, QuantizedLinear) for module in model.modules())
    return in_random_batches(forward, groups, texts, dice)


@RUNS
@pytest.mark.parametrize("name", ["int8", "int4"])
@pytest.mark.parametrize("kind", ["llama with biases", "qwen3, tied", "mistral with a window"])
@torch.inference_mode()
def test_random_batches_differ_from_the_same_weights_as_floats_by_rounding_alone(
    kind: str, name: QuantizeName, tmp_path: Path
) -> None:
    folder = saved(tmp_path, kind)
    dice = random.Random(kind)
    texts = random_texts(dice, (41, 3, 17, 90, 1))
    exact_model, model = varied_model(folder, torch.float32), varied_model(folder)
    for each in (exact_model, model):
        assert quantize_linears(each, name) == 2 * 7 + 1
    exact, plain = eager_logits(exact_model, texts), eager_logits(model, texts)
    found = in_pieces(model, texts, dice)
    assert sum(isinstance(module, FusedLayer) for module in model.modules()) == 2
    assert mean_error(found, exact) < 0.03
    assert mean_error(found, exact) < 3 * mean_error(plain, exact)


def rounded_once(folder: Path, **changes: int) -> set[str]:
    """Names of the linear layers of a Llama whose inputs are rounded to 8 bits."""
    model = varied_model(save_kind(folder, "LlamaConfig", **(SIZES | changes)))
    quantize_linears(model, "int4")
    refine_inputs(model)
    layers = {n: m for n, m in model.named_modules() if isinstance(m, QuantizedLinear)}
    return {name for name, layer in layers.items() if layer.rounds == 1}


def test_inputs_have_16_bits_where_rounding_them_costs_most(tmp_path: Path) -> None:
    names = ("self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    assert rounded_once(tmp_path, num_hidden_layers=3) == {f"model.layers.1.{n}" for n in names}
    assert rounded_once(tmp_path, vocab_size=1000) == {"lm_head"}  # over a third of the weights
    mixture = varied_model(saved(tmp_path, "mixture"))
    quantize_linears(mixture, "int4")
    refine_inputs(mixture)
    rounds = [m.rounds for m in mixture.modules() if isinstance(m, QuantizedLinear)]
    assert rounds
    assert set(rounds) == {2}


@RUNS
@torch.inference_mode()
def test_a_layer_may_hold_several_kinds_of_weights(tmp_path: Path) -> None:
    """Like 4-bit GGUF files, which store value and down projections in 6 bits."""
    folder = saved(tmp_path, "llama with biases")
    dice = random.Random(0)
    texts = random_texts(dice, (9, 30))
    model = varied_model(folder)
    quantize_linears(model, "int4")
    for layer in model.model.layers:
        for parent, leaf in ((layer.self_attn, "v_proj"), (layer.mlp, "down_proj")):
            old = getattr(parent, leaf)
            stored = random_weight(INT8_HALVES, old.out_features, old.in_features)
            setattr(parent, leaf, QuantizedLinear(stored, old.bias))
    exact = eager_logits(model, texts)
    found = in_pieces(model, texts, dice)
    assert sum(isinstance(module, FusedLayer) for module in model.modules()) == 2
    assert mean_error(found, exact) < 0.03


@RUNS
def test_layers_that_are_not_fused_get_panels(tmp_path: Path) -> None:
    runner = loaded(tmp_path, "gemma2", "int4")
    modules = list(runner._forward._model.modules())
    assert not any(isinstance(module, FusedLayer) for module in modules)
    assert sum(isinstance(module, PanelLinear) for module in modules) == 2 * 7 + 1
    assert runner.description.quantized == "15 int4 by 32"


@RUNS
def test_weights_that_do_not_fit_stay_as_they_are_beside_those_that_do(tmp_path: Path) -> None:
    runner = loaded(tmp_path, "narrow llama", "int4")
    modules = list(runner._forward._model.modules())
    assert sum(isinstance(module, FusedLayer) for module in modules) == 2
    assert runner.description.packed_linears == 15
    assert runner.description.quantized == "2 int4 by 32"


@RUNS
def test_experts_and_routers_stay_as_they_are_and_the_bytes_say_so(tmp_path: Path) -> None:
    about = loaded(tmp_path, "mixture", "int8").description
    assert about.quantized == "9 int8 by 32"
    attention = 2 * (8 + 4 + 4 + 8) * 16 * 96  # weights of two layers
    assert about.weight_bytes["int8"] == pytest.approx(1.2 * (attention + 96 * 96), rel=0.2)
    experts = 2 * 4 * 3 * 32 * 96
    assert about.weight_bytes["bfloat16"] > 2 * (experts + 96 * 96)


@RUNS
def test_rounded_weights_change_the_described_arithmetic(tmp_path: Path) -> None:
    found = [loaded(tmp_path, "llama with biases", name).description for name in ("int8", "int4")]
    plain = load_runner(ModelConfig(str(tmp_path), random_weights=True, dtype="bfloat16"))
    arithmetics = {about.arithmetic for about in (*found, plain.description)}
    assert len(arithmetics) == 3
    eight, four = (sum(about.weight_bytes.values()) for about in found)
    assert four < eight < sum(plain.description.weight_bytes.values())
    assert found[1].weight_bytes["int4"] > 0
    assert "int4" not in plain.description.weight_bytes


@RUNS
def test_rows_do_not_depend_on_each_other_where_that_is_asked_for(tmp_path: Path) -> None:
    for name in ("int8", "int4"):
        runner = loaded(
            tmp_path, "qwen3, tied", name, batch_invariant=True, block_size=4
        )  # loading includes the self-check of batch invariance
        assert runner.description.batch_invariant


@RUNS
def test_panels_in_a_wrong_order_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = quantized_panels.pack

    def wrong(weight: quantized_panels.QuantizedWeight) -> Tensor:
        made = right(weight)
        made[..., :256], made[..., 256:512] = (
            made[..., 256:512].clone(),
            made[..., :256].clone(),
        )
        return made

    monkeypatch.setattr(quantized_panels, "pack", wrong)
    with pytest.raises(UnsupportedModel, match="differ from the model's own attention"):
        loaded(tmp_path, "llama with biases", "int8")


@RUNS
def test_weights_that_are_rounded_wrongly_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shuffled(weight: Tensor, kind: quantized_panels.PanelKind) -> Any:
        return quantize(weight.flip(1), kind)

    monkeypatch.setattr("app.model.layers.quantized.quantize", shuffled)
    with pytest.raises(UnsupportedModel, match="change this model's logits too much"):
        loaded(tmp_path, "llama with biases", "int4")


@pytest.mark.parametrize(
    ("changes", "device", "reason"),
    [
        ({}, "cuda", "int4 weights run only on the CPU; set LEAPJSON_DEVICE to cpu, or do that"),
        ({"dtype": "float32"}, "cpu", "need bfloat16 activations, but dtype is float32"),
    ],
)
@RUNS
def test_quantised_weights_are_refused_where_loops_cannot_run(
    changes: dict[str, Any], device: str, reason: str
) -> None:
    config = ModelConfig("none", **changes)
    with pytest.raises(UnsupportedModel, match=reason):
        require_loops(config, torch.device(device), "int4 weights", "do that")


def test_instructions_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "missing", lambda: ["AVX2"])
    with pytest.raises(UnsupportedModel, match="missing: AVX2, or do that"):
        require_loops(ModelConfig("none"), torch.device("cpu"), "int4 weights", "do that")


def test_weights_stored_in_fewer_bits_are_not_rounded_again(tmp_path: Path) -> None:
    model = varied_model(saved(tmp_path, "llama with biases"))
    quantize_linears(model, "int8")
    with pytest.raises(UnsupportedModel, match="already quantised"):
        quantize_linears(model, "int4")


def test_a_model_of_which_nothing_can_be_rounded_is_refused() -> None:
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=40, n_embd=48, n_layer=1, n_head=2)
    )
    with pytest.raises(UnsupportedModel, match="no suitable linear layer"):
        quantize_linears(model, "int8")


def test_a_quantised_linear_is_the_linear_of_its_weight_as_floats() -> None:
    stored = random_weight(INT4, 70, 64)
    bias = torch.randn(70)
    layer = QuantizedLinear(stored, bias)
    x = torch.randn(3, 64)
    assert torch.equal(layer(x), torch.nn.functional.linear(x, dequantize(stored), bias))
