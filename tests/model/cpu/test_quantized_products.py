"""Products with 8- and 4-bit weights against plain arithmetic, for every kind of panels."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch
from torch import Tensor

from app.model.cpu.kernels import panels
from app.model.cpu.kernels.quantized_panels import (
    BLOCK,
    INT4,
    INT8,
    KINDS,
    PanelKind,
    QuantizedWeight,
    dequantize,
)
from app.model.cpu.kernels.rounded_rows import ROUNDED_BYTES, round_row
from app.model.cpu.layers import PanelLinear
from app.model.cpu.workspace import CpuTeam
from app.model.layers.quantized import QuantizedLinear
from tests.model.cpu.test_quantized_panels import random_weight

pytestmark = pytest.mark.skipif(not panels.runs_here(), reason="needs AVX2 on Linux")


def rounded(x: Tensor, rounds: int = 1) -> Tensor:
    """The values that ``round_row`` stores, computed by torch: [rows, K], float32."""
    parts = x.float().view(len(x), -1, BLOCK)
    scale = parts.abs().amax(-1, keepdim=True) / 127
    values = (parts * torch.where(scale > 2.0**-120, 1 / scale, 0)).round()
    found = (values * scale).view(len(x), -1)
    return found if rounds == 1 else found + rounded(x.float() - found)


def in_panels(
    stored: QuantizedWeight, bias: Tensor | None = None, *, rounds: int = 1, threads: int = 1
) -> PanelLinear:
    linear = QuantizedLinear(stored, bias)
    linear.rounds = rounds
    return PanelLinear(linear, CpuTeam(threads))


def numbers(out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    blocks = out.view(-1, ROUNDED_BYTES)
    scale = blocks[:, :4].contiguous().view(torch.float32)
    sums = blocks[:, 4:8].contiguous().view(torch.int16)
    return scale, sums, blocks[:, 8:].view(torch.int8)


def test_a_row_is_rounded_to_bytes_with_a_scale_and_the_sums_of_its_halves() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 96, dtype=torch.bfloat16)
    x[0, :32] *= 1e-3
    x[0, 40] = -50.0
    x[0, 64:] = 1e-38
    out = torch.full((3 * ROUNDED_BYTES,), 7, dtype=torch.uint8)
    round_row(x.data_ptr(), out.data_ptr(), 3, 1)
    scale, sums, values = numbers(out)
    torch.testing.assert_close((values * scale).flatten(), rounded(x)[0], rtol=1e-6, atol=0)
    assert values[1, 8] == -127
    assert not values[2].any()
    assert sums.tolist() == values.view(3, 2, 16).sum(-1).tolist()


def test_a_second_round_stores_the_error_of_the_first_for_sixteen_bits() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 96, dtype=torch.bfloat16)
    once, twice = (torch.zeros(6 * ROUNDED_BYTES, dtype=torch.uint8) for _ in range(2))
    round_row(x.data_ptr(), once.data_ptr(), 3, 1)
    round_row(x.data_ptr(), twice.data_ptr(), 3, 2)
    assert torch.equal(once[: 3 * ROUNDED_BYTES], twice[: 3 * ROUNDED_BYTES])
    scale, _, values = numbers(twice)
    first, second = (values * scale).view(2, 96)
    assert (first - x).norm() > 2e-3 * x.norm()
    assert (first + second - x).norm() < 3e-5 * x.norm()


def test_rows_with_nan_or_infinity_give_nan() -> None:
    for bad in (float("nan"), float("inf"), -float("nan")):
        x = torch.ones(1, 32, dtype=torch.bfloat16)
        x[0, 3] = bad
        for rounds in (1, 2):
            assert in_panels(random_weight(INT8, 64, 32), rounds=rounds)(x).isnan().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("threads", "rounds"), [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize(("inputs", "outputs"), [(32, 64), (96, 1), (768, 200), (4192, 70)])
def test_a_product_is_that_of_the_stored_weight_and_the_rounded_rows(
    kind: PanelKind, inputs: int, outputs: int, threads: int, rounds: int
) -> None:
    torch.manual_seed(inputs)
    stored = random_weight(kind, outputs, inputs)
    for bias in (None, torch.randn(outputs, dtype=torch.bfloat16)):
        own = in_panels(stored, bias, rounds=rounds, threads=threads)
        for rows in (1, 2, 3, 4, 5, 6, 7, 13, 97, 200):
            x = torch.randn(rows, inputs, dtype=torch.bfloat16)
            exact = rounded(x, rounds) @ dequantize(stored).T
            if bias is not None:
                exact += bias.float()
            size = exact.norm() / exact.numel() ** 0.5
            found = own(x)
            assert found.shape == exact.shape
            torch.testing.assert_close(found.float(), exact, rtol=2**-8, atol=1e-5 * size.item())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_row_has_the_same_bits_in_any_batch(kind: PanelKind, rounds: int) -> None:
    torch.manual_seed(0)
    own = in_panels(random_weight(kind, 130, 4160), rounds=rounds, threads=2)
    x = torch.randn(101, 4160, dtype=torch.bfloat16)
    together = own(x)
    for rows in (1, 2, 3, 4, 5, 6, 7):
        apart = torch.cat([own(part) for part in torch.split(x, rows)])
        assert torch.equal(apart, together)


@pytest.mark.parametrize("kind", [INT4, INT8])
def test_codes_at_the_ends_of_their_range_do_not_saturate(kind: PanelKind) -> None:
    stored = QuantizedWeight(
        kind,
        torch.full((64, 64 * kind.bits // 8), 255, dtype=torch.uint8),
        torch.ones(64, 2, dtype=torch.float16),
    )
    own = in_panels(stored)
    for sign in (1, -1):
        x = torch.full((1, 64), sign, dtype=torch.bfloat16)
        most = (1 << kind.bits - 1) - 1
        torch.testing.assert_close(own(x).float(), torch.full((1, 64), 64.0 * sign * most))


def test_no_rows_give_none_and_a_view_is_read_as_it_is() -> None:
    own = in_panels(random_weight(INT4, 48, 32), threads=2)
    assert own(torch.empty(0, 32, dtype=torch.bfloat16)).shape == (0, 48)
    x = torch.randn(32, 5, dtype=torch.bfloat16).T
    assert torch.equal(own(x), own(x.contiguous()))
    assert own(x[None]).shape == (1, 5, 48)
