"""Products by panels against float32, for shapes that fill panels and shapes that do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch
from torch import nn

from app.core import kernels
from app.core.kernels import PROCESSORS, features_of, has
from app.model.cpu.kernels import panels
from app.model.cpu.layers import PanelLinear
from app.model.cpu.workspace import CpuTeam

pytestmark = pytest.mark.skipif(not panels.runs_here(), reason="needs AVX2 on Linux")


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("inputs", "outputs"), [(64, 64), (2, 1), (30, 200), (768, 96), (4098, 70), (9000, 64)]
)
def test_a_product_is_that_of_float32_within_one_rounding(
    inputs: int, outputs: int, threads: int
) -> None:
    torch.manual_seed(inputs)
    workers = CpuTeam(threads)
    for bias in (False, True):
        linear = nn.Linear(inputs, outputs, bias=bias, dtype=torch.bfloat16)
        own = PanelLinear(linear, workers)
        for rows in (1, 2, 5, 6, 7, 12, 13, 97, 200):
            x = torch.randn(rows, inputs, dtype=torch.bfloat16)
            with torch.inference_mode():
                exact = nn.functional.linear(
                    x.float(), linear.weight.float(), None if not bias else linear.bias.float()
                )
                found = own(x)
            assert found.shape == exact.shape
            torch.testing.assert_close(found.float(), exact, rtol=2**-8, atol=2e-5)


def test_a_row_does_not_depend_on_those_it_is_multiplied_with() -> None:
    torch.manual_seed(0)
    own = PanelLinear(nn.Linear(5000, 130, dtype=torch.bfloat16), CpuTeam(2))
    x = torch.randn(101, 5000, dtype=torch.bfloat16)
    with torch.inference_mode():
        together = own(x)
        for rows in (1, 2, 6, 7):
            apart = torch.cat([own(part) for part in torch.split(x, rows)])
            torch.testing.assert_close(apart, together, rtol=0, atol=0)


def test_a_product_of_no_rows_is_empty_and_one_of_a_view_reads_the_view() -> None:
    linear = nn.Linear(32, 48, dtype=torch.bfloat16)
    own = PanelLinear(linear, CpuTeam(2))
    with torch.inference_mode():
        assert own(torch.empty(0, 32, dtype=torch.bfloat16)).shape == (0, 48)
        x = torch.randn(32, 5, dtype=torch.bfloat16).T
        torch.testing.assert_close(own(x), own(x.contiguous()), rtol=0, atol=0)
        assert own(x[None]).shape == (1, 5, 48)


def test_panels_hold_each_weight_once_and_zeros() -> None:
    weight = torch.arange(1, 70 * 6 + 1).view(70, 6).bfloat16()
    packed = panels.pack(weight)
    assert packed.shape == (2, 3, panels.WIDTH, 2)
    for output in (0, 63, 64, 69):
        row = packed[output // 64, :, output % 64].reshape(-1)
        torch.testing.assert_close(row, weight[output], rtol=0, atol=0)
    assert not packed[1, :, 6:].any()


@pytest.mark.parametrize("kind", PROCESSORS)
def test_loops_run_on_every_kind_of_processor_that_images_have_loops_for(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_features", lambda: dict.fromkeys(PROCESSORS[kind][1], True))
    monkeypatch.setattr(kernels._CONFIG, "CPU_FEATURES", features_of(kind))
    assert panels.missing() == []
    assert panels.widened() == (kind not in ("amx", "avx512_bf16"))


@pytest.mark.wide
@pytest.mark.skipif(not has("avx512f"), reason="the other tests cover AVX2 on this processor")
def test_products_are_right_when_compiled_for_avx2() -> None:
    names = {"NUMBA_CPU_NAME": PROCESSORS["avx2"][0], "NUMBA_CPU_FEATURES": features_of("avx2")}
    files = [f"tests/model/cpu/test_{name}.py" for name in ("panels", "quantized_products")]
    command = [sys.executable, "-m", "pytest", "-q", *files]
    subprocess.run(command, cwd=Path(__file__).parents[3], env=os.environ | names, check=True)
