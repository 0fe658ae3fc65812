"""Fused layers of the CUDA path against transformers' own: on a GPU if there is one, else
interpreted."""

from __future__ import annotations

import random
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from app.core.errors import UnsupportedModel
from app.core.step import Span
from app.model.cuda.layers import FusedLayer, FusedNorm, fuse
from app.model.inputs import lay_out
from app.model.layers.attention import AttentionRoute, probe_layers
from app.model.layers.recurrent import RecurrentRoute
from tests.model.fused_models import KINDS, OTHERS, SIZES, fused, saved
from tests.model.interpreter import DEVICE
from tests.model.tiny import (
    assert_close,
    eager_logits,
    mean_error,
    random_texts,
    run_in_random_batches,
    varied_model,
)
from tests.steps import planned

pytestmark = pytest.mark.usefixtures("as_on_a_gpu")

LENGTHS = (11, 2, 5)
"""Lengths of the texts, in tokens."""


@pytest.mark.parametrize(
    ("kind", "modes"),
    [
        *((kind, {}) for kind in KINDS),
        ("llama with biases", {"batch_invariant": True}),
        ("gemma3", {"batch_invariant": True}),
        ("qwen3", {"device_attention": True}),
    ],
    ids=str,
)
def test_random_batches_give_the_logits_of_transformers(
    kind: str, modes: dict[str, Any], tmp_path: Path
) -> None:
    folder = saved(tmp_path, kind)
    dice = random.Random(kind)
    texts = random_texts(dice, LENGTHS)
    expected = eager_logits(varied_model(folder, torch.float32), texts)
    model, forward, attention = fused(folder, torch.float32, **modes)
    assert sum(isinstance(m, FusedLayer) for m in model.modules()) == SIZES["num_hidden_layers"]
    found = run_in_random_batches(forward, len(attention.storage.groups), texts, dice)
    assert_close(found, expected)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("llama with biases", torch.bfloat16),
        ("qwen3", torch.float16),
        ("qwen3", torch.bfloat16),
        ("gemma3", torch.bfloat16),
    ],
    ids=str,
)
def test_half_precision_differs_from_float32_no_more_than_transformers_does(
    kind: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    folder = saved(tmp_path, kind)
    dice = random.Random(kind)
    texts = random_texts(dice, LENGTHS)
    exact, plain = (
        eager_logits(varied_model(folder, each), texts) for each in (torch.float32, dtype)
    )
    _, forward, attention = fused(folder, dtype)
    found = run_in_random_batches(forward, len(attention.storage.groups), texts, dice)
    assert mean_error(found, exact) < 1.3 * mean_error(plain, exact) < 0.1


@pytest.mark.parametrize(
    ("kind", "layers", "dtype"),
    [("llama", 2, torch.float32), ("gemma3", 1, torch.bfloat16)],
    ids=str,
)
def test_a_token_is_the_same_in_any_chunks_and_any_batch(
    kind: str, layers: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    folder = saved(tmp_path, kind, num_hidden_layers=layers)
    _, forward, attention = fused(folder, dtype, batch_invariant=True, device_attention=True)
    groups = len(attention.storage.groups)
    text = list(range(20, 26))
    others = [Span((token,), 0, ((20 + token,),) * groups) for token in range(33)]
    blocks = ((0, 1),) * groups

    def logits(first: int, last: int, before: int, behind: int) -> Tensor:
        """Logits of ``text[first:last]``, with numbers of other sequences before and after it."""
        own = Span(text[first:last], first, blocks)
        spans = [*others[:before], own, *others[before : before + behind]]
        rows = [(before, offset) for offset in range(last - first)]
        return forward.run(lay_out(planned(spans, rows), 4))

    alone = torch.cat([logits(i, i + 1, 0, 0) for i in range(len(text))])
    for before, behind in ((2, 0), (20, 13)):
        assert torch.equal(logits(0, 6, before, behind), alone)
    halves = [logits(0, 3, 0, 2), logits(3, 6, 3, 4)]
    assert torch.equal(torch.cat(halves), alone)


def four_bits(model: nn.Module) -> None:
    """Replace all linear layers by 4-bit layers of bitsandbytes."""
    quantized: Any = pytest.importorskip("bitsandbytes").nn
    for name, module in [*model.named_modules()]:
        if type(module) is nn.Linear:
            made = quantized.Linear4bit(
                module.in_features,
                module.out_features,
                bias=module.bias is not None,
                compute_dtype=module.weight.dtype,
                quant_type="nf4",
            )
            made.bias = module.bias
            weight = module.weight.detach().clone()
            made.weight = quantized.Params4bit(weight, requires_grad=False, quant_type="nf4").to(
                DEVICE
            )
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, made)


@pytest.mark.parametrize("kind", ["llama with biases", "gemma3"])
def test_quantized_weights_are_multiplied_by_their_own_modules(kind: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, kind)
    dice = random.Random(kind)
    texts = random_texts(dice, LENGTHS)
    plain = varied_model(folder, torch.float32)
    four_bits(plain)
    expected = eager_logits(plain, texts)
    _, forward, attention = fused(folder, torch.float32, change=four_bits)
    found = run_in_random_batches(forward, len(attention.storage.groups), texts, dice)
    assert_close(found, expected)


def test_quantized_weights_have_no_invariant_mode(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="with plain weights in one type"):
        fused(saved(tmp_path, "llama"), torch.float32, change=four_bits, batch_invariant=True)


@pytest.mark.parametrize("kind", OTHERS)
def test_layers_of_another_kind_keep_their_own_code_and_have_no_invariant_mode(
    kind: str, tmp_path: Path
) -> None:
    route, model = AttentionRoute(), varied_model(saved(tmp_path, kind), torch.float32)
    probe_layers(model, route, RecurrentRoute(model))
    with pytest.raises(UnsupportedModel, match=r"needs layers of Llama, Mistral, .* Gemma3"):
        fuse(model, route, batch_invariant=True)
    assert fuse(model, route, batch_invariant=False) == 0
    assert not any(isinstance(module, FusedLayer | FusedNorm) for module in model.modules())


def test_weights_in_two_types_keep_their_own_code(tmp_path: Path) -> None:
    route, model = AttentionRoute(), varied_model(saved(tmp_path, "llama"), torch.float32)
    probe_layers(model, route, RecurrentRoute(model))
    layer: Any = model.get_submodule("model.layers.1")
    layer.mlp.down_proj.bfloat16()
    assert fuse(model, route, batch_invariant=False) == 0


def test_a_layer_is_freed_before_the_next_one_is_joined(tmp_path: Path) -> None:
    folder = saved(tmp_path, "llama", num_hidden_layers=4)
    route, model = AttentionRoute(), varied_model(folder, torch.float32)
    probe_layers(model, route, RecurrentRoute(model))
    layers: Any = model.get_submodule("model.layers")
    whole = [weakref.ref(layer.mlp.up_proj.weight) for layer in layers]
    held: list[int] = []
    joined = torch.cat

    def watched(parts: Any, *args: Any, **kwargs: Any) -> Tensor:
        held.append(sum(weight() is not None for weight in whole))
        return joined(parts, *args, **kwargs)

    with mock.patch("torch.cat", watched):
        fuse(model, route, batch_invariant=False)
    assert held == [4, 4, 3, 3, 2, 2, 1, 1]
    assert not any(weight() for weight in whole)
