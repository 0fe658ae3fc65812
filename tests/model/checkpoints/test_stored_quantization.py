"""Checkpoints in 8 and 4 bits: run as stored, refused by name, or dequantised on request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.checkpoints import stored_quantization
from app.model.checkpoints.loading import read_config
from app.model.checkpoints.stored_quantization import (
    loading_options,
    require_no_growth,
    weight_bytes,
)
from app.model.composition import load_runner
from app.model.layers.architecture import is_plain_linear
from tests.model.checkpoints.test_loading import greedy_token
from tests.model.tiny import VOCAB, eager_model, load_model, runner_config, save_config

SIZES = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
CPU = torch.device("cpu")


def plain_model(folder: Path, kind: str = "llama") -> PreTrainedModel:
    return eager_model(save_config(folder, kind, **SIZES))


def loaded(folder: Path, **changes: Any) -> PreTrainedModel:
    config = runner_config(str(folder), random_weights=False, **changes)
    return load_model(config, CPU, torch.float32)


def describe(folder: Path, description: dict[str, Any]) -> None:
    """Put a quantization_config into a folder's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": description}))


def quantized_by(folder: Path, config: Any) -> Path:
    """A checkpoint of a tiny Llama, quantised by transformers and the library of ``config``."""
    plain_model(folder / "plain").save_pretrained(folder / "plain")
    auto: Any = transformers.AutoModelForCausalLM
    made = auto.from_pretrained(
        folder / "plain", quantization_config=config, device_map={"": "cpu"}, dtype=torch.float32
    )
    made.save_pretrained(folder / "stored")
    return folder / "stored"


def four_bit_bitsandbytes() -> Any:
    config: Any = transformers.BitsAndBytesConfig
    return config(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
    )


def test_weights_with_kernels_on_the_cpu_run_as_stored(tmp_path: Path) -> None:
    folder = quantized_by(tmp_path, four_bit_bitsandbytes())
    model = loaded(folder)
    packed = sum(weights_of(module) for module in model.modules()) // 2
    assert packed <= weight_bytes(model)["uint8"] <= packed * 1.1
    runner = load_runner(runner_config(str(folder), random_weights=False))  # self-check included
    assert runner.description.packed_linears == 0
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[5, 6, 7]])).logits
    assert greedy_token(runner) == int(logits[0, -1].argmax())


def test_a_quantization_config_beside_plain_weights_is_refused(tmp_path: Path) -> None:
    plain_model(tmp_path).save_pretrained(tmp_path)
    describe(tmp_path, four_bit_bitsandbytes().to_dict())
    with pytest.raises(UnsupportedModel, match="no weight is quantised; remove it"):
        loaded(tmp_path)


def test_a_weight_of_a_tensor_subclass_is_not_plain_and_counts_as_what_it_is_made_of() -> None:
    """torchao stores weights in such subclasses."""
    linear = nn.Linear(8, 4, bias=False)
    assert is_plain_linear(linear)
    parts = torch.zeros(4, 8), torch.zeros(4, 8)
    two: Any = TwoTensor
    linear.weight = nn.Parameter(two(*parts))
    assert not is_plain_linear(linear)
    whole: Any = linear
    assert weight_bytes(whole) == {"float32": 2 * 4 * 8 * 4}


def weights_of(module: nn.Module) -> int:
    """Number of weights of a linear layer; 0 for the output layer, which stays plain."""
    if not isinstance(module, nn.Linear) or module.out_features == VOCAB:
        return 0
    return module.in_features * module.out_features


def fp8_of_compressed_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Save a checkpoint with a scale for each output; returns its dequantised weights."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (
        QuantizationArgs,
        QuantizationConfig,
        QuantizationScheme,
        QuantizationStatus,
        apply_quantization_config,
    )

    model: Any = plain_model(folder)
    scheme = QuantizationScheme(
        targets=["Linear"],
        weights=QuantizationArgs(num_bits=8, type="float", strategy="channel"),
        input_activations=QuantizationArgs(
            num_bits=8, type="float", strategy="token", dynamic=True
        ),
    )
    config = QuantizationConfig(
        config_groups={"all": scheme},
        ignore=["lm_head"],
        quantization_status=QuantizationStatus.COMPRESSED,
        format="float-quantized",
    )
    apply_quantization_config(model, config)
    for module in model.modules():
        if hasattr(module, "weight_scale"):
            module.weight_scale.data = module.weight.abs().amax(1, keepdim=True) / 448
    compressor: Any = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    weights = model.state_dict()
    model.config.quantization_config = compressor.quantization_config.model_dump()
    model.save_pretrained(folder)
    return {
        name: weight.float() * weights.get(f"{name}_scale", torch.ones(()))
        for name, weight in weights.items()
        if not name.endswith("_scale")
    }


def fine_grained_fp8(folder: Path) -> dict[str, torch.Tensor]:
    """The same with a scale for each 32 x 32 weights; DeepSeek's have one for each 128 x 128."""
    model = plain_model(folder)
    model.save_pretrained(folder)
    weights, worth = load_file(folder / "model.safetensors"), {}
    for name, weight in [*weights.items()]:
        worth[name] = weight
        if "_proj" in name:
            rows, columns = weight.shape
            tiles = weight.view(rows // 32, 32, columns // 32, 32)
            scale = tiles.abs().amax((1, 3), keepdim=True) / 448
            stored = (tiles / scale).to(torch.float8_e4m3fn)
            worth[name] = (stored.float() * scale).flatten(2, 3).flatten(0, 1)
            weights[name] = stored.flatten(2, 3).flatten(0, 1)
            weights[f"{name}_scale_inv"] = scale[:, 0, :, 0].contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    describe(
        folder,
        {"quant_method": "fp8", "weight_block_size": [32, 32], "activation_scheme": "dynamic"},
    )
    return worth


@pytest.mark.parametrize("make", [fp8_of_compressed_tensors, fine_grained_fp8])
def test_eight_bit_floats_are_dequantized_on_the_cpu_if_asked_and_never_in_silence(
    make: Callable[[Path], dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    worth = make(tmp_path)
    assert weight_bytes_on_disk(tmp_path)["float8_e4m3fn"] > 50_000
    with pytest.raises(
        UnsupportedModel, match=r"no kernels on the CPU; or set LEAPJSON_DEQUANTIZE"
    ):
        loaded(tmp_path)
    model = loaded(tmp_path, dequantize=True)
    assert {*weight_bytes(model)} == {"float32"}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, worth[name], rtol=1e-5, atol=1e-6)
    load_runner(runner_config(str(tmp_path), random_weights=False, dequantize=True))


def weight_bytes_on_disk(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for weight in load_file(folder / "model.safetensors").values():
        name = str(weight.dtype).removeprefix("torch.")
        found[name] = found.get(name, 0) + weight.nbytes
    return found


def test_gpt_oss_experts_in_mxfp4_are_dequantized_if_asked(tmp_path: Path) -> None:
    model: Any = eager_model(
        save_config(tmp_path, "gpt-oss with sinks and a window", **SIZES, num_hidden_layers=1)
    )
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    for name in [name for name in weights if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = weights.pop(name).shape
        shape = (experts, outputs, inputs // 32, 16)
        blocks = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        weights[f"{name}_blocks"] = blocks
        weights[f"{name}_scales"] = torch.full(shape[:3], 125, dtype=torch.uint8)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    describe(tmp_path, {"quant_method": "mxfp4"})
    with pytest.raises(UnsupportedModel, match="no kernels on the CPU"):
        loaded(tmp_path)
    made = loaded(tmp_path, dequantize=True)
    [gate_up] = [p for n, p in made.named_parameters() if n.endswith("experts.gate_up_proj")]
    # E2M1 has magnitudes of 0 to 6; the exponent byte 125 is a quarter.
    magnitudes = {*gate_up.abs().flatten().tolist()}
    assert magnitudes == {m / 4 for m in (0, 0.5, 1, 1.5, 2, 3, 4, 6)}
    load_runner(runner_config(str(tmp_path), random_weights=False, dequantize=True))


def settings_of(folder: Path, description: dict[str, Any]) -> Any:
    save_config(folder, "llama")
    describe(folder, description)
    return read_config(str(folder))


def on_a_gpu_of(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> torch.device:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    return torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("method", "install"),
    [
        ("fp8", r"pip install 'kernels>=0\.\d+\.\d+,<0\.\d+\.\d+'; or set LEAPJSON_DEQUANTIZE"),
        ("mxfp4", r"pip install 'kernels>="),
        ("awq", r"pip install 'gptqmodel>=1\.4\.3'$"),
        ("gptq", r"pip install 'gptqmodel>=1\.4\.3' 'optimum>=1\.24\.0'$"),
    ],
)
def test_a_missing_package_is_named_with_the_line_that_installs_it(
    method: str, install: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path, {"quant_method": method, "bits": 4})
    device = on_a_gpu_of(monkeypatch, (9, 0))
    with pytest.raises(UnsupportedModel, match=install):
        loading_options(settings, device, dequantize=False)


def test_a_gpu_without_the_instructions_is_told_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path, {"quant_method": "compressed-tensors"})
    device = on_a_gpu_of(monkeypatch, (8, 6))
    with pytest.raises(UnsupportedModel, match=r"compute capability 8\.9; this one has 8\.6"):
        loading_options(settings, device, dequantize=False)


def test_compressed_integers_would_grow_in_the_first_pass_and_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    groups = {"all": {"targets": ["Linear"], "weights": weights}}
    settings = settings_of(
        tmp_path, {"quant_method": "compressed-tensors", "config_groups": groups}
    )
    device = on_a_gpu_of(monkeypatch, (9, 0))
    with pytest.raises(UnsupportedModel, match="weights are 4-bit int; or set LEAPJSON_DEQUANTIZE"):
        loading_options(settings, device, dequantize=False)
    groups["all"]["weights"] = {"num_bits": 8, "type": "float", "strategy": "channel"}
    settings = settings_of(
        tmp_path, {"quant_method": "compressed-tensors", "config_groups": groups}
    )
    options = loading_options(settings, device, dequantize=False)
    assert options["quantization_config"].use_optimized_inference


@pytest.mark.parametrize(
    ("description", "dequantize", "message"),
    [
        (
            {"quant_method": "hqq"},
            False,
            "quantised by hqq, which is not supported; supported are fp8",
        ),
        ({"bits": 3}, False, "quantised by an unnamed method"),
        ({"quant_method": "gptq", "bits": 4}, True, "gptq cannot be dequantised at load"),
    ],
)
def test_unsupported_methods_are_refused_by_name(
    description: dict[str, Any], dequantize: bool, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        loading_options(settings_of(tmp_path, description), CPU, dequantize=dequantize)


def test_weights_that_transformers_dequantizes_unasked_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine_grained_fp8(tmp_path)
    kinds = dict(stored_quantization._KINDS)
    monkeypatch.setattr(stored_quantization, "_KINDS", kinds | {"fp8": kinds["bitsandbytes"]})
    with pytest.raises(UnsupportedModel, match="dequantised them; set dequantize"):
        loaded(tmp_path)  # ``_KINDS`` claims kernels for fp8


def test_weights_that_grow_as_they_run_are_noticed(tmp_path: Path) -> None:
    model = plain_model(tmp_path)
    size = sum(weight_bytes(model).values())
    require_no_growth(model, size - 1)  # plain weights are not checked
    model.config.quantization_config = {"quant_method": "compressed-tensors"}
    require_no_growth(model, size)
    with pytest.raises(UnsupportedModel, match=rf"grew from {size - 1} to {size} bytes"):
        require_no_growth(model, size - 1)


def test_random_weights_of_a_quantized_folder_are_refused(tmp_path: Path) -> None:
    settings_of(tmp_path, {"quant_method": "fp8"})
    with pytest.raises(UnsupportedModel, match=r"take quantization_config out of config\.json"):
        load_runner(runner_config(str(tmp_path)))
