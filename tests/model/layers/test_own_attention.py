"""Routing of older models' own attention: variants that ``tests.model.reach`` does not try."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from app.core.errors import UnsupportedModel
from app.core.step import Span
from app.model.composition import load_runner
from app.model.cpu.kernels import panels
from app.model.inputs import lay_out
from app.model.layers.attention import AttentionRoute, probe_layers
from app.model.layers.model_call import logits_of
from app.model.layers.own_attention import route_own_attention
from app.model.layers.recurrent import RecurrentRoute
from app.model.self_check import worst_error
from tests.model.reach.small import small_config
from tests.model.tiny import eager_model, run_in_random_batches, runner_config
from tests.steps import planned

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon, several key heads": (
        "falcon",
        {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 2},
    ),
    "falcon, a key head for each query": (
        "falcon",
        {"multi_query": False, "num_kv_heads": 4, "bias": True},
    ),
    "mpt, clipped, six heads": ("mpt", {"d_model": 48, "n_heads": 6, "clip": 0.5}),
    "bloom, six heads": ("bloom", {"hidden_size": 48, "n_head": 6}),
    "roformer, rotated values": ("roformer", {"rotary_value": True}),
    "openai-gpt": ("openai-gpt", {}),
    "xglm": ("xglm", {}),
    "xlm": ("xlm", {}),
    "trocr, counted positions": ("trocr", {}),
    "big-bird, blocks": ("big_bird", {"attention_type": "block_sparse"}),
    "doge, a bias for each key": ("doge", {"keep_window_size": 64}),
    "kosmos 2.5, positions from padding": ("kosmos-2.5", {}),
    "hrm, layers that run four times": (
        "hrm_text",
        {"prefix_lm": False, "L_cycles": 1, "num_layers_per_stack": 1, "num_hidden_layers": 4},
    ),
    "gpt-neo, a window": ("gpt_neo", {"window_size": 5}),
}


def saved(folder: Path, kind: str, changes: dict[str, Any]) -> str:
    config: Any = small_config(kind)
    values = config.to_dict() | changes
    if "clip" in values:
        values["attn_config"] = values["attn_config"] | {"clip_qkv": values.pop("clip")}
    type(config)(**values).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("name", VARIANTS)
def test_random_batches_give_the_logits_of_the_model_as_it_is(name: str, tmp_path: Path) -> None:
    kind, changes = VARIANTS[name]
    folder = saved(tmp_path, kind, changes)
    runner = load_runner(runner_config(folder))
    model = eager_model(folder)
    dice = random.Random(name)
    texts = [[dice.randrange(3, 90) for _ in range(length)] for length in (40, 9, 23)]
    groups = len(runner.cache_groups)
    found = run_in_random_batches(runner._forward, groups, texts, dice)
    with torch.inference_mode():
        for text, rows in zip(texts, found, strict=True):
            assert worst_error(rows, logits_of(model, torch.tensor([text]), None, 0)) < 1e-5


def test_falcon_keeps_the_keys_of_a_group_once(tmp_path: Path) -> None:
    model = eager_model(saved(tmp_path, *VARIANTS["falcon, several key heads"]))
    route = AttentionRoute()
    route_own_attention(model, route)
    assert [
        shape.kv_heads for shape in probe_layers(model, route, RecurrentRoute(model)).values()
    ] == [2, 2]


def test_layers_have_their_forwards_after_a_probe(tmp_path: Path) -> None:
    model: Any = eager_model(saved(tmp_path, "llama", {}))
    first, second = model.model.layers[0].mlp.down_proj, model.model.layers[1].mlp.down_proj
    first.forward = own = type(first).forward.__get__(first)  # as compressed-tensors does
    sums: list[float] = []
    for layer in (first, second):
        layer.register_forward_hook(lambda _, inputs, result: sums.append(result.abs().sum()))
    probe_layers(model, AttentionRoute(), RecurrentRoute(model))
    assert first.forward is own
    assert "forward" not in vars(second)
    assert sums[1] == 0  # no product
    second(torch.ones(48))
    assert sums[2] > 0


def test_falcon_with_alibi_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path, "falcon", {"alibi": True})
    with pytest.raises(UnsupportedModel, match="Falcon with ALiBi"):
        load_runner(runner_config(folder))


@pytest.mark.skipif(not panels.runs_here(), reason="needs AVX2 on Linux")
def test_layers_that_were_packed_later_are_those_that_run(tmp_path: Path) -> None:
    runner = load_runner(runner_config(saved(tmp_path, "xglm", {}), dtype="bfloat16"))
    assert runner.description.packed_linears > 10
    attention: Any = next(
        each for each in runner._forward._model.modules() if hasattr(each, "q_proj")
    )
    assert type(attention.q_proj) is not torch.nn.Linear
    called: list[object] = []
    attention.q_proj.register_forward_pre_hook(lambda module, _: called.append(module))
    runner._forward.run(lay_out(planned([Span([5, 6], 0, [[0]])], [(0, 1)]), 4))
    assert called == [attention.q_proj]
