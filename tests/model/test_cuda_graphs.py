"""Buckets, padding, and what is checked of captured graphs: all of it that needs no GPU.

In place of graphs stand objects that launch again, interpreted, what a graph would replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from app.core.errors import UnsupportedModel
from app.core.step import LogitsRow, Span, StepPlan
from app.model.attention import AttentionRoute, probe_layers
from app.model.cpu.attention import CpuAttention
from app.model.cuda.attention import TritonAttention
from app.model.cuda.graphs import (
    Bucket,
    Capture,
    CudaSteps,
    GraphCapture,
    Replay,
    choose_bucket,
    make_buckets,
)
from app.model.cuda.tiles import Device
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import KvStorage, LayerShape
from tests.model.test_cuda_attention import BLOCK, make_storage
from tests.model.tiny import eager_model, save_config

SMALL = Device(multiprocessors=1, shared_bytes=99 << 10, capability=8)
MAX_MODEL_LEN = 96
BLOCKS = 40
STEPS = {
    "a decode": [(1, 20)],
    "decodes, a leap and a draft": [(1, 20), (6, 3), (1, 0), (3, 40)],
    "a chunk of a prompt alone": [(13, 9)],
    "more than any graph holds": [(20, 7), (1, 3)],
}
"""Length and start of each span."""


class Launches:
    """In place of a graph: the same launches once more."""

    def __init__(self, launch: Callable[[], None]) -> None:
        self.replay = launch


def step_of(spans: list[tuple[int, int]], *, all_rows: bool = False) -> StepArrays:
    blocks = iter(range(BLOCKS))
    made = [
        Span(range(10 * i, 10 * i + length), start, [[next(blocks) for _ in range(6)]])
        for i, (length, start) in enumerate(spans, start=1)
    ]
    rows = [
        LogitsRow(i, at)
        for i, (length, _) in enumerate(spans)
        for at in range(0 if all_rows else length - 1, length)
    ]
    return lay_out(StepPlan(made, rows), BLOCK)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(tmp_path_factory.mktemp("llama"))


class Model:
    """A tiny Llama, a cache with noise in it, and the ways to run it."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        model = eager_model(save_config(folder, "llama")).to(device)  # type: ignore[arg-type]
        self._model = model
        self._route = AttentionRoute()
        self.shapes = probe_layers(model, self._route)
        torch.manual_seed(0)
        self.storage = make_storage(self.shapes, BLOCKS)

    def expected(self, step: StepArrays) -> Tensor:
        copy = replace(
            self.storage,
            keys={layer: each.cpu().clone() for layer, each in self.storage.keys.items()},
            values={layer: each.cpu().clone() for layer, each in self.storage.values.items()},
        )
        return RaggedForward(self._model, self._route, CpuAttention(copy)).run(step)

    def steps(
        self, make_capture: Callable[[], Capture] = lambda: Launches, *, tokens: int = 16
    ) -> CudaSteps:
        attention = TritonAttention(
            self.storage, self.shapes, max_model_len=MAX_MODEL_LEN, device=SMALL
        )
        return CudaSteps(
            RaggedForward(self._model, self._route, attention),
            attention,
            max_graph_tokens=tokens,
            max_model_len=MAX_MODEL_LEN,
            capture=make_capture,
        )


def test_padding_is_a_quarter_at_most_and_graphs_are_few() -> None:
    buckets = make_buckets(512)
    assert len(buckets) <= 32
    sizes = sorted({bucket.tokens for bucket in buckets})
    assert sizes[0] == 1
    assert sizes[-1] == 512
    for below, size in zip(sizes, sizes[1:], strict=False):
        assert size <= 16 or size <= below * 1.5
        assert size <= 64 or size <= below * 1.25


def test_a_step_of_any_spans_goes_to_the_smallest_bucket_it_fits_in() -> None:
    buckets = make_buckets(160)
    assert choose_bucket(buckets, 1, 1) == Bucket(1, 1)
    assert choose_bucket(buckets, 65, 65) == Bucket(80, 80)
    assert choose_bucket(buckets, 129, 40) == Bucket(160, 40)
    assert choose_bucket(buckets, 129, 41) == Bucket(160, 160)
    assert choose_bucket(buckets, 161, 1) is None


@pytest.mark.parametrize("name", STEPS)
def test_a_padded_step_gives_the_logits_of_the_step(model: Model, name: str) -> None:
    steps = model.steps()
    model.storage.keys[0].normal_()
    steps.prepare()
    for part in (*model.storage.keys.values(), *model.storage.values.values()):
        part.normal_()
    step = step_of(STEPS[name])
    found = steps.find_bucket(step)
    assert (found is None) == (name == "more than any graph holds")
    expected = model.expected(step)
    torch.testing.assert_close(steps.run(step), expected, atol=1e-4, rtol=1e-4)
