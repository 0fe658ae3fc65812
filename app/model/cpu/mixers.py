"""The description of a decoder layer for the loops: its mixer (attention or recurrence) and norms.

Layers are recognised by the names in their code and by trying their parts, not by their classes.
All are: norm, mixer, norm, MLP. A mixer is some products of the same input, an operation along the
sequence, and an output product. The operation is attention with RoPE, with or without head norms
and gates, or a convolution and the gated delta rule.
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
from app.model.cpu.scan import CpuScan
from app.model.cpu.weights import Linear, has_panels, kind_of, reordered
from app.model.layers.architecture import Norm
from app.model.layers.attention import AttentionOptions, AttentionRoute
from app.model.layers.model_call import code_names
from app.model.layers.recurrent import SILU, RecurrentRoute

_OF_A_LAYER = {
    "input_layernorm", "self_attn", "linear_attn", "post_attention_layernorm", "mlp",
    "block_type", "layer_type", "isinstance", "tuple",
}  # fmt: skip
"""Names in the code of a layer that adds its mixer's and then its MLP's results, and no more."""
_OF_ATTENTION = {
    "shape", "head_dim", "view", "reshape", "transpose", "contiguous", "size", "torch", "chunk",
    "q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm", "sigmoid", "scaling",
    "num_heads", "num_key_value_heads", "apply_rotary_pos_emb", "sliding_window",
    "update", "layer_idx", "config", "getattr", "_attn_implementation", "get_interface",
    "ALL_ATTENTION_FUNCTIONS", "eager_attention_forward",
    "training", "attention_dropout", "dropout", "residual_dropout", "nn", "functional",
}  # fmt: skip
"""Names in the code of an attention that the loops can run."""
_OF_DELTA_RULE = {
    "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "in_proj_qkvz", "in_proj_ba",
    "fix_query_key_value_ordering", "cat", "split", "reshape", "shape", "transpose", "squeeze",
    "head_k_dim", "head_v_dim", "key_dim", "value_dim", "num_k_heads", "num_v_heads", "layer_idx",
    "conv1d", "weight", "bias", "activation", "causal_conv1d_fn", "causal_conv1d_update",
    "torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "repeat_interleave",
    "A_log", "dt_bias", "exp", "float", "sigmoid", "softplus", "F", "torch", "norm", "out_proj",
    "apply_mask_to_padding_states", "conv_kernel_size", "get_conv_state", "get_recurrent_state",
    "is_recording_past", "update_conv_state", "update_recurrent_state", "pop",
    "has_previous_state", "layers", "record_past", "conv_states", "recurrent_states",
}  # fmt: skip
"""Names in the code of a gated delta rule that the loops can run; some are of its caches."""
_ROTATION = "apply_rotary_pos_emb"
_DELTA_RULE = "torch_chunk_gated_delta_rule"


@dataclass(frozen=True, slots=True)
class Input:
    """A linear layer that a mixer applies to its input."""

    linear: Linear
    rows: Tensor | None = None
    """Indices of the outputs to use, in order; None: all."""

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
    """None: the mixer is no attention."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of a model's layers, whose targets hold the current step."""

    attention: AttentionRoute
    recurrent: RecurrentRoute

    @property
    def layers(self) -> int:
        """Number of layers with attention or a state."""
        return len(self.attention.options) + len(self.recurrent.shapes)

    def targets(self) -> tuple[CpuAttention, CpuScan | None]:
        """Attention and scan of the current step; None: the model has no recurrent layer."""
        attention, scan = self.attention.target, self.recurrent.target
        assert isinstance(attention, CpuAttention), "no step has begun"
        assert scan is None or isinstance(scan, CpuScan)
        return attention, scan

    def mixer_of(self, layer: Any) -> Mixer | None:
        """The mixer of a decoder layer; None: it is none, or the loops cannot run it."""
        names = frozenset(code_names(layer))
        if not {"input_layernorm", "post_attention_layernorm", "mlp"} <= names <= _OF_A_LAYER:
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
        names = code_names(attention)
        if options is None or options.chunked or not _OF_ATTENTION.issuperset(names):
            return None
        others = (options.softcap, options.sinks, options.slopes, options.latent)
        if any(each is not None for each in others):
            return None
        if not _rotates_halves(attention, names):
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
        elif query.out_features != mixed or "sigmoid" in names:
            return None
        for name in ("q_norm", "k_norm"):
            norm = getattr(attention, name, None)
            if norm is None:
                continue
            found = read_norm(norm)
            if names.index(name) > names.index(_ROTATION):
                return None
            if found is None or found.shifted != shifted or len(found.weight) != dim:
                return None
            values |= {name: found.weight, "head_eps": found.eps}
        return Mixer(attention.layer_idx, inputs, attention.o_proj, values, options)

    def _delta_rule(self, mixer: Any) -> Mixer | None:
        names = frozenset(code_names(mixer))
        if _DELTA_RULE not in names or not names <= _OF_DELTA_RULE or mixer.activation not in SILU:
            return None
        inputs, gated_norm = _delta_inputs(mixer), read_norm(mixer.norm, gated=True)
        if gated_norm is None:
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


def _rotates_halves(attention: Any, names: Sequence[str]) -> bool:
    """Whether its RoPE rotates a head's first half with its second one; computes an example."""
    rotate = inspect.unwrap(type(attention).forward).__globals__.get(_ROTATION)
    if rotate is None or _ROTATION not in names:
        return False
    dim = attention.head_dim
    heads = torch.linspace(-1.0, 2.0, 2 * dim).view(1, 2, 1, dim)
    angles = torch.linspace(0.0, 3.0, dim // 2).repeat(2).view(1, 1, dim)
    cos, sin = angles.cos(), angles.sin()
    first, second = heads.chunk(2, -1)
    wanted = heads * cos + torch.cat([-second, first], -1) * sin
    try:
        found = rotate(heads, heads, cos, sin)
    except (IndexError, RuntimeError, TypeError):
        return False
    return all(torch.allclose(part, wanted, atol=1e-5) for part in found)


def _delta_inputs(mixer: Any) -> Sequence[Input]:
    """Queries, keys, values, z, b and a in this order, each of all heads."""
    if hasattr(mixer, "in_proj_qkv"):
        names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
        return [Input(getattr(mixer, name)) for name in names]
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


def is_swiglu(mlp: Any) -> bool:
    """Whether it is an MLP with SiLU whose linears fit into panels."""
    linears = [getattr(mlp, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    if not all(isinstance(each, nn.Module) and has_panels(each) for each in linears):
        return False
    silu = isinstance(getattr(mlp, "act_fn", None), nn.SiLU | SiLUActivation)
    return silu and kind_of(mlp.gate_proj) == kind_of(mlp.up_proj)


_LIKENESS = 0.02
"""Maximum relative error of a norm against the formula: bfloat16 rounds by 0.002."""


def read_norm(norm: nn.Module, *, gated: bool = False) -> Norm | None:
    """The RMSNorm that ``norm`` computes, found by a trial; None: none, or not in bfloat16.

    A ``gated`` one is multiplied by SiLU of its second argument, and never shifted.
    """
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    weight = getattr(norm, "weight", None)
    if eps is None or weight is None or weight.ndim != 1 or weight.dtype != torch.bfloat16:
        return None
    x = torch.linspace(-1.0, 2.0, 2 * len(weight), dtype=weight.dtype).view(2, -1)
    normed = nn.functional.rms_norm(x.float(), x.shape[-1:], eps=float(eps))
    if gated:
        gates = x.flip(-1)
        out = _given(norm, x, gates)
        normed = normed * nn.functional.silu(gates.float())
    else:
        out = _given(norm, x)
    if out is None or out.shape != normed.shape:
        return None
    for shifted in (False,) if gated else (False, True):
        wanted = normed * (weight.detach().float() + shifted)
        if (out - wanted).norm() <= _LIKENESS * wanted.norm():
            return Norm(weight.detach(), float(eps), shifted)
    return None


def _given(norm: nn.Module, *arguments: Tensor) -> Tensor | None:
    """Result of ``norm`` for ``arguments``, float32; None if it does not accept them."""
    try:
        out: Tensor = norm(*arguments)
    except (IndexError, RuntimeError, TypeError):
        return None
    return out.float()
