"""Starts a Llama as an induction circuit, so that it can copy before it has learned anything.

Extraction is copying, and copying is the last skill that a small transformer learns. It takes two
heads: one attends to the token before; one in a later layer attends to the position whose token
before is the current token, and copies its content (Olsson et al. 2022, "In-context learning and
induction heads"). Training is free to change all of these weights. Trockman and Kolter 2023,
"Mimetic initialization of self-attention layers", found that it helps to start from weights that
resemble trained ones.

How the hidden dimensions are shared at the start:

    0              64             128            192
    | token, first half | token, second half | token before, first half |
      dimension 0 is the same for every token: heads that attend by position alone read it
"""

from typing import Any, Final

import torch
from transformers import LlamaForCausalLM

_HEAD: Final = 64
"""Dimensions of a head; a token's own part of the embedding is two halves of this many."""
_SLOW_PAIRS: Final = 18
"""RoPE's slowest pairs of a head: they compare content at any distance within a prompt."""
_FAST_PAIRS: Final = 6
"""RoPE's fastest pairs of a head: they tell the token before from the others."""
_SHARED_VALUE: Final = 0.06
"""Value of dimension 0. The embeddings' own values have a standard deviation of 0.02."""


@torch.no_grad()
def start_as_induction(model: LlamaForCausalLM) -> None:
    """Writes the circuit into layers 0 and 1 of a model of 192 dimensions and heads of 64."""
    embedding = model.model.embed_tokens.weight
    assert embedding.shape[1] == 3 * _HEAD
    embedding[:, 2 * _HEAD :] = 0
    embedding[:, 0] = _SHARED_VALUE
    layers: Any = model.model.layers
    for layer in layers:  # nothing but the circuit has an effect at the start
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    _start_previous_token_head(layers[0].self_attn, model.config)
    _start_induction_heads(layers[1].self_attn)


def _start_previous_token_head(attention: Any, config: Any) -> None:
    """Head 0: attends to the token before, writes the first half of it into the last third."""
    theta = config.rope_parameters["rope_theta"]
    query, key = attention.q_proj.weight, attention.k_proj.weight
    query[:_HEAD] = 0
    key[:_HEAD] = 0
    for pair in range(_FAST_PAIRS):
        angle = torch.tensor(-(theta ** (-2 * pair / _HEAD)))
        key[pair, 0] = 3.0
        query[pair, 0] = 3.0 * torch.cos(angle)
        query[pair + _HEAD // 2, 0] = 3.0 * torch.sin(angle)
    # Head 0 copies the first half of a token, without the dimension that all of them share.
    identity = torch.eye(_HEAD)
    identity[0, 0] = 0
    attention.v_proj.weight[:_HEAD] = 0
    attention.v_proj.weight[:_HEAD, :_HEAD] = identity
    attention.o_proj.weight[2 * _HEAD :, :_HEAD] = 0.02 * torch.eye(_HEAD)


def _start_induction_heads(attention: Any) -> None:
    """Heads 0 and 2: attend to positions whose token before is the current one; copy these."""
    shared = attention.num_key_value_groups
    pairs = torch.arange(_HEAD // 2 - _SLOW_PAIRS, _HEAD // 2)
    slow = torch.cat([pairs, pairs + _HEAD // 2])
    for group in range(2):
        rows = group * _HEAD
        head = group * shared * _HEAD
        content = torch.arange(_HEAD)[-len(slow) :] if group else torch.arange(1, 1 + len(slow))
        query, key = attention.q_proj.weight, attention.k_proj.weight
        query[head : head + _HEAD] = 0
        key[rows : rows + _HEAD] = 0
        query[head + slow, content] = 1.6
        key[rows + slow, content + 2 * _HEAD] = 1.6
        values, out = attention.v_proj.weight, attention.o_proj.weight
        values[rows : rows + _HEAD] = 0
        values[rows : rows + _HEAD, rows : rows + _HEAD] = torch.eye(_HEAD)
        out[rows : rows + _HEAD, head : head + _HEAD] = 0.06 * torch.eye(_HEAD)
