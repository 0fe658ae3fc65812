"""Models that compute positions themselves use those of the step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from app.core.step import Span
from app.model.composition import load_runner
from app.model.inputs import lay_out
from app.model.layers.model_call import logits_of
from app.model.self_check import worst_error
from tests.model.reach.small import small_config
from tests.model.tiny import eager_model, runner_config
from tests.steps import planned

PADDING = 0


def saved(folder: Path, kind: str) -> str:
    small_config(kind).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("kind", ["roberta", "xmod"])
def test_positions_before_the_first_token_are_none_of_a_text(kind: str, tmp_path: Path) -> None:
    runner = load_runner(runner_config(saved(tmp_path, kind)))
    assert runner.max_model_len == 128 - (PADDING + 1)


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["roberta", "xlm"])
def test_a_padding_token_in_one_text_changes_nothing_in_another(kind: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, kind)
    runner = load_runner(runner_config(folder))
    texts = [[7, PADDING, PADDING, 9], [11, 12, 13, 14]]
    spans = [Span(text, 0, [[place]]) for place, text in enumerate(texts)]
    rows = [(1, offset) for offset in range(4)]
    found = runner._forward.run(lay_out(planned(spans, rows), 4))
    expected = logits_of(eager_model(folder), torch.tensor([texts[1]]), None, 0)
    assert worst_error(found, expected) < 1e-5
