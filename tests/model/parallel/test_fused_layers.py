"""The CUDA path's fused layers on two ranks: partial products are summed before the norms."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from app.model.cuda.layers import FusedLayer
from app.model.parallel.shares import Summed, share
from tests.model.fused_models import SIZES, fused, saved
from tests.model.parallel.threads import ThreadGroup, on_all_ranks
from tests.model.tiny import (
    assert_close,
    eager_logits,
    random_texts,
    run_in_random_batches,
    varied_model,
)


@pytest.mark.parametrize("kind", ["llama with biases", "qwen3", "gemma3"])
def test_fused_layers_of_two_ranks_give_the_logits_of_transformers(
    kind: str, tmp_path: Path
) -> None:
    folder = saved(tmp_path, kind)
    dice = random.Random(kind)
    texts = random_texts(dice, (9, 3))
    expected = eager_logits(varied_model(folder, torch.float32), texts)

    def run(group: ThreadGroup) -> list[Tensor]:
        with torch.inference_mode():
            model, forward, attention = fused(
                folder, torch.float32, change=lambda model: share(cast(Any, model), group)
            )
            layers = [m for m in model.modules() if isinstance(m, FusedLayer)]
            assert len(layers) == SIZES["num_hidden_layers"]
            assert isinstance(layers[0]._out, Summed)
            groups = len(attention.storage.groups)
            return run_in_random_batches(forward, groups, texts, random.Random(1))

    # One at a time: Triton's interpreter patches modules that all threads share.
    for found in on_all_ranks(2, run, one_at_a_time=True):
        assert_close(found, expected)
