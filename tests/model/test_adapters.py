"""Adapters in random batches against models whose weights they are merged into, in float32."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.step import Draw, LogitsRow, Span, StepPlan
from app.model.composition import load_runner
from app.model.config import AdaptersConfig
from tests.model.peft_files import ATTENTION, MLP, merge, save_adapter
from tests.model.test_ragged_step import EVERY_LOGPROB, expected_logprobs, logprobs
from tests.model.tiny import CONFIGS, VOCAB, PagedSequence, eager_model, runner_config, save_config

MODELS: dict[str, tuple[str, ...]] = {
    "llama": ATTENTION + MLP,
    "qwen3": ATTENTION + MLP,
    "gemma3 with a window": ATTENTION + MLP,
    "gpt2": ("c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"),
    "gpt-oss with sinks and a window": ATTENTION,
    "deepseek with latent attention": ("q_a_proj", "q_b_proj", "o_proj"),
}
"""Modules that are adapted; of a mixture of experts those of attention."""
TEXTS = ((41, 1), (3, 0), (17, 2), (30, 1), (25, 0))
"""Tokens of each sequence, and its slot."""


def served(tmp_path: Path, name: str, **changes: Any) -> tuple[Any, list[Any]]:
    """A runner with two adapters, and for each slot the plain model that is to be compared."""
    model = save_config(tmp_path / "model", name)
    first = save_adapter(tmp_path / "first", eager_model(model), MODELS[name])
    second = save_adapter(
        tmp_path / "second", eager_model(model), MODELS[name][:1], rank=3, seed=1, lora_alpha=6
    )
    named = {"first": str(first), "second": str(second)}
    config = AdaptersConfig(named=named, count=3, rank=4)
    runner = load_runner(runner_config(model, adapters=config, **changes))
    merged = [merge(eager_model(model), folder) for folder in (first, second)]
    return runner, [eager_model(model), *merged]


@pytest.mark.parametrize("name", MODELS)
def test_each_sequence_of_a_batch_runs_with_its_own_adapter(name: str, tmp_path: Path) -> None:
    runner, models = served(tmp_path, name)
    dice = random.Random(name)
    pool = list(range(runner.cache_groups[-1].num_blocks))
    dice.shuffle(pool)
    groups = len(runner.cache_groups)
    sequences = [
        PagedSequence([dice.randrange(VOCAB) for _ in range(length)], pool, groups=groups)
        for length, _ in TEXTS
    ]
    expected = [
        expected_logprobs(models[slot], sequence.tokens)
        for sequence, (_, slot) in zip(sequences, TEXTS, strict=True)
    ]
    compared = 0
    while any(s.computed < len(s.tokens) for s in sequences):
        spans: list[Span] = []
        places: list[tuple[int, int]] = []
        rows: list[LogitsRow] = []
        for index, sequence in enumerate(sequences):
            left = len(sequence.tokens) - sequence.computed
            if left == 0 or dice.random() < 0.3:
                continue
            length = min(left, dice.choice([1, 1, 2, 5, 20]))
            rows += [LogitsRow(len(spans), offset) for offset in range(length)]
            places += [(index, sequence.computed + offset) for offset in range(length)]
            spans.append(sequence.span(length, runner.block_size))
            spans[-1].adapter = TEXTS[index][1]
        if not spans:
            continue
        runner.launch(StepPlan(spans, rows))
        drawn = runner.sample([Draw(EVERY_LOGPROB, 0)] * len(rows)).wait()
        for (index, position), token in zip(places, drawn.tokens, strict=True):
            np.testing.assert_allclose(logprobs(token), expected[index][position], atol=1e-4)
            compared += 1
    assert compared == sum(length for length, _ in TEXTS)
    assert np.abs(expected[0][-1] - expected_logprobs(models[0], sequences[0].tokens)[-1]).max() > 1


def test_names_are_those_of_the_models_that_are_tried() -> None:
    assert set(MODELS) < set(CONFIGS)
