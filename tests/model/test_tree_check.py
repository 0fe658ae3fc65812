"""The check whether a model computes trees correctly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from app.model.cpu.attention import CpuAttention
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays
from app.model.kv_storage import allocate
from app.model.layers.attention import AttentionRoute, probe_layers
from app.model.layers.recurrent import RecurrentRoute
from app.model.self_check import check_ragged_step, follows_trees, make_case, whole_logits
from tests.model.tiny import VOCAB, eager_model, save_config


class TakesTreesForText(CpuAttention):
    def begin(self, step: StepArrays) -> None:
        super().begin(replace(step, ancestors=None))


class CountsByItself(RaggedForward):
    """Gives the tokens of a tree consecutive positions, as in plain text."""

    def run(self, step: StepArrays) -> torch.Tensor:
        positions = step.positions.copy()
        for span in step.spans:
            positions[span.row : span.row + span.length] = range(span.start, span.end)
        return super().run(replace(step, positions=positions))


@pytest.mark.parametrize(
    ("attention", "forward", "follows"),
    [
        (CpuAttention, RaggedForward, True),
        (TakesTreesForText, RaggedForward, False),
        (CpuAttention, CountsByItself, False),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_model_that_does_not_follow_a_tree_is_found_out(
    attention: type[CpuAttention],
    forward: type[RaggedForward],
    follows: bool,
    dtype: torch.dtype,
    tmp_path: Path,
) -> None:
    model = eager_model(save_config(tmp_path, "llama"))
    model.to(dtype)  # type: ignore[arg-type]
    route = AttentionRoute()
    shapes = probe_layers(model, route, RecurrentRoute(model))
    case = make_case(VOCAB, 4)
    expected = whole_logits(model, case)
    model.set_attn_implementation(route.name)
    storage = allocate(shapes, num_blocks=case.blocks, block_size=4, device=torch.device("cpu"))
    tried = forward(model, route, RecurrentRoute(model), attention(storage))
    check_ragged_step(model, tried, case, 4, expected)
    assert follows_trees(tried, case, 4, expected) is follows
