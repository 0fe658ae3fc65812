"""Messages for device failures, wherever in a runner they show."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from app.core.errors import DeviceFailed, UnsupportedModel
from app.core.request import SamplingParams
from app.core.step import Draw, Span, StepResult
from app.model import composition
from app.model.device import failure_of, naming_failures
from app.model.kv_storage import LayerShape, allocate
from app.model.runner import TorchRunner
from tests.model.tiny import tiny_runner
from tests.steps import planned

OUT_OF_MEMORY = torch.OutOfMemoryError(
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 139.80 GiB."
)
ILLEGAL_ACCESS = torch.AcceleratorError(
    "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ..."
)
PLAN = planned([Span([5], 0, [[0]])], [(0, 0)])
DRAWS = [Draw(SamplingParams(), 0)]


class OutOfResources(Exception):
    """Replaces Triton's exception, as Triton is not installed on every system."""


OutOfResources.__module__ = "triton.runtime.errors"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OUT_OF_MEMORY, r"lower max_batch_tokens.*cuda_memory_share.*allocate 20\.00 GiB"),
        (RuntimeError("[x] DefaultCPUAllocator: can't allocate memory: you"), "lower max_batch"),
        (ILLEGAL_ACCESS, "the device failed: CUDA error: an illegal memory access.*encountered$"),
        (RuntimeError("CUDA error: unspecified launch failure"), "the device failed"),
        (RuntimeError("Triton Error [CUDA]: an illegal memory access"), "the device failed"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when ..."), "device failed"),
        (OutOfResources("out of resource: shared memory"), r"kernel.*\(OutOfResources\): out of"),
    ],
)
def test_each_kind_of_failure_is_named(error: Exception, said: str) -> None:
    with pytest.raises(DeviceFailed, match=said) as caught, naming_failures():
        raise error
    assert caught.value.__cause__ is error


def test_no_other_error_is_taken_for_the_devices() -> None:
    for error in (ValueError("CUDA error"), RuntimeError("shape mismatch"), KeyError("x")):
        assert failure_of(error) is None
        with pytest.raises(type(error)), naming_failures():
            raise error


class Part:
    """A forward pass, a sampler and pending draws; the one called ``bad`` fails."""

    def __init__(self, bad: str) -> None:
        self.bad = bad

    def run(self, step: Any) -> Tensor:
        if self.bad == "forward":
            raise ILLEGAL_ACCESS
        return torch.zeros(1, 8)

    def sample(self, logits: Tensor, draws: Any) -> Part:
        if self.bad == "sampler":
            raise ILLEGAL_ACCESS
        return self

    def wait(self) -> StepResult:
        raise ILLEGAL_ACCESS


@pytest.mark.parametrize("bad", ["forward", "sampler", "wait"])
def test_a_runner_names_a_failure_wherever_it_shows(bad: str) -> None:
    part: Any = Part(bad)
    shapes = {0: LayerShape(1, 8, 8, 1, torch.float32)}
    storage = allocate(shapes, num_blocks=2, block_size=4, device=torch.device("cpu"))
    description: Any = SimpleNamespace(max_model_len=8)
    runner = TorchRunner(
        forward=part,
        graphs=None,
        sampler=part,
        storage=storage,
        adapters=None,
        compilations=None,
        description=description,
    )

    def step() -> None:
        runner.launch(PLAN)
        runner.sample(DRAWS).wait()

    with pytest.raises(DeviceFailed, match="illegal memory access"):
        step()


def test_a_model_is_refused_if_the_device_fails_during_its_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(*arguments: Any) -> None:
        raise OutOfResources("out of resource: shared memory, Required: 197632")

    monkeypatch.setattr(composition, "prepare", prepare)
    with pytest.raises(UnsupportedModel, match=r"served here: a kernel .* 197632"):
        tiny_runner(tmp_path, "llama")
