"""GPTQ and AWQ checkpoints on the CPU; the tests pack weights into words as those libraries do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from app.core.errors import UnsupportedModel
from app.model.cpu.kernels.quantized_panels import INT4, INT4_MINIMA, INT8
from app.model.layers.quantized import QuantizedLinear
from tests.model.tiny import VOCAB, eager_model, load_model, runner_config, save_config

CPU = torch.device("cpu")
IDS = torch.randint(0, VOCAB, (1, 20), generator=torch.Generator().manual_seed(2))
SIZES = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False, "sym": False}


def signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


def in_words(codes: Tensor, bits: int, order: list[int]) -> Tensor:
    """Codes [rows, n], packed into int32; code ``order[i]`` of a word is ``i``th from the right."""
    count = 32 // bits
    rows = []
    for row in codes.tolist():
        words = [row[i : i + count] for i in range(0, len(row), count)]
        rows.append(
            [signed(sum(word[o] << bits * i for i, o in enumerate(order))) for word in words]
        )
    return torch.tensor(rows, dtype=torch.int64).to(torch.int32)


def packed(
    weight: Tensor, description: dict[str, Any], seed: int
) -> tuple[dict[str, Tensor], Tensor]:
    """The quantised tensors of a linear layer's weight [N, K], and their dequantised values."""
    bits, outputs, inputs = description["bits"], *weight.shape
    group = inputs if description["group_size"] == -1 else description["group_size"]
    chance = torch.Generator().manual_seed(seed)
    groups = weight.view(outputs, -1, group)
    scales = (groups.abs().amax(-1) / (1 << bits - 1)).half()
    zeros = torch.full(scales.shape, 1 << bits - 1)
    if not description.get("sym"):
        zeros = torch.randint(4, 12, scales.shape, generator=chance)
    codes = (groups / scales.float()[..., None]).round() + zeros[..., None]
    codes = codes.clamp(0, (1 << bits) - 1).long()
    values = ((codes - zeros[..., None]) * scales.float()[..., None]).view(outputs, inputs)
    by_input, zeros = codes.view(outputs, inputs).t(), zeros.t()
    straight = list(range(32 // bits))
    if description["quant_method"] == "awq":
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        parts = {"qweight": in_words(by_input, 4, order), "qzeros": in_words(zeros, 4, order)}
    else:
        less = 0 if description.get("checkpoint_format") == "gptq_v2" else 1
        parts = {
            "qweight": in_words(by_input.t(), bits, straight).t(),
            "qzeros": in_words(zeros - less, bits, straight),
            "g_idx": torch.arange(inputs, dtype=torch.int32) // group,
        }
    return {**parts, "scales": scales.t()}, values


def checkpoint(folder: Path, description: dict[str, Any], kind: str = "llama") -> Any:
    """Save a quantised checkpoint; returns the plain model with its dequantised values."""
    sizes = {**SIZES, "tie_word_embeddings": False}
    model = eager_model(save_config(folder, kind, **sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator()) * 0.1)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    with torch.no_grad():
        for number, (name, module) in enumerate(model.named_modules()):
            if isinstance(module, torch.nn.Linear) and name != "lm_head":
                weight = tensors.pop(f"{name}.weight")
                parts, values = packed(weight, description, number)
                tensors |= {f"{name}.{part}": value for part, value in parts.items()}
                module.weight.copy_(values)
    save(folder, tensors)
    describe(folder, description)
    return model


def save(folder: Path, tensors: dict[str, Tensor]) -> None:
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})


def describe(folder: Path, description: dict[str, Any]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": description}))


def loaded(folder: Path) -> Any:
    return load_model(runner_config(str(folder), random_weights=False), CPU, torch.float32)


@torch.inference_mode()
def error(found: Any, exact: Any) -> float:
    rows, wanted = found(IDS).logits, exact(IDS).logits
    return float((rows - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(
    ("description", "kind"),
    [
        (AWQ, INT4_MINIMA),
        (AWQ | {"group_size": 32}, INT4_MINIMA),
        (GPTQ, INT4_MINIMA),
        (GPTQ | {"checkpoint_format": "gptq_v2"}, INT4_MINIMA),
        (GPTQ | {"group_size": -1}, INT4_MINIMA),
        (GPTQ | {"sym": True, "group_size": 128}, INT4),
        (GPTQ | {"sym": True, "bits": 8}, INT8),
    ],
    ids=["awq", "awq, 32", "gptq", "gptq 2", "gptq, rows", "gptq, symmetric", "gptq, 8 bits"],
)
def test_weights_are_the_values_that_were_packed(
    tmp_path: Path, description: dict[str, Any], kind: Any
) -> None:
    model = checkpoint(tmp_path, description)
    found = loaded(tmp_path)
    layer = found.model.layers[1].mlp.down_proj
    assert isinstance(layer, QuantizedLinear)
    assert layer.stored.kind == kind
    # Zero point times scale is rounded to 16 bits; without zero points nothing is rounded.
    assert error(found, model) < (6e-3 if kind == INT4_MINIMA else 1e-6)


def test_biases_come_with_their_layers(tmp_path: Path) -> None:
    model = checkpoint(tmp_path, AWQ, "qwen2")
    assert error(loaded(tmp_path), model) < 6e-3


@pytest.mark.parametrize("parts", [1, 3])
def test_only_the_files_of_the_checkpoint_are_read(tmp_path: Path, parts: int) -> None:
    model = checkpoint(tmp_path, AWQ)
    tensors = load_file(tmp_path / "model.safetensors")
    if parts > 1:
        (tmp_path / "model.safetensors").unlink()
        names = {f"model-{part}.safetensors": sorted(tensors)[part::parts] for part in range(parts)}
        for file, own in names.items():
            save_file({name: tensors[name] for name in own}, tmp_path / file)
        owners = {name: file for file, own in names.items() for name in own}
        index = {"metadata": {}, "weight_map": owners}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    save_file(
        {name: torch.zeros_like(each) for name, each in tensors.items()}, tmp_path / "z.safetensors"
    )
    assert error(loaded(tmp_path), model) < 6e-3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bits": 3}, "with 3 bits"),
        ({"group_size": 16}, "groups of 16 inputs"),
        ({"checkpoint_format": "marlin"}, "the format marlin"),
        ({"dynamic": {"-:lm_head": {}}}, "a layout for each layer"),
    ],
)
def test_other_layouts_are_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    checkpoint(tmp_path, GPTQ)
    describe(tmp_path, GPTQ | changes)
    with pytest.raises(UnsupportedModel, match=reason):
        loaded(tmp_path)


def test_act_order_is_refused_where_it_scatters_groups(tmp_path: Path) -> None:
    checkpoint(tmp_path, GPTQ | {"desc_act": True})
    loaded(tmp_path)  # each group still has consecutive inputs
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.g_idx"
    tensors[name] = tensors[name].flip(0)
    save(tmp_path, tensors)
    with pytest.raises(UnsupportedModel, match=r"mlp\.up_proj .* act-order"):
        loaded(tmp_path)


def test_a_layer_that_lacks_a_part_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path, AWQ)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.0.mlp.up_proj.scales"]
    save(tmp_path, tensors)
    with pytest.raises(UnsupportedModel, match=r"up_proj lacks its qzeros or its scales"):
        loaded(tmp_path)
