"""What tests of interpreted kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.model.interpreter import rounding_as_a_gpu_does


@pytest.fixture
def as_on_a_gpu() -> Iterator[None]:
    """Interpreted kernels round as a GPU does."""
    torch.manual_seed(0)
    with rounding_as_a_gpu_does(), torch.inference_mode():
        yield
