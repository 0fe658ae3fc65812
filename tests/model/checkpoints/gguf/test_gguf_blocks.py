"""Every type of ggml, compared with the values that the package ``gguf`` unpacks."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type

from app.model.checkpoints.gguf.blocks import READERS, floats, read, rounded
from app.model.cpu.kernels.quantized_panels import INT8, dequantize
from tests.model.checkpoints.gguf.files import random_blocks

EXACT = {Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.IQ4_NL, Type.MXFP4}
"""Panels hold these bit for bit; scales of other types in ``READERS`` are rounded to 16 bits."""
UNPACKED = set(gguf.quants._type_traits) - {Type.F32, Type.F16, Type.BF16}


@pytest.mark.parametrize("kind", sorted(READERS))
def test_panels_hold_the_values_that_the_package_unpacks(kind: Type) -> None:
    rows = random_blocks(66, 768, kind, 1)
    weight, exact = read(rows, kind), floats(rows, kind)
    assert weight is not None
    found = dequantize(weight)
    if kind in EXACT:
        assert torch.equal(found, exact)
    else:
        # A code times its scale and a minimum may cancel each other out.
        assert ((found - exact).abs() <= 1e-3 * exact.abs().amax(-1, keepdim=True)).all()
        assert (found - exact).norm() < 4e-4 * exact.norm()


@pytest.mark.parametrize("kind", sorted(UNPACKED - READERS.keys()))
def test_all_others_that_the_package_unpacks_are_rounded_to_8_bits(kind: Type) -> None:
    rows = random_blocks(66, 768, kind, 1)
    assert read(rows, kind) is None
    weight, error = rounded(rows, kind)
    exact = floats(rows, kind)
    assert weight.kind == INT8
    assert error == pytest.approx(float((dequantize(weight) - exact).norm() / exact.norm()), 1e-3)
    assert 0 < error < 0.01


def test_a_scale_that_16_bits_lack_is_none_of_a_panel() -> None:
    rows = np.full((1, 17), 0x11, dtype=np.uint8)
    rows[0, 0] = 90  # a scale of 2 to the power of -38
    assert read(rows, Type.MXFP4) is None
    rows[0, 0] = 128
    weight = read(rows, Type.MXFP4)
    assert weight is not None
    assert set(dequantize(weight).flatten().tolist()) == {1.0}
