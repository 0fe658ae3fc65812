"""Linear layers whose weights are 8 or 4 bits wide: rounded at load, or stored so in a file.

They are in a model from loading until ``cpu.layers.fuse``, which replaces them by panels. Until
then they multiply by the dequantised weight: the reference for the panels in the self-check.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.checkpoints.stored_quantization import stored_quantization
from app.model.config import ModelConfig, QuantizeName
from app.model.cpu.kernels import panels
from app.model.cpu.kernels.quantized_panels import (
    INT4,
    INT8,
    PanelKind,
    QuantizedWeight,
    dequantize,
    fits,
    quantize,
)
from app.model.cpu.packed_linear import replace_modules
from app.model.layers.architecture import is_plain_linear
from app.model.self_check import CheckCase, whole_logits, worst_error

_log = logging.getLogger(__name__)

_KINDS: dict[QuantizeName, PanelKind] = {"int8": INT8, "int4": INT4}
_MOST_ERROR: dict[QuantizeName, float] = {"int8": 0.15, "int4": 0.9}
"""Largest relative error of a row of logits against the original weights, both centred. Unrelated
rows are 1.4 apart."""

_LAYER = re.compile(r"\.(\d+)\.")
_OF_MIXERS = re.compile(r"\.((q|k|v|qkv|in)_proj(_\w+)?|query_key_value|c_attn)$")
_LEAST_OUTPUTS = 64
"""Narrower weights (routers, gates of experts) are not rounded: small, with a large effect."""


class QuantizedLinear(nn.Module):
    """A linear layer with a stored weight [out_features, in_features]."""

    def __init__(self, stored: QuantizedWeight, bias: Tensor | None) -> None:
        super().__init__()
        self.in_features = stored.inputs
        self.out_features = stored.outputs
        self.rounds = 1
        """Roundings of inputs to 8 bits; 2: the remainder is rounded, too, 16 bits in all."""
        self.stored = stored  # not a buffer: a cast of the model must not change the scales
        self.weight = torch.empty(0, device="cpu")
        """Empty, of the default dtype: some models read it, and some initialise it."""
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features]; widens the whole weight, every time."""
        return F.linear(x, dequantize(self.stored, x.dtype), self.bias)


def refine_inputs(model: PreTrainedModel) -> None:
    """Use 16-bit inputs for the layers that lose most by rounding them; see decision 63.

    These are the input projections of mixers, all of the first and the last layer, and the output
    layer unless it has a third of all weights, as in small models with large vocabularies. In
    models with experts all layers do: a wrong choice of experts is a large error, and experts have
    few rows.
    """
    layers = {n: each for n, each in model.named_modules() if isinstance(each, QuantizedLinear)}
    last = model.config.get_text_config().num_hidden_layers - 1
    routed = any(name.endswith(".experts") for name, _ in model.named_modules())
    a_third = sum(each.in_features * each.out_features for each in layers.values()) / 3
    head = model.get_output_embeddings()
    for name, module in layers.items():
        layer = _LAYER.search(name)
        at_an_end = layer is not None and int(layer[1]) in (0, last)
        light_head = module is head and module.in_features * module.out_features < a_third
        refined = routed or at_an_end or light_head or _OF_MIXERS.search(name)
        module.rounds = 2 if refined else 1


def kinds_of(model: nn.Module) -> str:
    """Number of quantised layers of each kind, as text."""
    layers = [module for module in model.modules() if isinstance(module, QuantizedLinear)]
    found = Counter([layer.stored.kind.name for layer in layers])
    return ", ".join([f"{count} {name}" for name, count in sorted(found.items())])


def require_loops(config: ModelConfig, device: torch.device, weights: str, way_out: str) -> None:
    """Raises ``UnsupportedModel``, with the remedy, where our loops cannot multiply quantised
    ``weights``; ``way_out``: what else the operator can do."""
    problem = ""
    if device.type != "cpu":
        problem = "run only on the CPU; set LEAPJSON_DEVICE to cpu"
    elif config.dtype not in ("auto", "bfloat16"):
        problem = (
            f"need bfloat16 activations, but dtype is {config.dtype}; set LEAPJSON_DTYPE to auto"
        )
    elif lacking := panels.missing():
        problem = f"need AVX2 and Linux; missing: {', '.join(lacking)}"
    if problem:
        raise UnsupportedModel(f"{weights} {problem}, or {way_out}")


def quantize_linears(model: PreTrainedModel, name: QuantizeName) -> int:
    """Round the weights of the linear layers that can be; returns how many.

    Each is freed as it is replaced. Raises ``UnsupportedModel`` where there is none, or where they
    are stored in fewer bits already.
    """
    if stored_quantization(model.config) is not None or kinds_of(model):
        raise UnsupportedModel(
            f"quantize is {name}, but the model's weights are already quantised; leave "
            "LEAPJSON_QUANTIZE out"
        )
    kind = _KINDS[name]
    count = replace_modules(
        model, _can_be, lambda linear: QuantizedLinear(quantize(linear.weight, kind), linear.bias)
    )
    if not count:
        raise UnsupportedModel(
            f"quantize is {name}, but {type(model).__name__} has no suitable linear layer (at "
            "least 64 outputs, and a multiple of 32 inputs)"
        )
    return count


def check_rounding(
    model: PreTrainedModel, case: CheckCase, exact: Tensor, name: QuantizeName
) -> Tensor:
    """Logits of the quantised model by its own layers; ``exact`` are those before rounding.

    Raises ``UnsupportedModel`` if they differ too much: 8 bits may change a row by 15%, 4 bits by
    90%, as some models (those with random weights) amplify rounding errors.
    """
    rounded = whole_logits(model, case)
    error = worst_error(rounded, exact)
    _log.info("%s weights change a row of random logits by %.1f%%", name, 100 * error)
    if not error <= _MOST_ERROR[name]:  # so written that NaN fails too
        raise UnsupportedModel(
            f"self-check failed: {name} weights change this model's logits too much (relative "
            f"error {error:.2g}, limit {_MOST_ERROR[name]:.2g}); leave LEAPJSON_QUANTIZE out"
        )
    return rounded


def _can_be(module: nn.Module) -> TypeGuard[nn.Linear]:
    return (
        is_plain_linear(module)
        and fits(module.in_features)
        and module.out_features >= _LEAST_OUTPUTS
    )


class QuantizedEmbedding(nn.Module):
    """An embedding whose rows are widened as they are looked up."""

    def __init__(self, stored: QuantizedWeight, embedding: Any) -> None:
        """``embedding`` is the one that it replaces, see ``is_plain_embedding``."""
        super().__init__()
        self.num_embeddings = stored.outputs
        self.embedding_dim = stored.inputs
        self.stored = stored
        self._dtype = embedding.weight.dtype
        self.scalar_embed_scale: float | None = getattr(embedding, "scalar_embed_scale", None)

    def forward(self, ids: Tensor) -> Tensor:
        """[...] -> [..., embedding_dim]."""
        rows = dequantize(self.stored, self._dtype, ids.flatten())
        return scaled(rows.view(*ids.shape, self.embedding_dim), self.scalar_embed_scale)


def scaled(rows: Tensor, scale: float | None) -> Tensor:
    """``rows`` times the scale, which is rounded to their type; None: as they are."""
    return rows if scale is None else rows * torch.tensor(scale, dtype=rows.dtype)


class QuantizedExperts(nn.Module):
    """Replaces transformers' module for all experts of a layer.

    Their linear layers are put into panels as all others are (``cpu.layers.fuse``). A token's
    experts are added in the order of their numbers, whatever the other tokens are.
    """

    def __init__(self, experts: Any, gate_up: QuantizedWeight, down: QuantizedWeight) -> None:
        """``gate_up`` and ``down`` have the rows of all experts, one after the other."""
        super().__init__()
        self.num_experts = experts.num_experts
        self._apply_gate = experts._apply_gate
        self.gate_up = nn.ModuleList(_each(gate_up, self.num_experts))
        self.down = nn.ModuleList(_each(down, self.num_experts))
        self.gate_up_proj_bias = getattr(experts, "gate_up_proj_bias", None)
        self.down_proj_bias = getattr(experts, "down_proj_bias", None)

    def forward(self, hidden: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        """[T, H], the numbers of each token's experts [T, K] and their weights -> [T, H]."""
        out = torch.zeros_like(hidden)
        for number in torch.unique(experts).tolist():
            tokens, places = (experts == number).nonzero(as_tuple=True)
            mixed = self.gate_up[number](hidden[tokens])
            if self.gate_up_proj_bias is not None:
                mixed = mixed + self.gate_up_proj_bias[number]
            mixed = self.down[number](self._apply_gate(mixed))
            if self.down_proj_bias is not None:
                mixed = mixed + self.down_proj_bias[number]
            mixed = mixed * weights[tokens, places, None]
            out.index_add_(0, tokens, mixed.to(out.dtype))
        return out


def _each(weight: QuantizedWeight, count: int) -> list[QuantizedLinear]:
    own = weight.outputs // count
    firsts = range(0, weight.outputs, own)
    return [QuantizedLinear(weight.reordered(slice(at, at + own)), None) for at in firsts]
