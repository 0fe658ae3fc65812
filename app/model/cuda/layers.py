"""Fused replacements for known decoder layers of transformers; see ``kernels.elementwise``.

One layer of transformers has some forty launches; here it has eleven, including three of the
attention::

    product (QKV)  rotation + cache write  attention x 3  product (out)  add + norm
    product (gate, up)  activation x mul  product (down)  add + norm of the next layer

The next layer needs both the sum and its norm, so a layer passes on the normed tensor along with
the plain one (``_Between``). The model's last norm takes its result from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.activations import GELUTanh, SiLUActivation

from app.core.errors import UnsupportedModel
from app.model.adapters.slots import AdapterSlots
from app.model.adapters.targets import Product
from app.model.cuda.kernels import product as invariant
from app.model.cuda.kernels.elementwise import activate, add_norm, rms_norm, rotate_and_store
from app.model.layers.architecture import Norm, is_plain_linear
from app.model.layers.attention import AttentionRoute

KNOWN_LAYERS = ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Gemma3")
"""All consist of norm, attention with RoPE, norm, gated MLP. Qwen 3 and Gemma 3 also norm heads,
Gemma 2 and 3 the outputs of attention and MLP."""


class InvariantLinear(nn.Module):
    """Batch-invariant replacement for ``linear``; shares its weight."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight
        self._product = _invariant_product(linear.weight.detach(), linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        out = self._product(x.reshape(-1, x.shape[-1]).contiguous())
        return out.view(*x.shape[:-1], -1)


class _Between:
    """Passes a layer's result to the next layer, together with its norm."""

    def __init__(self) -> None:
        self._left: tuple[Tensor, Tensor] | None = None

    def leave(self, hidden: Tensor, normed: Tensor) -> None:
        self._left = (hidden, normed)

    def take(self, hidden: Tensor, norm: Norm) -> Tensor:
        """``hidden`` [1, T, H] after ``norm``, as [T, H]. Drops the stored tensors."""
        left, self._left = self._left, None
        if left is not None and left[0] is hidden:
            return left[1]
        return rms_norm(hidden[0].contiguous(), norm)


class FusedNorm(nn.Module):
    """Replaces the model's last norm, which the last layer has already computed."""

    def __init__(self, norm: Norm, between: _Between) -> None:
        super().__init__()
        self._norm = norm
        self._between = between

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self._between.take(hidden_states, self._norm).unsqueeze(0)


class FusedLayer(nn.Module):
    """Same result as ``layer``, but with weights joined that multiply the same input."""

    def __init__(
        self,
        layer: Any,
        route: AttentionRoute,
        following: Norm,
        between: _Between,
        join: Callable[[tuple[nn.Linear, ...]], Product],
    ) -> None:
        """``following`` is the norm after this layer; ``join`` returns the product with the joined
        weights of several linear layers."""
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self.attention_type = getattr(layer, "attention_type", None)
        self._number = attention.layer_idx
        self._route = route
        self._options = route.options[self._number]
        self._between = between
        self._gelu = isinstance(mlp.act_fn, GELUTanh)
        self._qkv = join((attention.q_proj, attention.k_proj, attention.v_proj))
        self._out = join((attention.o_proj,))
        self._gate_up = join((mlp.gate_proj, mlp.up_proj))
        self._down = join((mlp.down_proj,))
        self._head_norms = None
        if hasattr(attention, "q_norm"):
            self._head_norms = (_norm(attention.q_norm), _norm(attention.k_norm))
        self.first_norm = _norm(layer.input_layernorm)
        self._after_attention: Norm | None = None
        self._after_mlp: Norm | None = None
        self._mlp_norm = _norm(layer.post_attention_layernorm)
        if hasattr(layer, "pre_feedforward_layernorm"):
            self._after_attention = self._mlp_norm
            self._mlp_norm = _norm(layer.pre_feedforward_layernorm)
            self._after_mlp = _norm(layer.post_feedforward_layernorm)
        self._following = following

    def forward(
        self, hidden_states: Tensor, *_: Any, position_embeddings: tuple[Tensor, Tensor], **__: Any
    ) -> Tensor:
        """[1, T, H] -> [1, T, H]."""
        attention: Any = self._route.target
        assert attention is not None, "no step has begun"
        cos, sin = position_embeddings
        normed = self._between.take(hidden_states, self.first_norm)
        query = rotate_and_store(
            self._qkv(normed),
            cos[0],
            sin[0],
            attention.slots(self._number),
            attention.kept(self._number),
            self._head_norms,
        )
        attended = attention.attend_stored(self._number, query.transpose(0, 1), self._options)
        hidden, normed = add_norm(
            hidden_states[0].contiguous(),
            self._out(attended.flatten(1)),
            self._after_attention,
            self._mlp_norm,
        )
        active = activate(self._gate_up(normed), gelu=self._gelu)
        hidden, normed = add_norm(hidden, self._down(active), self._after_mlp, self._following)
        result = hidden.unsqueeze(0)
        self._between.leave(result, normed)
        return result


def fuse(
    model: PreTrainedModel,
    route: AttentionRoute,
    *,
    batch_invariant: bool,
    adapters: AdapterSlots | None = None,
) -> int:
    """Replace the decoder layers of ``model`` and its last norm, if all layers are of a known kind.

    Returns the number of replaced layers. Requires a forward pass through ``route`` before.
    Products include ``adapters``. With ``batch_invariant`` all products use ``kernels.product``,
    including the output layer; raises ``UnsupportedModel`` if the layers are of another kind.
    """
    found = [name for name, module in model.named_modules() if _is_known(module, model.dtype)]
    parents = {name.rpartition(".")[0] for name in found}
    known = len(found) == len(route.options) and len(parents) == 1
    if not known or (batch_invariant and not all(map(_is_plain, map(model.get_submodule, found)))):
        if batch_invariant:
            raise UnsupportedModel(
                f"batch_invariant is not supported for {type(model).__name__}; it needs layers of "
                f"{', '.join(KNOWN_LAYERS)} with plain weights in one type"
            )
        return 0
    parent = parents.pop()
    layers: Any = model.get_submodule(parent)
    decoder: Any = model.get_submodule(parent.rpartition(".")[0])
    between, following = _Between(), _norm(decoder.norm)
    decoder.norm = FusedNorm(following, between)
    make = _invariant_product if batch_invariant else _library_product
    names = {id(module): name for name, module in model.named_modules()}  # holds no references

    def join(parts: tuple[nn.Linear, ...]) -> Product:
        joined = _joined(parts, make)
        if adapters is None:
            return joined
        return adapters.beside(joined, [names[id(part)] for part in parts])

    # From the last to the first; each old layer is freed before the next is joined.
    for number in reversed(range(len(layers))):
        layers[number] = FusedLayer(layers[number], route, following, between, join)
        following = layers[number].first_norm
    if batch_invariant:
        output: Any = model.get_output_embeddings()
        model.set_output_embeddings(InvariantLinear(output))
    return len(layers)


def _invariant_product(weight: Tensor, bias: Tensor | None) -> Product:
    """A batch-invariant product: a row's result does not depend on the other rows."""
    tiles = invariant.tiling(weight)
    return lambda x: invariant.product(x, weight, bias, tiles)


def _library_product(weight: Tensor, bias: Tensor | None) -> Product:
    """A product by the library, which chooses a kernel by the number of rows."""
    return lambda x: functional.linear(x, weight, bias)


def _joined(
    parts: tuple[nn.Linear, ...], make: Callable[[Tensor, Tensor | None], Product]
) -> Product:
    """The product with the weights of all ``parts``, one below the other."""
    if not all(map(is_plain_linear, parts)):  # quantised: by the modules' own ``forward``
        return parts[0] if len(parts) == 1 else lambda x: torch.cat([p(x) for p in parts], dim=-1)
    if len(parts) == 1:
        return make(parts[0].weight.detach().contiguous(), parts[0].bias)
    bias = None
    if any(part.bias is not None for part in parts):
        missing = [part.weight.new_zeros(part.out_features) for part in parts]
        biases = zip(parts, missing, strict=True)
        bias = torch.cat([none if part.bias is None else part.bias for part, none in biases])
    return make(torch.cat([part.weight.detach() for part in parts]), bias)


def _norm(module: Any) -> Norm:
    shifted = type(module).__name__.startswith("Gemma")
    return Norm(
        weight=module.weight.detach().contiguous(),
        eps=module.eps if shifted else module.variance_epsilon,
        shifted=shifted,
    )


def _is_known(module: Any, dtype: torch.dtype) -> bool:
    """Whether it is a decoder layer of a known kind, without parts that ``FusedLayer`` lacks."""
    name = type(module).__name__
    if name not in {f"{kind}DecoderLayer" for kind in KNOWN_LAYERS}:
        return False
    attention, mlp = module.self_attn, module.mlp
    quantized = [linear for linear in _linears(module) if not is_plain_linear(linear)]
    of_quantized = {id(parameter) for linear in quantized for parameter in linear.parameters()}
    return (
        isinstance(mlp.act_fn, nn.SiLU | SiLUActivation | GELUTanh)
        and all(p.dtype == dtype for p in module.parameters() if id(p) not in of_quantized)
        and attention.head_dim % 2 == 0
        and attention.k_proj.out_features == attention.v_proj.out_features
    )


def _is_plain(layer: Any) -> bool:
    return all(map(is_plain_linear, _linears(layer)))


def _linears(layer: Any) -> list[nn.Module]:
    attention, mlp = layer.self_attn, layer.mlp
    heads = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
    return [*heads, mlp.gate_proj, mlp.up_proj, mlp.down_proj]
