"""Random adapters in peft's format: their files, and models with their weights merged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


def adapted_modules(model: PreTrainedModel, endings: tuple[str, ...]) -> list[str]:
    """Names of the modules that end with one of ``endings``."""
    return [name for name, _ in model.named_modules() if name.endswith(endings)]


def save_adapter(
    folder: Path,
    model: PreTrainedModel,
    endings: tuple[str, ...] = ATTENTION + MLP,
    *,
    rank: int = 4,
    seed: int = 0,
    size: float = 0.3,
    changes: Mapping[str, Tensor | None] | None = None,
    **config: Any,
) -> Path:
    """Save random weights for these modules. ``changes``: tensors by name; None leaves one out."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for name in adapted_modules(model, endings):
        module: Any = model.get_submodule(name)
        width, depth = module.weight.shape[:: -1 if isinstance(module, Conv1D) else 1]
        key = f"base_model.model.{name}.lora_"
        tensors[f"{key}A.weight"] = torch.randn(rank, depth, generator=generator) * size
        tensors[f"{key}B.weight"] = torch.randn(width, rank, generator=generator) * size
    for name, tensor in (changes or {}).items():
        tensors.pop(name, None)
        if tensor is not None:
            tensors[name] = tensor
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.05,
        "bias": "none",
        "target_modules": list(endings),
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings | config))
    return folder


@torch.no_grad()
def merge(model: PreTrainedModel, folder: Path, scale: float = 2.0) -> PreTrainedModel:
    """Merge an adapter's weights into ``model``, in place; returns ``model``."""
    from safetensors.torch import load_file

    tensors = load_file(folder / "adapter_model.safetensors")
    for key, a in tensors.items():
        if not key.endswith("lora_A.weight"):
            continue
        b = tensors[key.replace("lora_A", "lora_B")]
        name = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        module: Any = model.get_submodule(name)
        delta = scale * (b.double() @ a.double())
        delta = delta.T if isinstance(module, Conv1D) else delta
        module.weight.copy_((module.weight.double() + delta).to(module.weight.dtype))
    return model
