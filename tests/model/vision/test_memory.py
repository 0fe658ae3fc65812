"""The cache is sized so that a device has memory for the vision encoder and for features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from app.core.images import PreparedImage
from app.model import composition
from app.model.composition import load_runner
from app.model.cuda.memory import MemoryBudget
from app.model.runner import TorchRunner
from app.model.vision import tower as towers
from tests.model.cuda.test_memory import GIB, FakeDevice
from tests.model.tiny import runner_config
from tests.model.vision.seeing import Seeing, seeing

TOWER = 300_000


class Watched:
    """A fake device whose tower takes ``tower_bytes`` while it runs, and the images it encodes."""

    def __init__(self, patched: pytest.MonkeyPatch, tower_bytes: int) -> None:
        self.device = device = FakeDevice()
        device.total = 1 << 22
        self.seen = seen = list[PreparedImage]()
        budget = MemoryBudget(device, 0.5)
        own = towers.Tower.encode

        def encode(tower: Any, image: PreparedImage, *others: Any) -> Tensor:
            device.take(tower_bytes / GIB)
            device.give_back(tower_bytes / GIB)
            seen.append(image)
            return own(tower, image, *others)

        patched.setattr(composition, "_memory_budget", lambda config, device: budget)
        patched.setattr(towers.Tower, "encode", encode)


def loaded(model: Seeing, **changes: Any) -> TorchRunner:
    return load_runner(
        runner_config(
            model.folder,
            random_weights=False,
            kv_cache_bytes=None,
            max_model_len=900,
            **changes,
        )
    )


def test_the_tower_runs_for_the_largest_image_and_its_memory_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, blocks = seeing(tmp_path, "qwen2_5_vl"), []
    for tower_bytes in (0, TOWER):
        with monkeypatch.context() as patched:
            watched = Watched(patched, tower_bytes)
            runner = loaded(model, image_tokens=9)
            blocks.append(runner.cache_groups[0].num_blocks)
            largest = watched.seen[-1]
            assert max(each.num_tokens for each in watched.seen) == largest.num_tokens
            assert 4 <= largest.num_tokens <= 9
            runner.close()
    token_bytes = 3 * 2 * 2 * 8 * 4  # layers, keys and values, heads, width, float32
    lost = (blocks[0] - blocks[1]) * 4 * token_bytes
    assert abs(lost - TOWER) <= 4 * token_bytes


def test_the_features_of_the_largest_step_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, blocks = seeing(tmp_path, "llava"), []
    for tokens in (100, 600):
        with monkeypatch.context() as patched:
            Watched(patched, 0)
            runner = loaded(model, max_batch_tokens=tokens)
            blocks.append(runner.cache_groups[0].num_blocks)
            runner.close()
    more = 2 * (600 - 100) * 32 * 4  # the features and a copy; tokens, width, float32
    token_bytes = 3 * 2 * 2 * 8 * 4
    assert abs((blocks[0] - blocks[1]) * 4 * token_bytes - more) <= 4 * token_bytes
