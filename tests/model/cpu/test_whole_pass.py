"""The forward pass of a fused model against transformers' own code around the same layers."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from app.core.step import StepInterrupted
from app.model.cpu.layers import WholePass
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays
from tests.model.cpu.test_layers import FITS, fused_forward, in_random_batches, saved
from tests.model.tiny import VOCAB, mean_error, run_in_random_batches, varied_model


def fused_model(folder: Path, kind: str) -> tuple[Any, RaggedForward, int]:
    model = varied_model(saved(folder, kind))
    forward, groups, _ = fused_forward(model)
    return model, forward, groups


@FITS
@pytest.mark.parametrize(
    "kind",
    ["llama", "qwen3", "llama, tied embeddings", "qwen2 with a window in some layers"],
)
@torch.inference_mode()
def test_logits_are_those_of_transformers_code_around_the_same_layers(
    kind: str, tmp_path: Path
) -> None:
    texts = [[random.Random(n).randrange(VOCAB) for _ in range(n)] for n in (41, 3, 60, 1)]
    found = []
    for own in (True, False):
        model, forward, groups = fused_model(tmp_path, kind)
        assert isinstance(model.forward, WholePass)
        if not own:
            model.forward = type(model).forward.__get__(model)
        dice = random.Random(kind)
        found.append(in_random_batches(forward, groups, texts, dice))
    assert mean_error(*found) < 0.004  # the last norm rounds to bfloat16 at other points


@FITS
@torch.inference_mode()
def test_rotations_of_all_positions_are_the_models_own_bits(tmp_path: Path) -> None:
    model, _, _ = fused_model(tmp_path, "llama")
    own, hidden = model.forward, torch.zeros(1, 3, 72, dtype=torch.bfloat16)
    for positions in ([0, 5, 2], [511, 512, 3], [1, 1, 32767], [40_000, 2, 100_000]):
        asked = torch.tensor([positions])
        cos, sin = model.model.rotary_emb(hidden, asked)
        found = own._rotations(hidden, asked)
        assert torch.equal(found[0], cos[0])
        assert torch.equal(found[1], sin[0])


@FITS
def test_a_model_of_another_kind_keeps_its_own_pass(tmp_path: Path) -> None:
    model, _, _ = fused_model(tmp_path, "gemma2")
    assert not isinstance(model.forward, WholePass)


class InterruptedSteps:
    """Interrupts most steps before a random layer, then computes them again."""

    def __init__(self, forward: RaggedForward, layers: int, dice: random.Random) -> None:
        self._forward, self._layers, self._dice = forward, layers, dice
        self.times = 0

    def run(self, step: StepArrays) -> Tensor:
        left = self._dice.randint(0, self._layers)

        def asked() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        self._forward.interrupt_when(asked)
        with contextlib.suppress(StepInterrupted):
            logits = self._forward.run(step)
            assert left == 0, "the interrupt is checked before each layer"
            return logits
        self.times += 1
        self._forward.interrupt_when(None)
        return self._forward.run(step)


@FITS
@pytest.mark.parametrize("kind", ["llama", "qwen2 with a window in some layers", "gemma2"])
@torch.inference_mode()
def test_a_step_that_was_given_up_is_computed_again_to_the_same_bits(
    kind: str, tmp_path: Path
) -> None:
    """In the whole pass, in fused layers (two cache groups) and in transformers' own layers."""
    texts = [[random.Random(n).randrange(VOCAB) for _ in range(n)] for n in (41, 3, 60, 1)]
    found = []
    for given_up in (True, False):
        model, forward, groups = fused_model(tmp_path, kind)
        layers, dice = len(model.model.layers), random.Random(kind)
        runs: Any = InterruptedSteps(forward, layers, dice) if given_up else forward
        found.append(
            run_in_random_batches(
                runs, groups, texts, random.Random(kind), blocks=100, lengths=(1, 2, 5, 40)
            )
        )
        assert not given_up or runs.times > 3
    for again, at_once in zip(*found, strict=True):
        assert torch.equal(again, at_once)
