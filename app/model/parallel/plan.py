"""The part of a model that each rank holds, by transformers' ``tp_plan``.

A plan gives modules and parameters, named by pattern (``model.layers.*.mlp.up_proj``), a style by
name. Styles that cut a weight say along which dimension; styles of a module say what has to be
exchanged around it. Source: transformers, distributed/tensor_parallel.py (5.17 to 5.24), whose own
wrappers are not used: they keep weights as DTensors, which cannot be joined or repacked here, and
run Python code at every call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from app.core.errors import UnsupportedModel
from app.core.model_name import is_gguf
from app.model.config import ModelConfig
from app.model.device import choose_device


@dataclass(frozen=True, slots=True)
class Style:
    """Sharing of a module or parameter between ranks."""

    dim: int | None = None
    """Dimension along which the weight is cut; a bias, which has one, is cut only if this is -2."""
    packs: int = 1
    """Number of weights joined along that dimension, each of which is cut (gate and up)."""
    splits: bool = False
    """Each rank takes its part of the input."""
    sums: bool = False
    """The ranks' outputs are added."""
    gathers: bool = False
    """The ranks' outputs are joined."""
    looks_up: bool = False
    """An embedding of which each rank has some of the tokens."""


STYLES: Mapping[str, Style] = {
    "colwise": Style(dim=-2),
    "colwise_gather_output": Style(dim=-2, gathers=True),
    "colwise_rep": Style(dim=-2, gathers=True),
    "rowwise": Style(dim=-1, sums=True),
    "rowwise_split_input": Style(dim=-1, splits=True, sums=True),
    "rowwise_rep": Style(dim=-1, splits=True, sums=True),
    "packed_colwise": Style(dim=-2, packs=2),
    "packed_rowwise": Style(dim=-1, packs=2),
    "moe_tp_experts": Style(sums=True),
    "all_reduce": Style(sums=True),
    "embedding_rowwise": Style(dim=0, looks_up=True),
    # These concern gradients, or parameters that are DTensors.
    "replicate": Style(),
    "replicated_with_grad_allreduce": Style(),
    "mla_kv_a_proj": Style(),
    "local_params": Style(),
}

_HEADS = ("num_attention_heads", "num_key_value_heads", "num_global_key_value_heads")


def check_sharing(config: ModelConfig, settings: PretrainedConfig) -> None:
    """Raises ``UnsupportedModel`` where ``config.tensor_parallel`` processes cannot share a model.

    ``settings`` is the model's own configuration.
    """
    ranks = config.tensor_parallel
    for enabled, what in (
        (is_gguf(config.model), "GGUF files are"),
        (config.quantize is not None, "quantised weights (quantize) are"),
        (config.adapters is not None, "adapters are"),
    ):
        if enabled:
            raise UnsupportedModel(f"{what} not supported with tensor_parallel; set it to 1")
    if config.batch_invariant:
        raise UnsupportedModel(
            "batch_invariant is not supported with tensor_parallel: sums over devices depend on "
            "the size of a step"
        )
    if choose_device(config.device).type == "cuda":
        count = torch.cuda.device_count()
        if ranks > count:
            raise UnsupportedModel(f"tensor_parallel is {ranks}, but only {count} GPUs are visible")
    check_plan(settings, ranks)


def check_plan(config: PretrainedConfig, ranks: int) -> None:
    """Raises ``UnsupportedModel`` if ``ranks`` processes cannot share this kind of model."""
    text = config.get_text_config()
    kind = text.model_type
    plan = getattr(text, "base_model_tp_plan", None) or {}
    if {*plan.values()} <= {"embedding_rowwise"}:  # no layer is shared
        raise UnsupportedModel(
            f"transformers has no plan for sharing {kind} between devices (tp_plan); "
            "set tensor_parallel to 1"
        )
    for name in plan.values():
        _style(name)
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedModel(
            f"the weights of this {kind} are quantised, which tensor_parallel does not support; "
            "set it to 1"
        )
    if not any(key.endswith("k_proj") and style == "colwise" for key, style in plan.items()):
        return
    for name in _HEADS:
        for heads in _numbers(getattr(text, name, None)):
            if heads % ranks:
                raise UnsupportedModel(
                    f"{ranks} devices cannot share the heads of this {kind} ({name} is {heads}): "
                    "tensor_parallel must divide that number"
                )


def styles_of(model: PreTrainedModel) -> dict[str, Style]:
    """Styles by full name of a module or parameter; others are whole on every rank.

    The embedding of a tied output layer is cut if, and only if, that layer is cut.
    """
    plan: dict[str, str] = dict(model._tp_plan or {})
    names = [name for name, _ in model.named_modules()]
    parameters = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    found = {
        name: _style(plan[pattern])
        for name in (*names, *parameters)
        if (pattern := re.sub(r"\d+", "*", name)) in plan
    }
    embedding: Any = model.get_input_embeddings()
    output: Any = model.get_output_embeddings()
    if output is not None and getattr(output, "weight", None) is embedding.weight:
        name_of = {module: name for name, module in model.named_modules()}
        if found.get(name_of[output], Style()).dim is not None:
            found[name_of[embedding]] = STYLES["embedding_rowwise"]
        elif found.get(name_of[embedding], Style()).dim is not None:
            del found[name_of[embedding]]
    return found


def _style(name: str) -> Style:
    if name not in STYLES:
        raise UnsupportedModel(
            f"the plan for sharing this kind of model between devices has the style {name}, which "
            "is not supported; set tensor_parallel to 1"
        )
    return STYLES[name]


def _numbers(value: Any) -> list[int]:
    if isinstance(value, int):
        return [value]
    return [each for each in value or () if isinstance(each, int)]
