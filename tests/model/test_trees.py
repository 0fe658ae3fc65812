"""Spans that are trees: each token has the logits of its path computed alone."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from app.core.request import SamplingParams
from app.core.step import Draw, Span
from app.model.runner import TorchRunner
from tests.model.hybrid import hybrid_runner, lively_model
from tests.model.tiny import CONFIGS, VOCAB, PagedSequence, tiny_runner
from tests.model.trees import random_tree, way
from tests.steps import planned

EVERY = [np.array([token], dtype=np.int32) for token in range(VOCAB)]
SCORED = Draw(SamplingParams(), 0, scored=EVERY)


def scores(
    runner: TorchRunner, spans: list[Span], rows: list[tuple[int, int]]
) -> list[list[float]]:
    runner.launch(planned(spans, rows))
    return [[*token.scores] for token in runner.sample([SCORED] * len(rows)).wait().tokens]


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [
        *((name, "float32", 5e-5) for name in CONFIGS),
        ("llama", "bfloat16", 0.1),
        ("gemma3 with a window", "bfloat16", 0.3),
    ],
)
def test_tokens_of_a_tree_have_the_scores_of_their_paths_alone(
    name: str, dtype: str, tolerance: float, tmp_path: Path
) -> None:
    runner = tiny_runner(tmp_path, name, dtype=dtype)
    assert runner.trees
    dice = random.Random(name)
    size, groups = runner.block_size, len(runner.cache_groups)
    pool = list(range(min(group.num_blocks for group in runner.cache_groups)))
    dice.shuffle(pool)
    text = [dice.randrange(VOCAB) for _ in range(21)]
    other = PagedSequence([dice.randrange(VOCAB) for _ in range(30)], pool, groups=groups)
    for length, done in ((1, 0), (5, 21), (17, 9), (64, 2)):
        sequence = PagedSequence(text, pool, groups=groups)
        if done:
            scores(runner, [sequence.span(done, size)], [])
        parents = random_tree(dice, length)
        tokens = [dice.randrange(VOCAB) for _ in parents]
        sequence.tokens[done:] = tokens
        span = sequence.span(length, size)
        span.tree = parents
        company = other.span(5, size)
        rows = [(0, index) for index in range(length)]
        found = scores(runner, [span, company], [*rows, (1, 4)])
        for index in dice.sample(range(length), min(length, 5)):
            own = way(parents, index)
            sequence.tokens[done:] = [tokens[i] for i in own]
            sequence.computed = done
            alone = sequence.span(len(own), size)
            (expected,) = scores(runner, [alone], [(0, len(own) - 1)])
            np.testing.assert_allclose(found[index], expected, atol=tolerance)
        pool.extend(sequence.tables[0])


def test_models_with_states_have_no_trees(tmp_path: Path) -> None:
    runner = hybrid_runner(tmp_path, lively_model("lfm2"))
    assert not runner.trees
