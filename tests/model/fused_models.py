"""Tiny models with the CUDA path's fused layers, over the device's attention or the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from app.model.cpu.attention import CpuAttention
from app.model.cuda.attention import TritonAttention
from app.model.cuda.kernels.elementwise import Kept
from app.model.cuda.layers import fuse
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays
from app.model.kv_storage import KvStorage, allocate
from app.model.layers.attention import AttentionOptions, AttentionRoute, probe_layers
from app.model.layers.recurrent import RecurrentRoute
from tests.model.interpreter import DEVICE
from tests.model.tiny import save_kind, varied_model

CPU = torch.device("cpu")


SIZES = {
    "hidden_size": 72,
    "intermediate_size": 136,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
}

GEMMAS = ("gemma", "gemma2", "gemma3")
GEMMA = {"query_pre_attn_scalar": 24, "sliding_window": 7}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama with biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "llama, a head of keys for each": ("LlamaConfig", {"num_key_value_heads": 6}),
    "llama, tied embeddings": ("LlamaConfig", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {}),
    "mistral with a window": ("MistralConfig", {"sliding_window": 5}),
    "gemma": ("GemmaConfig", {}),
    "gemma2": ("Gemma2Config", {**GEMMA, "attn_logit_softcapping": 2.0}),
    "gemma3": ("Gemma3TextConfig", {**GEMMA, "sliding_window_pattern": 2}),
}

OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3": ("Phi3Config", {}),
    "llama with another activation": ("LlamaConfig", {"hidden_act": "relu"}),
}


class StoredAttention:
    """The CPU's attention with the interface of the device's, which is slow in the interpreter."""

    def __init__(self, storage: KvStorage) -> None:
        self.storage = storage
        self.calls = 0
        self._attention = CpuAttention(storage, batch_invariant=True)

    def begin(self, step: StepArrays) -> None:
        self._attention.begin(step)

    def slots(self, layer: int) -> Tensor:
        return torch.from_numpy(self._attention.slots[self.storage.group_of[layer]])

    def kept(self, layer: int) -> Kept:
        keys, values = self.storage.keys[layer], self.storage.values[layer]
        return keys, values, keys, values

    def attend_stored(self, layer: int, query: Tensor, options: AttentionOptions) -> Tensor:
        self.calls += 1
        stored = (self.storage.keys[layer], self.storage.values[layer])
        with _disable_current_modes():
            key, value = (part[self.slots(layer)].transpose(0, 1) for part in stored)
            return self._attention.attend(layer, query, key, value, options)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        return self._attention.attend(layer, query, key, value, options)


def saved(folder: Path, kind: str, **changes: Any) -> str:
    name, extra = (KINDS | OTHERS)[kind]
    return save_kind(folder, name, **(SIZES | extra | changes))


def fused(
    folder: str,
    dtype: torch.dtype,
    *,
    batch_invariant: bool = False,
    device_attention: bool = DEVICE.type == "cuda",
    fp8: bool = False,
    change: Callable[[nn.Module], object] = bool,
) -> tuple[transformers.PreTrainedModel, RaggedForward, Any]:
    """A model with fused layers, its forward pass and its attention.

    ``fp8`` needs the device's attention. ``change`` is applied to the model before fusing."""
    route, model = AttentionRoute(), varied_model(folder, dtype)
    change(model)
    whole: Any = model
    whole.to(DEVICE)
    shapes = probe_layers(model, route, RecurrentRoute(model))
    assert fuse(model, route, batch_invariant=batch_invariant) == len(shapes)
    shapes = {layer: replace(shape, fp8=fp8) for layer, shape in shapes.items()}
    storage = allocate(shapes, num_blocks=60, block_size=4, device=DEVICE)
    attention: Any = StoredAttention(storage)
    if device_attention:
        attention = TritonAttention(
            storage, shapes, max_model_len=256, batch_invariant=batch_invariant
        )
    return model, RaggedForward(model, route, RecurrentRoute(model), attention), attention
