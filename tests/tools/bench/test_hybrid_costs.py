"""The table of steps of models with and without recurrent states; only its form is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.hybrid import KINDS
from tools.bench.costs import hybrid


def test_a_step_with_states_is_compared_with_one_of_attention_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = {
        "with states": KINDS["qwen3_5_text"] | {"model_type": "qwen3_5_text"},
        "without": {
            "model_type": "qwen3",
            "vocab_size": 96,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
        },
    }
    monkeypatch.setattr(hybrid, "SHAPES", {"without": tiny["without"], **tiny})
    monkeypatch.setattr(hybrid, "_CACHE_BYTES", 1 << 24)
    monkeypatch.setattr(hybrid, "CONTEXT", 32)
    monkeypatch.setattr(hybrid, "STEPS", {"3 answers": ([1, 1, 4], 32), "a prompt": ([24], 0)})
    lines = hybrid.hybrid_table(tmp_path, 2, 1, processor_time=True).splitlines()
    assert "with states: 0M" in lines[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert cells[0] == ["ms a step", "without", "with states", "to without"]
    assert [row[0] for row in cells[2:]] == ["3 answers", "a prompt"]
    assert all(float(row[3]) > 0 for row in cells[2:])
