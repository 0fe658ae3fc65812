"""The choice of device and number type, on fake hardware."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from app.core.errors import UnsupportedModel
from app.model.config import DTypeName
from app.model.device import choose_device, choose_dtype, describe
from tests.model.tiny import load_model, runner_config, save_config

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def hardware(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A fake GPU; ``has`` sets its compute capability."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Made-Up 1")
    return monkeypatch


def has(hardware: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    hardware.setattr(torch.cuda, "get_device_capability", lambda device: capability)


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [
        ((10, 0), torch.bfloat16),
        ((9, 0), torch.bfloat16),
        ((8, 9), torch.bfloat16),
        ((8, 0), torch.bfloat16),
        ((7, 5), torch.float16),
        ((7, 0), torch.float16),
        ((6, 1), torch.float32),
    ],
)
def test_auto_is_the_fastest_type_that_the_gpu_has(
    hardware: pytest.MonkeyPatch, capability: tuple[int, int], dtype: torch.dtype
) -> None:
    has(hardware, capability)
    assert choose_device("auto") == choose_device("cuda") == GPU
    assert choose_dtype("auto", GPU) == dtype


@pytest.mark.parametrize(
    ("name", "dtype"), [("float32", torch.float32), ("float16", torch.float16)]
)
def test_a_type_that_is_asked_for_is_taken(
    hardware: pytest.MonkeyPatch, name: DTypeName, dtype: torch.dtype
) -> None:
    has(hardware, (7, 5))
    assert choose_dtype(name, GPU) == choose_dtype(name, CPU) == dtype


def test_bfloat16_is_refused_where_it_is_not_in_hardware(hardware: pytest.MonkeyPatch) -> None:
    has(hardware, (7, 5))
    with pytest.raises(UnsupportedModel, match=r"Made-Up 1 has no hardw.*7\.5.*float16, float32"):
        choose_dtype("bfloat16", GPU)
    has(hardware, (8, 0))
    assert choose_dtype("bfloat16", GPU) == torch.bfloat16


def test_the_cpu_is_taken_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("cpu") == choose_device("auto") == CPU
    assert choose_dtype("auto", CPU) in (torch.bfloat16, torch.float32)
    with pytest.raises(UnsupportedModel, match="CUDA"):
        choose_device("cuda")


def test_a_warning_says_that_other_gpus_are_idle(
    hardware: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has(hardware, (9, 0))
    describe(CPU)
    describe(GPU)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    hardware.setattr(torch.cuda, "device_count", lambda: 4)
    describe(GPU)
    (said,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert said.startswith("4 GPUs are visible and only number 0 is used")
    assert "CUDA_VISIBLE_DEVICES" in said


def test_that_kernels_may_not_compile_for_an_old_gpu_is_said(
    hardware: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has(hardware, (7, 5))
    describe(GPU)
    assert "older than compute capability 8.0" in caplog.text


@pytest.mark.parametrize(
    ("made_in", "run_in", "said"),
    [
        ("bfloat16", torch.float16, True),
        ("bfloat16", torch.float32, False),
        ("float16", torch.float16, False),
    ],
)
def test_that_a_model_of_bfloat16_may_overflow_in_float16_is_said(
    made_in: str,
    run_in: torch.dtype,
    said: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = save_config(tmp_path, "llama", dtype=made_in)
    load_model(runner_config(folder), CPU, run_in)
    assert ("largest number is 65504" in caplog.text) == said
