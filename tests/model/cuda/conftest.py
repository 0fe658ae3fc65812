"""What tests of interpreted kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def as_on_a_gpu() -> Iterator[None]:
    """Interpreted kernels round as a GPU does."""
    # Not before pytest's configuration, which limits the threads of torch: see tests/conftest.py.
    import torch

    from tests.model.interpreter import rounding_as_a_gpu_does

    torch.manual_seed(0)
    with rounding_as_a_gpu_does(), torch.inference_mode():
        yield
