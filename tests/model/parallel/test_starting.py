"""Models that processes cannot share are refused, and no process is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.core.errors import UnsupportedModel
from app.model.composition import load_runner
from tests.model.parallel.processes import ranks_alive
from tests.model.tiny import runner_config, save_config


def test_what_a_rank_cannot_load_is_said_once_and_ends_all(tmp_path: Path) -> None:
    folder = save_config(tmp_path, "llama")
    config = runner_config(folder, tensor_parallel=2, random_weights=False)  # no weights
    with pytest.raises(UnsupportedModel, match="cannot load"):
        load_runner(config)
    assert not ranks_alive()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tensor_parallel": 3}, "num_attention_heads is 4"),
        ({"tensor_parallel": 2, "batch_invariant": True}, "batch_invariant is not supported"),
        ({"tensor_parallel": 2, "quantize": "int8"}, "quantised weights"),
    ],
)
def test_what_cannot_be_shared_is_refused_before_anything_is_started(
    changes: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr("app.model.composition.RankProcesses", started.append)
    with pytest.raises(UnsupportedModel, match=said):
        load_runner(runner_config(save_config(tmp_path, "llama"), **changes))
    assert started == []
