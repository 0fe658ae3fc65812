"""Layers are recognised by their structure, in model types that our code does not name."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from app.model.cpu.layers import FusedLayer, fuse
from app.model.inputs import lay_out
from app.model.kv_storage import allocate
from app.model.loaded import LoadedModel, load
from app.model.self_check import make_case, row_errors, whole_logits
from tests.model.cpu.test_layers import FITS
from tests.model.reach.small import small_config
from tests.model.tiny import runner_config

CPU = torch.device("cpu")
BLOCK = 4


def loaded(kind: str, folder: Path) -> LoadedModel:
    """A model with weights that make every part of a layer matter."""
    small_config(kind).save_pretrained(folder)
    found = load(runner_config(str(folder)), CPU, torch.bfloat16)
    torch.manual_seed(1)
    with torch.no_grad():
        for part in found.model.parameters():
            if part.ndim == 1:
                part.add_(torch.randn_like(part) * 0.2)
            else:
                part.copy_(torch.randn_like(part) * min(1.5 * part.shape[-1] ** -0.5, 0.4))
    return found


def fused_layers(found: LoadedModel) -> list[FusedLayer]:
    fuse(found.model, found.route, found.recurrent)
    return [module for module in found.model.modules() if isinstance(module, FusedLayer)]


@FITS
@pytest.mark.parametrize(
    "kind",
    [
        "arcee",  # an MLP without a gate
        "gemma",  # norms of 1 + their weight, GELU, and scaled embeddings
        "mellum",  # experts, and a rotary embedding for each type of layer
        "mixtral",
        "qwen2_vl",  # a language model within a vision model
        "seed_oss",
    ],
)
@torch.inference_mode()
def test_layers_of_kinds_that_nothing_names_run_in_the_loops(kind: str, tmp_path: Path) -> None:
    found = loaded(kind, tmp_path)
    windows = {shape.window for shape in found.shapes.values()}
    text: Any = found.model.config.get_text_config()
    case = make_case(text.vocab_size, BLOCK, len(windows))
    exact_model: Any = copy.deepcopy(found.model)
    exact = whole_logits(exact_model.float(), case)
    theirs = row_errors(whole_logits(found.model, case), exact)
    assert len(fused_layers(found)) == text.num_hidden_layers
    found.model.set_attn_implementation(found.route.name)
    storage = allocate(found.shapes, num_blocks=case.blocks, block_size=BLOCK, device=CPU)
    forward = found.forward_over(storage, None, case.blocks * BLOCK, runner_config(str(tmp_path)))
    for plan in case.steps:
        logits = forward.run(lay_out(plan, BLOCK))
    assert row_errors(logits, exact).median() < 1.4 * theirs.median() < 0.04


@FITS
@pytest.mark.parametrize(
    "kind",
    [
        "chameleon",  # head norms with a weight for each head
        "gpt_oss",  # sinks
        "granite",  # scaled residuals
        "helium",  # a rotary embedding of adjacent pairs
        "hunyuan_v1_dense",  # norms after the rotary embedding
        "olmo_hybrid",  # rates of the delta rule up to 2
        "smollm3",  # layers without a rotary embedding
    ],
)
def test_layers_with_something_of_their_own_keep_their_code(kind: str, tmp_path: Path) -> None:
    assert fused_layers(loaded(kind, tmp_path)) == []
