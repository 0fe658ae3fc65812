"""Starts a Llama as an induction circuit, so that it can copy before it has learned anything.

Copying is what extraction is made of, and what a small transformer finds last: first a head must
look at the token before, then a head of a later layer must look for the place whose token before
is the current one, and hand on what stands there (Olsson et al. 2022, "In-context learning and
induction heads"). Training goes on from these weights and is free to change all of them; to begin
from weights that resemble trained ones follows Trockman and Kolter 2023, "Mimetic initialization
of self-attention layers".

How the hidden dimensions are shared at the start:

    0              64             128            192
    | token, first half | token, second half | token before, first half |
      dimension 0 is the same for every token: heads that look by place alone read it
"""

from typing import Any, Final

import torch
from transformers import LlamaForCausalLM

_HALF: Final = 64
"""Dimensions of half a token's embedding, and of a head."""
_STEADY: Final = 18
"""Pairs of a head that rotate so slowly that they compare content at any distance in a prompt."""
_PLACE: Final = 6
"""Pairs, the fastest, that tell the token before from the others."""
_LOUD: Final = 0.06
"""Value of dimension 0; the embeddings' own values have a standard deviation of 0.02."""


@torch.no_grad()
def start_as_induction(model: LlamaForCausalLM) -> None:
    """Writes the circuit into layers 0 and 1 of a model of 192 dimensions and heads of 64."""
    embedding = model.model.embed_tokens.weight
    assert embedding.shape[1] == 3 * _HALF
    embedding[:, 2 * _HALF :] = 0
    embedding[:, 0] = _LOUD
    layers: Any = model.model.layers
    for layer in layers:  # what is not part of the circuit starts silent
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    _look_one_back(layers[0].self_attn, model.config)
    _look_for_the_same(layers[1].self_attn)


def _look_one_back(attention: Any, config: Any) -> None:
    """Head 0: attends to the token before, writes the first half of it into the last third."""
    theta = config.rope_parameters["rope_theta"]
    query, key = attention.q_proj.weight, attention.k_proj.weight
    query[:_HALF] = 0
    key[:_HALF] = 0
    for pair in range(_PLACE):
        angle = torch.tensor(-(theta ** (-2 * pair / _HALF)))
        key[pair, 0] = 3.0
        query[pair, 0] = 3.0 * torch.cos(angle)
        query[pair + _HALF // 2, 0] = 3.0 * torch.sin(angle)
    # Head 0 hands on the first half of a token, without the dimension that all of them share.
    identity = torch.eye(_HALF)
    identity[0, 0] = 0
    attention.v_proj.weight[:_HALF] = 0
    attention.v_proj.weight[:_HALF, :_HALF] = identity
    attention.o_proj.weight[2 * _HALF :, :_HALF] = 0.02 * torch.eye(_HALF)


def _look_for_the_same(attention: Any) -> None:
    """Heads 0 and 2: attend to where the token before is the current one, hand on what is there."""
    shared = attention.num_key_value_groups
    pairs = torch.arange(_HALF // 2 - _STEADY, _HALF // 2)
    slow = torch.cat([pairs, pairs + _HALF // 2])
    for group in range(2):
        rows = group * _HALF
        head = group * shared * _HALF
        content = torch.arange(_HALF)[-len(slow) :] if group else torch.arange(1, 1 + len(slow))
        query, key = attention.q_proj.weight, attention.k_proj.weight
        query[head : head + _HALF] = 0
        key[rows : rows + _HALF] = 0
        query[head + slow, content] = 1.6
        key[rows + slow, content + 2 * _HALF] = 1.6
        values, out = attention.v_proj.weight, attention.o_proj.weight
        values[rows : rows + _HALF] = 0
        values[rows : rows + _HALF, rows : rows + _HALF] = torch.eye(_HALF)
        out[rows : rows + _HALF, head : head + _HALF] = 0.06 * torch.eye(_HALF)
