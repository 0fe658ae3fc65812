"""Recurrent layers whose forward calls no scan by name, expressed as calls of ``LayerScan``.

While a step runs they call the ``RecurrentRoute``; at other times they are unchanged. A past input
is a convolution with one tap, and a state that decays by channel is Mamba's with one number for
each. T tokens, C channels, H heads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers import PreTrainedModel

from app.model.layers.architecture import layers_of
from app.model.layers.model_call import put_in_steps
from app.model.layers.recurrent import Mamba1, Mamba2, RecurrentRoute

_BESIDE = -1
"""Layer number for states beside a mixer's own."""
_LEAST_STEP = 1e-7
"""Minimum step of a decay: quotients by it are finite, and ``exp(-1e-7)`` is 1 up to rounding."""
_MOST_STEP = 87.0
"""Maximum step of a decay: almost nothing of a float32 state is left after it."""
_LARGEST_KEY = 70.0
"""Maximum exponent: beyond it sums could overflow float32."""


def route_own_recurrence(model: PreTrainedModel, route: RecurrentRoute) -> None:
    """Route the recurrences known here through ``route``."""
    for layer, part in enumerate(layers_of(model)):
        for module in list(part.modules()):
            replace = _KINDS.get(type(module).__name__)
            if replace is not None:
                replace(module, layer, route)


def _before(x: Tensor, route: RecurrentRoute) -> Tensor:
    """The row before each row of x [T, C]; zeros before the first of a sequence."""
    taps = torch.cat([x.new_ones(x.shape[1], 1), x.new_zeros(x.shape[1], 1)], dim=1)
    return route.convolve(_BESIDE, x, taps, None, None)


def _lightning_attention(module: Any, layer: int, route: RecurrentRoute) -> None:
    """MiniMax's: keys and values add up in a state that decays by head, which queries read.

    That is Mamba 2 with steps of 1. Source: MiniMax 2025, MiniMax-01.
    """

    @put_in_steps(module, "forward", route)
    def forward(hidden_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        heads = module.num_attention_heads
        mixed = module.act_fn(module.qkv_proj(hidden_states))[0].unflatten(-1, (heads, -1))
        query, key, value = mixed.split(module.head_dim, dim=-1)
        decay = -module.slope_rate.flatten().float()
        steps = torch.ones(value.shape[:2], device=hidden_states.device)
        scans, place = route.scan(layer)
        out = scans.mamba2(place, Mamba2(value, steps, decay, key, query, None))
        out = module.norm(out.to(hidden_states.dtype).flatten(1)[None])
        return module.out_proj(module.output_gate(hidden_states).sigmoid() * out), None


def _matrix_memory(module: Any, layer: int, route: RecurrentRoute) -> None:
    """mLSTM: Mamba 2 with gates of its own, and an extra value for the normaliser.

    transformers divides its states by the largest gate, which does not change the quotient: gates
    are capped, so nothing overflows float32 here. The 1e-6 that it adds to the divisor is within
    rounding, and evened out by the norm that follows. Source: Beck et al. 2024, xLSTM.
    """
    module.config.max_inference_chunksize = sys.maxsize

    @put_in_steps(module, "forward", route)
    def forward(
        query: Tensor, key: Tensor, value: Tensor, igate: Tensor, fgate: Tensor, **others: Any
    ) -> Any:
        queries, keys, values = [part[0].transpose(0, 1).float() for part in (query, key, value)]
        steps = -F.logsigmoid(fgate[0].t().float()).clamp(-_MOST_STEP, -_LEAST_STEP)
        counted = torch.cat([values, torch.ones_like(values[..., :1])], dim=-1)
        taken = igate[0].t().float().clamp(max=_LARGEST_KEY).exp()
        written = counted * (taken / steps)[..., None]
        decay = -steps.new_ones(steps.shape[1])
        scans, place = route.scan(layer)
        scaled = queries * queries.shape[-1] ** -0.5
        read = scans.mamba2(place, Mamba2(written, steps, decay, keys, scaled, None))
        found = read[..., :-1] / read[..., -1:].abs().clamp_min(1.0)
        return found.to(query.dtype).transpose(0, 1)[None], None


def _called_convolution(module: Any, layer: int, route: RecurrentRoute) -> None:
    """A mixer whose causal convolution is called as a module, on inputs [1, C, T]."""
    convolution = module.conv_1d

    @put_in_steps(convolution, "forward", route)
    def forward(x: Tensor) -> Tensor:
        weight = convolution.weight[:, 0]
        return route.convolve(layer, x[0].t(), weight, convolution.bias, None).t()[None]


def _gated_linear_recurrence(module: Any, layer: int, route: RecurrentRoute) -> None:
    """RG-LRU: each channel decays by a gate and takes an input up.

    A sequence's first token, where the gate is closed, begins with an empty state anyway.
    Source: De et al. 2024, Griffin.
    """

    @put_in_steps(module, "_rnn_scan", route)
    def scan(hidden_states: Tensor, recurrent_gate: Tensor, **others: Any) -> tuple[Tensor, Any]:
        x, gate = hidden_states[0].float(), recurrent_gate[0].float()
        steps = (-gate.log()).clamp(_LEAST_STEP, _MOST_STEP)
        found = _decaying_sums(x / steps, steps, steps.new_ones(x.shape[1]), layer, route)
        return found.to(hidden_states.dtype)[None], None


def _decaying_sums(
    x: Tensor, steps: Tensor, rates: Tensor, layer: int, route: RecurrentRoute
) -> Tensor:
    """h = exp(-step * rate) * h + step * x for each of C channels alone: x, steps [T, C], rates [C]
    -> h [T, C], float32."""
    one = x.new_ones(x.shape[0], 1)
    scans, place = route.scan(layer)
    return scans.mamba1(place, Mamba1(x, steps, -rates.float()[:, None], one, one))


def _token_shift(module: Any, _: int, route: RecurrentRoute) -> None:
    """RWKV's layers look one token back, by padding that drops the last."""

    @put_in_steps(module.time_shift, "forward", route)
    def forward(hidden: Tensor) -> Tensor:
        return _before(hidden[0], route)[None]


def _rwkv(module: Any, layer: int, route: RecurrentRoute) -> None:
    """Mean of values weighted by ``exp(key)``, decaying by channel, with a bonus for the token's
    own value. Source: Peng et al. 2023, RWKV."""
    _token_shift(module, layer, route)

    @put_in_steps(module, "forward", route)
    def forward(hidden: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        receptance, key, value, _ = module.extract_key_value(hidden)
        keys = key[0].float().clamp(-_LARGEST_KEY, _LARGEST_KEY)
        weight, values = keys.exp(), value[0].float()
        inputs = torch.cat([weight * values, weight], dim=-1)
        rates = module.time_decay.float().exp().repeat(2)
        sums = _decaying_sums(inputs, torch.ones_like(inputs), rates, layer, route)
        above, below = _before(sums, route).chunk(2, dim=-1)
        bonus = (keys + module.time_first.float()).clamp(-_LARGEST_KEY, _LARGEST_KEY).exp()
        read = (above + bonus * values) / (below + bonus)
        return module.output(receptance * read.to(hidden.dtype)), None


def _convolved_attention(module: Any, layer: int, route: RecurrentRoute) -> None:
    """ZAYA's queries and keys are convolved, by channel and then by head; half of each value is the
    token's before. Source: Zyphra 2025, Compressed Convolutional Attention."""

    def before(x: Tensor, nothing: Tensor | None) -> Tensor:
        # Before a sequence are the layer's outputs for zeros: its bias.
        return _before(x, route) if nothing is None else _before(x - nothing, route) + nothing

    @put_in_steps(module, "forward", route)
    def forward(hidden: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
        by_channel, by_head = module.conv_qk_depthwise, module.conv_qk_grouped
        groups, size = module.num_key_value_groups, module.head_dim
        query, key = module.q_proj(hidden[0]), module.k_proj(hidden[0])
        both = torch.cat([query, key], dim=-1)
        convolved = route.convolve(layer, both, by_channel.weight[:, 0], by_channel.bias, None)
        inputs = [convolved]
        for _ in range(module.grouped_kernel_size - 1):
            inputs.insert(0, before(inputs[0], by_channel.bias))
        mixed = F.conv1d(
            torch.stack(inputs, dim=-1), by_head.weight, by_head.bias, groups=by_head.groups
        )[..., 0]

        heads = _heads(query, size), _heads(key, size)
        mean = (_heads(heads[0], groups, dim=1) + heads[1][:, :, None]) * 0.5
        query = _heads(mixed[:, : query.shape[1]], size) + mean.flatten(1, 2)
        key = _heads(mixed[:, -key.shape[1] :], size) + mean.mean(dim=2)
        nothing = module.v_proj_delayed(torch.zeros_like(hidden[0, :1]))
        delayed = before(module.v_proj_delayed(hidden[0]), nothing)
        value = torch.cat([module.v_proj_current(hidden[0]), delayed], dim=-1)
        return query[None], key[None], _heads(value, size)[None]


def _weighed_inputs(module: Any, _: int, route: RecurrentRoute) -> None:
    """Inkling's convolution, whose weights are the sum of a channel's and a token's own."""

    @put_in_steps(module, "forward", route)
    def forward(hidden: Tensor, dynamic_input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        heads, width = module.num_heads, module.conv_kernel_size
        by_token = module.weight_proj(dynamic_input[0]).float().view(-1, heads, 1, width)
        by_channel = module.static_weight.float().t().reshape(heads, -1, width)
        inputs = [hidden[0].float()]
        for _ in range(width - 1):
            inputs.append(_before(inputs[-1], route))
        windows = torch.stack(inputs, dim=-1).view(len(by_token), heads, -1, width)
        sums = (windows * (by_channel + by_token)).sum(-1).flatten(1)
        out: Tensor = (sums + inputs[0]) / (2 * width + 1) ** 0.5
        return out.to(hidden.dtype)[None]


def _token_groups(module: Any, _: int, route: RecurrentRoute) -> None:
    """Qwen 4's embeddings of n-grams, which do not cross the end of a text.

    Tokens are stored as their difference from the EOS token, so the zeros before a sequence stand
    for EOS.
    """
    end = module.eos_token_id
    shifted: list[Tensor] = []

    @put_in_steps(module, "_shift_right_ignore_eos", route)
    def shift(token_ids: Tensor, shift: int) -> Tensor:
        if shift == 0:
            shifted[:] = [(token_ids[0, module.context_len :, None] - end).float()]
            return token_ids
        found = _before(shifted[-1], route)
        if shift > 1:
            found = torch.where(shifted[1] == 0, 0.0, found)
        shifted.append(found)
        back = found[:, 0].long() + end
        return torch.cat([token_ids[:, : module.context_len], back[None]], dim=1)


def _spread_convolution(module: Any, _: int, route: RecurrentRoute) -> None:
    """Qwen 4's dilated convolution, as one with more taps, most of them 0."""
    convolution = module.conv1d
    [apart] = convolution.dilation
    weight = convolution.weight[:, 0]
    taps = weight.new_zeros(len(weight), (weight.shape[1] - 1) * apart + 1)
    taps[:, ::apart] = weight

    @put_in_steps(module, "_short_conv", route)
    def convolve(hidden: Tensor, *args: Any) -> Tensor:
        return route.convolve(_BESIDE, hidden[0], taps, None, "silu")[None]


def _heads(x: Tensor, size: int, dim: int = -1) -> Tensor:
    """One dimension as two, the second of ``size``."""
    dim %= x.ndim
    return x.reshape(*x.shape[:dim], -1, size, *x.shape[dim + 1 :])


_KINDS: Mapping[str, Callable[[Any, int, RecurrentRoute], None]] = {
    "Inkling2DynamicShortConvolution": _weighed_inputs,
    "Inkling2LoopDynamicShortConvolution": _weighed_inputs,
    "MiniMaxLightningAttention": _lightning_attention,
    "Qwen4ExpTextNGramEmbedding": _token_groups,
    "Qwen4ExpTextPLELayer": _spread_convolution,
    "RecurrentGemmaRecurrentBlock": _called_convolution,
    "RecurrentGemmaRglru": _gated_linear_recurrence,
    "RwkvFeedForward": _token_shift,
    "RwkvSelfAttention": _rwkv,
    "xLSTMBackend": _matrix_memory,
    "ZayaCCAProjection": _convolved_attention,
}
