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
from tests.model.tiny import VOCAB, run_in_random_batches, varied_model


@pytest.mark.parametrize("kind", ["llama with biases", "qwen3", "gemma3"])
def test_fused_layers_of_two_ranks_give_the_logits_of_transformers(
    kind: str, tmp_path: Path
) -> None:
    folder = saved(tmp_path, kind)
    dice = random.Random(kind)
    texts = [[dice.randrange(VOCAB) for _ in range(n)] for n in (9, 3)]
    plain = varied_model(folder, torch.float32)
    plain.set_attn_implementation("eager")
    with torch.inference_mode():
        expected = [plain(torch.tensor([text])).logits[0] for text in texts]

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
        for rows, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(rows, wanted, atol=2e-4, rtol=1e-3)
