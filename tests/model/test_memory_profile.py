"""The largest steps: as large as the limits allow, and valid for a runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from app.core.progress import Progress
from app.core.step import Draw, StepResult
from app.model import composition, optimise
from app.model.cpu.attention import CpuAttention
from app.model.cpu.sampling import CpuSampler
from app.model.cuda.memory import MemoryBudget
from app.model.forward import RaggedForward, StepAttention
from app.model.inputs import lay_out
from app.model.kv_storage import KvStorage, LayerShape, allocate, allocate_groups
from app.model.layers.attention import AttentionRoute, probe_layers
from app.model.layers.recurrent import RecurrentRoute
from app.model.memory_profile import (
    REHEARSAL_BLOCKS,
    Rehearsed,
    StepLimits,
    largest_steps,
    rehearse,
)
from app.model.sampling import Sampler
from tests.model.cuda.test_memory import FakeDevice
from tests.model.tiny import VOCAB, eager_model, save_config, tiny_runner

if TYPE_CHECKING:
    from app.model.cuda.sampling import DeviceDraws

BLOCKS = [8, 3]


@pytest.mark.parametrize(
    ("limits", "lengths", "rows"),
    [
        (StepLimits(100, 4, 17, 1000), [17, 17, 17, 49], 68),
        (StepLimits(100, 10, 17, 1000), [10] * 10, 100),  # each row needs a token
        (StepLimits(100, 4, 17, 20), [17, 17, 17, 20], 68),
        (StepLimits(3, 64, 17, 1000), [1, 1, 1], 3),
        (StepLimits(100, 1, 17, 8), [8], 8),
    ],
)
def test_the_largest_steps_are_as_large_as_the_limits_let_them(
    limits: StepLimits, lengths: list[int], rows: int
) -> None:
    prompt, answers = largest_steps(limits, vocab_size=50, block_size=16, blocks=BLOCKS)
    assert [len(span.tokens) for span in prompt.spans] == [min(limits.tokens, limits.context)]
    assert rows_of(prompt) == 1
    assert [len(span.tokens) for span in answers.spans] == lengths
    assert rows_of(answers) == rows
    for step in (prompt, answers):
        assert len(step.draws) == rows_of(step)
        assert len({id(draw.mask) for draw in step.draws}) == len(step.draws)
        for span in step.spans:
            assert span.start + len(span.tokens) == limits.context
            for table, count in zip(span.block_tables, BLOCKS, strict=True):
                assert max(table) < count
        laid_out = lay_out(step.spans, 16)
        assert laid_out.positions.max() == limits.context - 1
        assert len(set(laid_out.logits_rows.tolist())) == rows_of(step)


@pytest.mark.parametrize(
    ("limits", "rows"),
    [
        (StepLimits(100, 4, 17, 1000, 20, trees=True), 20),
        (StepLimits(100, 4, 17, 1000, 32, trees=False), 25),
        (StepLimits(1000, 4, 17, 1000, 200, trees=True), 64),
    ],
)
def test_a_step_of_scored_rows_is_among_them(limits: StepLimits, rows: int) -> None:
    *_, scored = largest_steps(limits, vocab_size=50, block_size=16, blocks=BLOCKS)
    assert [len(span.tokens) for span in scored.spans] == [rows] * 4
    assert [len(span.tree) for span in scored.spans] == [rows * limits.trees] * 4
    assert len(scored.draws) == rows_of(scored) == 4 * rows
    assert all(draw.scored and draw.mask is None for draw in scored.draws)
    assert max(lay_out(scored.spans, 16).positions) < limits.context


def rows_of(step: Rehearsed) -> int:
    return sum(len(span.rows) for span in step.spans)


def run_them(
    model: PreTrainedModel,
    sampler: Sampler,
    limits: StepLimits,
    attention_over: Callable[[KvStorage, Mapping[int, LayerShape]], StepAttention],
) -> list[int]:
    """Rehearse over a small cache; returns each step's number of draws. Logits must be finite."""
    route = AttentionRoute()
    shapes = probe_layers(model, route, RecurrentRoute(model))
    model.set_attn_implementation(route.name)
    storage = allocate(shapes, num_blocks=REHEARSAL_BLOCKS, block_size=4, device=model.device)
    forward = RaggedForward(model, route, RecurrentRoute(model), attention_over(storage, shapes))
    steps = largest_steps(
        limits,
        vocab_size=VOCAB,
        block_size=4,
        blocks=[group.num_blocks for group in storage.groups],
    )
    drawn: list[int] = []

    class Watched:
        def warm_up(self, dtype: torch.dtype) -> None:
            sampler.warm_up(dtype)

        def sample(self, logits: Tensor, draws: Sequence[Draw | None]) -> StepResult | DeviceDraws:
            assert torch.isfinite(logits.float()).all()
            drawn.append(len(draws))
            return sampler.sample(logits, draws)

    rehearse(forward, Watched(), steps, 4)
    return drawn


def test_a_model_runs_them_over_a_small_cache(tmp_path: Path) -> None:
    model = eager_model(save_config(tmp_path, "mistral with a window"))
    limits = StepLimits(tokens=40, sequences=3, rows_each=5, context=100, scored_each=7, trees=True)
    assert run_them(model, CpuSampler(VOCAB), limits, lambda storage, _: CpuAttention(storage)) == [
        1,
        15,
        21,
    ]


@pytest.mark.needs("triton")
def test_a_gpu_runs_them_over_a_small_cache(tmp_path: Path) -> None:
    from app.model.cuda.attention import TritonAttention
    from app.model.cuda.sampling import DeviceSampler
    from tests.model.interpreter import DEVICE

    folder = save_config(tmp_path, "llama", num_hidden_layers=1)
    model: Any = eager_model(folder)
    limits = StepLimits(tokens=6, sequences=2, rows_each=2, context=20, scored_each=3, trees=True)
    drawn = run_them(
        model.to(DEVICE),
        DeviceSampler(VOCAB, DEVICE),
        limits,
        lambda storage, shapes: TritonAttention(storage, shapes, max_model_len=20),
    )
    assert drawn == [1, 4, 6]


def test_a_runner_rehearses_before_its_cache_is_allocated_and_then_gets_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[tuple[str, int]] = []
    device = FakeDevice()
    device.total = 1 << 20

    def noted(make: Any) -> Any:
        def allocated(*arguments: Any, **options: Any) -> Any:
            storage = make(*arguments, **options)
            happened.append(("allocated", storage.nbytes))
            return storage

        return allocated

    def rehearsed(
        forward: Any, sampler: Any, steps: Any, block_size: int, progress: Progress
    ) -> None:
        rehearse(forward, sampler, steps, block_size, progress)
        happened.append(("rehearsed", len(steps[1].draws)))
        device.take(100_000 / (1 << 30))
        device.give_back(100_000 / (1 << 30))

    budget = MemoryBudget(device, 0.5)
    monkeypatch.setattr(optimise, "allocate", noted(allocate))
    monkeypatch.setattr(composition, "allocate", noted(allocate))
    monkeypatch.setattr(composition, "allocate_groups", noted(allocate_groups))
    monkeypatch.setattr(composition, "rehearse", rehearsed)
    monkeypatch.setattr(composition, "_memory_budget", lambda config, device: budget)
    runner = tiny_runner(tmp_path, "llama", max_batch_tokens=40, max_running=4, max_rows_each=3)
    # The caches of the self-check and of the rehearsal, and the final one.
    assert [name for name, _ in happened] == ["allocated", "allocated", "rehearsed", "allocated"]
    assert happened[2] == ("rehearsed", 12)
    left = (1 << 19) - 100_000 + happened[1][1]  # the fake device counts no allocations
    assert left - 1024 < happened[3][1] <= left
    assert runner.cache_groups[0].num_blocks == happened[3][1] // (256 * 4) - 1
