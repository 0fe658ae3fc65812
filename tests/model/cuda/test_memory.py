"""The memory budget of a GPU, and the order of its measurements, on a fake device."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from app.core.errors import UnsupportedModel
from app.model.cuda.memory import MemoryBudget
from app.model.memory_profile import StepLimits, largest_steps
from tests.model.tiny import VOCAB, tiny_runner

GIB = 1 << 30
FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")


class FakeDevice:
    """A device of 100 GiB with torch's allocator: freed memory stays cached until ``settle``."""

    def __init__(self, foreign: int = 0) -> None:
        self.total = 100 * GIB
        self.foreign = foreign * GIB
        self.driver = 0
        """Memory that the driver took for this process."""
        self.used = self.cached = self.peak = 0
        self.log: list[str] = []

    @property
    def reserved(self) -> int:
        return self.used + self.cached

    @property
    def free(self) -> int:
        return self.total - self.foreign - self.driver - self.reserved

    def settle(self) -> None:
        self.cached = 0
        self.peak = self.reserved

    def take(self, gib: float) -> None:
        self.used += int(gib * GIB)
        self.peak = max(self.peak, self.reserved)

    def give_back(self, gib: float) -> None:
        self.used -= int(gib * GIB)
        self.cached += int(gib * GIB)


def sized(
    device: FakeDevice,
    budget: MemoryBudget,
    *,
    weights: float = 16,
    step: float = 3,
    graphs: float = 1,
    driver: float = 0.5,
) -> int:
    """Bytes left for the cache beside a model of these sizes in GiB; logs calls in ``device``."""

    def run_steps() -> None:
        device.log.append("steps")
        device.take(step)
        device.give_back(step)
        device.driver += int(driver * GIB)

    def capture() -> object:
        device.log.append("capture")
        device.take(graphs)
        return Held(lambda: device.give_back(graphs))

    device.take(weights)
    device.take(0.25)  # the small cache
    size = budget.cache_bytes(rehearsal_bytes=GIB // 4, run_steps=run_steps, capture=capture)
    device.log.append("sized")
    return size


class Held:
    """Captured graphs: their memory is freed when nothing refers to them."""

    def __init__(self, gone: Callable[[], None]) -> None:
        self._gone = gone

    def __del__(self) -> None:
        self._gone()


def test_the_cache_gets_what_a_step_and_graphs_leave_of_the_share(
    caplog: pytest.LogCaptureFixture,
) -> None:
    device = FakeDevice()
    with caplog.at_level(logging.INFO):
        size = sized(device, MemoryBudget(device, 0.9))
    assert size == int((90 - 16 - 3 - 1 - 0.5) * GIB)
    assert device.log == ["steps", "capture", "sized"]
    assert device.used == int(16.25 * GIB)  # the graphs over the small cache are freed
    assert "weights 16.00 GiB, the largest step 3.00 GiB, graphs 1.00 GiB" in caplog.text
    assert "cache 69.50 GiB of 100.00 GiB" in caplog.text


def test_what_the_process_takes_in_the_end_is_its_share() -> None:
    device = FakeDevice(foreign=20)
    size = sized(device, MemoryBudget(device, 0.6))
    device.take(-0.25)
    device.take(size / GIB)
    device.take(3 + 1)  # a step beside the graphs
    assert device.total - device.free - device.foreign == 60 * GIB


def test_memory_of_other_processes_does_not_count_but_must_leave_the_share_free() -> None:
    alone, beside = FakeDevice(), FakeDevice(foreign=40)
    assert sized(alone, MemoryBudget(alone, 0.5)) == sized(beside, MemoryBudget(beside, 0.5))
    with pytest.raises(
        UnsupportedModel, match=r"only 60\.00 GiB of GPU memory are free; lower it to at most 0\.6,"
    ):
        MemoryBudget(FakeDevice(foreign=40), 0.9)


def test_a_cache_that_is_asked_for_is_given_where_there_is_room() -> None:
    device = FakeDevice(foreign=40)
    assert sized(device, MemoryBudget(device, 0.9, 30 * GIB)) == 30 * GIB
    crowded = FakeDevice(foreign=40)
    with pytest.raises(UnsupportedModel, match=r"kv_cache_bytes is .*only 39\.50 GiB .* lower it"):
        sized(crowded, MemoryBudget(crowded, 0.9, 40 * GIB))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_runner_on_a_gpu_stays_within_its_share(tmp_path: Path) -> None:
    share, steps = 0.2, {"max_batch_tokens": 256, "max_running": 8, "max_rows_each": 5}
    runner = tiny_runner(
        tmp_path, "llama", device="cuda", kv_cache_bytes=None, cuda_memory_share=share, **steps
    )
    total = torch.cuda.mem_get_info()[1]
    assert share - 0.05 < torch.cuda.memory_reserved() / total <= share + 0.001
    limits = StepLimits(256, 8, 5, runner.max_model_len)
    for step in largest_steps(
        limits,
        vocab_size=VOCAB,
        block_size=runner.block_size,
        blocks=[runner.cache_groups[0].num_blocks],
    ):
        runner.launch(step.spans)
        assert len(runner.sample(step.draws).wait().tokens) == len(step.draws)
    assert torch.cuda.memory_reserved() / total <= share + 0.001  # torch rounds up


def test_too_little_memory_is_refused_with_what_to_change() -> None:
    device = FakeDevice()
    with pytest.raises(
        UnsupportedModel, match=r"weights 87\.00 GiB.*0\.9 .*lower max_batch_tokens"
    ):
        sized(device, MemoryBudget(device, 0.9), weights=87)


def test_a_step_or_graphs_that_do_not_fit_are_refused_with_what_to_lower() -> None:
    def fails() -> None:
        raise FULL

    def works() -> None: ...

    budget = MemoryBudget(FakeDevice(), 0.9)
    with pytest.raises(UnsupportedModel, match=r"lower max_batch_tokens or max_running: .*GiB\.$"):
        budget.cache_bytes(rehearsal_bytes=0, run_steps=fails, capture=works)
    with pytest.raises(UnsupportedModel, match=r"lower cuda_graph_tokens, .*GiB\.$"):
        budget.cache_bytes(rehearsal_bytes=0, run_steps=works, capture=fails)
