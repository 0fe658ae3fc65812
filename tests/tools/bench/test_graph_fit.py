"""The share of the real engine's steps that fit a CUDA graph; needs no GPU."""

from __future__ import annotations

import pytest

from app.model.config import ModelConfig
from tools.bench.graph_fit import Bench, Workload, row


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("tokenizer"), schemas=8)


@pytest.mark.parametrize("batch", [8, 32, 64])
@pytest.mark.parametrize("workload", ["character", "maskbench"])
def test_nearly_all_constrained_steps_fit_a_graph(
    bench: Bench, workload: Workload, batch: int
) -> None:
    most = ModelConfig("").max_graph_tokens
    tokens = 300 if workload == "character" else 50
    fit = bench.count(workload, batch, max_graph_tokens=most, answers=batch, answer_tokens=tokens)
    assert fit.steps > 20
    assert fit.share >= 0.95, row(workload, batch, fit)


def test_free_answers_of_256_sequences_fit_a_graph_step_by_step(bench: Bench) -> None:
    fit = bench.count(
        "character", 256, max_graph_tokens=512, answers=256, answer_tokens=4, constrained=False
    )
    assert fit.steps == 4 + 1
    assert fit.share == 0.8, "the prompts alone are too long"
