"""Models with quantised weights that only our own loops on the CPU can multiply."""

from __future__ import annotations

import torch
from torch import nn

from app.core.errors import UnsupportedModel
from app.core.gguf_file import open_gguf
from app.core.model_name import is_gguf
from app.model.checkpoints.gptq_awq import METHODS
from app.model.checkpoints.loading import read_config
from app.model.checkpoints.stored_quantization import stored_quantization
from app.model.config import ModelConfig
from app.model.cpu.kernels import panels
from app.model.cpu.kernels.quantized_panels import QuantizedWeight
from app.model.layers.quantized import QuantizedEmbedding, QuantizedLinear


def run_as_stored(config: ModelConfig, device: torch.device) -> bool:
    """Whether the model has such weights and they are not to be dequantised.

    Raises ``UnsupportedModel``, with what to do, where they cannot run here.
    """
    if config.random_weights or config.dequantize:
        return False
    kind = _kind(config.model, device)
    if kind is None:
        return False
    problem = ""
    if device.type != "cpu":
        problem = "run only on the CPU; set LEAPJSON_DEVICE to cpu, serve safetensors,"
    elif config.dtype not in ("auto", "bfloat16"):
        problem = (
            f"need bfloat16 activations, but dtype is {config.dtype}; set LEAPJSON_DTYPE to auto"
        )
    elif lacking := panels.missing():
        problem = f"need AVX2 and Linux; missing: {', '.join(lacking)}. Serve another"
    elif not config.pack_linears:
        problem = "need pack_linears"
    if problem:
        way_out = " or set LEAPJSON_DEQUANTIZE" if kind == "GGUF" else ""
        raise UnsupportedModel(f"{config.model}: quantised weights of {kind} {problem}{way_out}")
    return True


def stored_parameters(model: nn.Module) -> int:
    """Number of quantised weights; those that two modules share count once."""
    held: dict[int, QuantizedWeight] = {}
    for module in model.modules():
        if isinstance(module, QuantizedLinear | QuantizedEmbedding):
            held[id(module.stored.codes)] = module.stored
    return sum(weight.outputs * weight.inputs for weight in held.values())


def _kind(model: str, device: torch.device) -> str | None:
    if is_gguf(model):
        return "GGUF" if open_gguf(model).is_quantized else None
    stored = stored_quantization(read_config(model))
    if device.type == "cpu" and stored is not None and stored["quant_method"] in METHODS:
        return str(stored["quant_method"])
    return None
