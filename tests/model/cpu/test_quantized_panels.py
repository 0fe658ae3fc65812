"""Rounding to 8 and 4 bits and the layout of panels, with torch's plain operations."""

from __future__ import annotations

import pytest
import torch

from app.model.cpu.kernels.panels import WIDTH
from app.model.cpu.kernels.quantized_panels import (
    BLOCK,
    INT4,
    INT4_MINIMA,
    INT8,
    INT8_HALVES,
    KINDS,
    PanelKind,
    QuantizedWeight,
    dequantize,
    fits,
    join,
    pack,
    quantize,
)


def random_weight(kind: PanelKind, outputs: int, inputs: int) -> QuantizedWeight:
    chance = torch.Generator().manual_seed(outputs + inputs)
    codes = torch.randint(0, 256, (outputs, inputs * kind.bits // 8), generator=chance)
    shape = (outputs, inputs // kind.group)
    scales = torch.randn(shape, generator=chance) / 50
    minima = torch.randn(shape, generator=chance) / 10
    return QuantizedWeight(
        kind, codes.to(torch.uint8), scales.half(), minima.half() if kind.minima else None
    )


@pytest.mark.parametrize(("kind", "most"), [(INT8, 0.008), (INT4, 0.09)])
def test_rounding_a_normal_weight_costs_what_its_bits_say(kind: PanelKind, most: float) -> None:
    weight = torch.randn(5000, 64, generator=torch.Generator().manual_seed(0)) * 0.02
    stored = quantize(weight.bfloat16(), kind)
    assert (stored.outputs, stored.inputs) == (5000, 64)
    assert stored.codes.nbytes == 5000 * 64 * kind.bits // 8
    error = (dequantize(stored) - weight).norm() / weight.norm()
    assert most / 2 < error < most


@pytest.mark.parametrize("kind", [INT8, INT4])
def test_the_largest_value_of_a_group_and_groups_of_zeros_are_exact(kind: PanelKind) -> None:
    weight = torch.zeros(2, 64)
    weight[0, 5], weight[0, 6] = -4.0, 1.0
    found = dequantize(quantize(weight, kind))
    assert found[0, 5] == pytest.approx(-4.0, rel=1e-3)
    assert not found[0, 32:].any()
    assert not found[1].any()


def test_codes_of_four_bits_lie_as_in_q4_0() -> None:
    weight = torch.arange(-8, 8).float().repeat(2)[None]  # a scale of one: codes 0 to 15, twice
    stored = quantize(weight, INT4)
    assert stored.scales.tolist() == [[1.0]]
    assert stored.codes.tolist() == [[code * 17 for code in range(16)]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_of_a_panel_has_words_by_output_and_then_what_they_are_multiplied_with(
    kind: PanelKind,
) -> None:
    weight = random_weight(kind, 70, 96)
    panels = pack(weight)
    assert panels.shape == (2, 3, kind.block_bytes)
    assert panels.dtype == torch.uint8
    assert panels.is_contiguous()
    for output in (0, 63, 64, 69):
        for block in range(3):
            own = panels[output // WIDTH, block]
            group_bytes = kind.group * kind.bits // 8
            codes, scales = [], []
            for half in range(BLOCK // kind.group):
                own_half = own[half * WIDTH * (group_bytes + 2) :]
                words = own_half[: WIDTH * group_bytes].view(-1, WIDTH, 4)
                codes += words[:, output % WIDTH].flatten().tolist()
                at = WIDTH * group_bytes + 2 * (output % WIDTH)
                scales.append(own_half[at : at + 2].view(torch.float16).item())
            width = BLOCK * kind.bits // 8
            assert codes == weight.codes[output, block * width : (block + 1) * width].tolist()
            groups = BLOCK // kind.group
            assert scales == weight.scales[output, block * groups : (block + 1) * groups].tolist()
            if weight.minima is not None:
                minima = own[-2 * WIDTH :].view(torch.float16)
                assert minima[output % WIDTH] == weight.minima[output, block]


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_that_fill_a_panel_up_have_scales_of_zero(kind: PanelKind) -> None:
    block = pack(random_weight(kind, 1, 32))[0, 0]
    assert not block[-2:].any()


def test_minima_are_taken_from_codes_without_an_offset() -> None:
    stored = QuantizedWeight(
        INT4_MINIMA,
        torch.tensor([[0x50] * 16], dtype=torch.uint8),
        torch.tensor([[0.5]], dtype=torch.float16),
        torch.tensor([[0.25]], dtype=torch.float16),
    )
    assert dequantize(stored).tolist() == [[-0.25] * 16 + [2.25] * 16]


def test_groups_of_sixteen_have_scales_of_their_own() -> None:
    stored = QuantizedWeight(
        INT8_HALVES,
        torch.full((1, 32), 130, dtype=torch.uint8),
        torch.tensor([[1.0, 3.0]], dtype=torch.float16),
    )
    assert dequantize(stored).tolist() == [[2.0] * 16 + [6.0] * 16]


def test_weights_of_one_kind_are_joined_and_a_width_that_does_not_fit_is_told() -> None:
    parts = [random_weight(INT4_MINIMA, n, 64) for n in (3, 5)]
    whole = torch.cat([dequantize(part) for part in parts])
    assert torch.equal(dequantize(join(parts)), whole)
    assert torch.equal(dequantize(join(parts), torch.bfloat16), whole.bfloat16())
    assert [fits(inputs) for inputs in (96, 80, 0)] == [True, False, False]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_blocks_of_inputs_are_moved_whole(kind: PanelKind) -> None:
    weight = random_weight(kind, 6, 128)
    values = dequantize(weight)
    rows = torch.tensor([4, 0, 4])
    assert torch.equal(dequantize(weight.reordered(rows)), values[rows])
    columns = torch.arange(128).view(2, 2, 32).transpose(0, 1).flatten()
    moved = weight.with_inputs(columns)
    assert moved is not None
    assert torch.equal(dequantize(moved), values[:, columns])
    assert weight.with_inputs(torch.arange(128).roll(16)) is None
