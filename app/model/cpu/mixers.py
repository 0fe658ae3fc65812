"""What the loops are told of a decoder layer: how it mixes its tokens, and what its norms are.

All layers are: norm, mixer, norm, MLP. A mixer is some products of the same input, what lies
between, and a product. That is attention with RoPE, with norms of heads and gates or without, or
the gated delta rule behind a convolution.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import SiLUActivation

from app.model.cpu.attention import CpuAttention
from app.model.cpu.kernels import delta_layer
from app.model.cpu.scan import SILU, CpuScan
from app.model.cpu.weights import Linear, has_panels, kind_of, reordered
from app.model.layers.attention import AttentionOptions, AttentionRoute
from app.model.layers.recurrent import RecurrentRoute

KNOWN = {
    "LlamaDecoderLayer",
    "MistralDecoderLayer",
    "Qwen2DecoderLayer",
    "Qwen3DecoderLayer",
    "Qwen3NextDecoderLayer",
    "Qwen3_5DecoderLayer",
    "Qwen3_5MoeDecoderLayer",
}
"""Their residuals are plain; what else there is to know is seen in their modules."""

_DELTA_RULE = "torch_chunk_gated_delta_rule"
_LIKENESS = 0.02
"""How far a norm's result may be from what it is taken for: bfloat16 rounds by 0.002."""


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm."""

    weight: Tensor
    eps: float
    shifted: bool
    """Whether it multiplies by 1 + its weight."""


@dataclass(frozen=True, slots=True)
class Input:
    """A product that a mixer begins with."""

    linear: Linear
    rows: Tensor | None = None
    """Which of its outputs, in which order; None: all as they are."""

    @property
    def width(self) -> int:
        return self.linear.out_features if self.rows is None else len(self.rows)

    def read(self) -> Linear:
        return self.linear if self.rows is None else reordered(self.linear, self.rows)


@dataclass(frozen=True, slots=True)
class Mixer:
    layer: int
    inputs: Sequence[Input]
    """All read the normed input."""
    out: Linear
    values: Mapping[str, Any]
    """Fields of ``records.LAYER``; tensors stand for their addresses."""
    options: AttentionOptions | None
    """None: it is no attention."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The ways into a model's layers, which say what a step is computed over."""

    attention: AttentionRoute
    recurrent: RecurrentRoute | None

    @property
    def layers(self) -> int:
        """With attention or a state."""
        states = {} if self.recurrent is None else self.recurrent.shapes
        return len(self.attention.options) + len(states)

    def targets(self) -> tuple[CpuAttention, CpuScan | None]:
        """Those of the step that has begun; None: the model has no recurrent layer."""
        attention = self.attention.target
        assert isinstance(attention, CpuAttention), "no step has begun"
        scan = None if self.recurrent is None else self.recurrent.target
        assert scan is None or isinstance(scan, CpuScan)
        return attention, scan

    def mixer_of(self, layer: Any) -> Mixer | None:
        """None: the loops cannot run this module, or it is no decoder layer."""
        if type(layer).__name__ not in KNOWN:
            return None
        norm, mlp_norm = read_norm(layer.input_layernorm), read_norm(layer.post_attention_layernorm)
        if norm is None or mlp_norm is None or norm.shifted != mlp_norm.shifted:
            return None
        attention, scanned = (getattr(layer, name, None) for name in ("self_attn", "linear_attn"))
        mixer = (
            self._attention(attention, norm.shifted)
            if scanned is None
            else self._delta_rule(scanned)
        )
        if mixer is None or not all(
            map(has_panels, [*(part.linear for part in mixer.inputs), mixer.out])
        ):
            return None
        norms = {
            "shifted": int(norm.shifted),
            "norm": norm.weight,
            "eps": norm.eps,
            "mlp_norm": mlp_norm.weight,
            "mlp_eps": mlp_norm.eps,
        }
        return replace(mixer, values={**mixer.values, **norms})

    def _attention(self, attention: Any, shifted: bool) -> Mixer | None:
        options = self.attention.options.get(attention.layer_idx)
        if options is None:
            return None
        query, key, value = attention.q_proj, attention.k_proj, attention.v_proj
        dim, mixed = attention.head_dim, attention.o_proj.in_features
        values = {
            "heads": mixed // dim,
            "kv_heads": key.out_features // dim,
            "dim": dim,
            "window": options.window or 0,
            "scale": options.scale,
            "gated": 0,
        }
        inputs = [Input(query), Input(key), Input(value)]
        if query.out_features == 2 * mixed:
            # Of each head its query, then its gate.
            rows = torch.arange(2 * mixed).view(-1, 2, dim).transpose(0, 1).reshape(2, -1)
            inputs = [Input(query, rows[0]), *inputs[1:], Input(query, rows[1])]
            values["gated"] = 1
        elif query.out_features != mixed:
            return None
        for name in ("q_norm", "k_norm"):
            norm = getattr(attention, name, None)
            if norm is None:
                continue
            found = read_norm(norm)
            if found is None or found.shifted != shifted or len(found.weight) != dim:
                return None
            values |= {name: found.weight, "head_eps": found.eps}
        return Mixer(attention.layer_idx, inputs, attention.o_proj, values, options)

    def _delta_rule(self, mixer: Any) -> Mixer | None:
        code = inspect.unwrap(type(mixer).forward).__code__
        inputs = _delta_inputs(mixer)
        gated_norm = read_gated_norm(mixer.norm)
        plain = mixer.activation in SILU and _DELTA_RULE in code.co_names
        if inputs is None or gated_norm is None or not plain:
            return None
        conv = mixer.conv1d
        filters = conv.weight.detach().float().squeeze(1).t()
        offsets = conv.bias.detach().float() if conv.bias is not None else filters.new_zeros(1)
        values = {
            "mixer": delta_layer.entry(),
            "heads": mixer.num_v_heads,
            "kv_heads": mixer.num_k_heads,
            "dim": mixer.head_k_dim,
            "value_dim": mixer.head_v_dim,
            "taps": len(filters),
            "filters": filters,
            "offsets": offsets.expand(filters.shape[1]),
            "rates": -mixer.A_log.detach().float().exp(),
            "steps": mixer.dt_bias.detach().float(),
            "head_norm": gated_norm.weight,
            "head_eps": gated_norm.eps,
        }
        return Mixer(mixer.layer_idx, inputs, mixer.out_proj, values, None)


def _delta_inputs(mixer: Any) -> Sequence[Input] | None:
    """Queries, keys, values, z, b and a in this order, each of all heads."""
    if hasattr(mixer, "in_proj_qkv"):
        names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
        return [Input(getattr(mixer, name)) for name in names]
    if not hasattr(mixer, "in_proj_qkvz"):
        return None
    # One head of keys after the other, each with the values' heads that share it.
    keys, values, count = mixer.head_k_dim, mixer.head_v_dim, mixer.num_k_heads
    shared = mixer.num_v_heads // count
    found = []
    for name, sizes in (
        ("in_proj_qkvz", (keys, keys, shared * values, shared * values)),
        ("in_proj_ba", (shared, shared)),
    ):
        places = torch.arange(count * sum(sizes)).view(count, -1)
        rows = torch.cat([part.flatten() for part in torch.split(places, list(sizes), dim=1)])
        found.append(Input(getattr(mixer, name), rows))
    return found


def read_norm(norm: nn.Module) -> Norm | None:
    """What is seen when it is tried; None: it is no RMSNorm in bfloat16."""
    found = _weight_and_eps(norm)
    if found is None:
        return None
    weight, eps = found
    x = _trial(weight)
    normed, out = _normed(x, eps), norm(x).float()
    for shifted in (False, True):
        if _alike(out, normed * (weight.float() + shifted)):
            return Norm(weight, eps, shifted)
    return None


def read_gated_norm(norm: nn.Module) -> Norm | None:
    """The same for a norm that is multiplied by SiLU of its second argument."""
    found = _weight_and_eps(norm)
    if found is None:
        return None
    weight, eps = found
    x = _trial(weight)
    gates = x.flip(-1)
    wanted = _normed(x, eps) * weight.float() * nn.functional.silu(gates.float())
    return Norm(weight, eps, shifted=False) if _alike(norm(x, gates).float(), wanted) else None


def _weight_and_eps(norm: nn.Module) -> tuple[Tensor, float] | None:
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    weight = getattr(norm, "weight", None)
    if eps is None or weight is None or weight.dtype != torch.bfloat16:
        return None
    return weight.detach(), float(eps)


def _trial(weight: Tensor) -> Tensor:
    return torch.linspace(-1.0, 2.0, 2 * len(weight), dtype=weight.dtype).view(2, -1)


def _normed(x: Tensor, eps: float) -> Tensor:
    return nn.functional.rms_norm(x.float(), x.shape[-1:], eps=eps)


def _alike(out: Tensor, wanted: Tensor) -> bool:
    return bool((out - wanted).norm() <= _LIKENESS * wanted.norm())


def is_swiglu(mlp: Any) -> bool:
    """Whether it is an MLP with SiLU whose linears fit into panels."""
    linears = [getattr(mlp, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    if not all(isinstance(each, nn.Module) and has_panels(each) for each in linears):
        return False
    silu = isinstance(getattr(mlp, "act_fn", None), nn.SiLU | SiLUActivation)
    return silu and kind_of(mlp.gate_proj) == kind_of(mlp.up_proj)
