"""Tables of the accuracy and the costs of quantized weights, on small models."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from app.model.cpu.kernels import panels
from tools import datasets
from tools.bench.costs import weights
from tools.bench.costs.accuracy import Passage, accuracy_table, compared

RUNS = pytest.mark.skipif(not panels.runs_here(), reason="needs AVX2 on Linux")


def test_perplexity_agreement_and_divergence_are_those_of_the_tokens_that_count() -> None:
    passage = Passage(ids=[7, 1, 0], first=1)
    plain = torch.tensor([[0.25, 0.75], [0.5, 0.5]]).log()
    own = torch.tensor([[0.4, 0.6], [0.25, 0.75]]).log()
    perplexity = math.exp(-(math.log(0.6) + math.log(0.25)) / 2)
    divergence = 0.25 * math.log(0.25 / 0.4) + 0.75 * math.log(0.75 / 0.6)
    divergence = (divergence + 0.5 * math.log(2) + 0.5 * math.log(2 / 3)) / 2
    found = compared([passage], [own], [plain])
    assert found == [f"{perplexity:.4f}", "50.00%", f"{divergence:.4f}", "2"]


@RUNS
def test_the_demo_model_says_nearly_the_same_with_fewer_bits() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in accuracy_table(None, 1).splitlines()[2:]
    ]
    assert [row[0] for row in rows] == ["bfloat16", "int8", "int4"]
    sizes, perplexities = ([float(row[i]) for row in rows] for i in (1, 2))
    assert sizes == sorted(sizes, reverse=True)
    assert max(perplexities) < 1.05 * perplexities[0]


@RUNS
def test_a_step_is_measured_against_the_bytes_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = {
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    monkeypatch.setattr(weights, "SHAPES", {"tiny": tiny})
    table = weights.weights_table(
        tmp_path, ["tiny"], datasets.GPT2, steps=1, threads=1, processor_time=True
    )
    assert [line.split("|")[2].strip() for line in table.splitlines()[4:]] == [
        "bfloat16", "int8", "int4",
    ]  # fmt: skip
    assert capsys.readouterr().out.count("tiny") == 3
