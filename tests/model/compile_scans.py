"""Compiles the kernels of recurrent layers; needs no GPU.

A test runs it in a process that does not interpret kernels. Prints one line of JSON for each
kernel: its name, the GPU's capability, and the shared memory that it uses.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch import Tensor

from app.core.cache import StateSlots
from app.core.step import Span
from app.model.cuda.kernels import scans
from app.model.inputs import lay_out
from app.model.layers.recurrent import DeltaRule, Mamba1, Mamba2
from app.model.state_storage import StateShape, allocate_states
from tests.model.compile_kernels import Compiles
from tests.model.cuda.test_scan import device_scan

BF16 = torch.bfloat16
ROWS = 3


def halves(*shape: int) -> Tensor:
    return torch.zeros(ROWS, *shape, dtype=BF16)


def run_all() -> None:
    """Launch each scan with the shapes of a large model: Qwen 3.5 4B, Nemotron-H 8B, Jamba."""
    step = lay_out([Span([0] * ROWS, 0, (), saves=[(1, 1)])], 16)

    def scan(state: tuple[int, ...]) -> Any:
        shape = StateShape((3, 512), BF16, state)
        return device_scan(allocate_states({0: shape}, StateSlots(3, 64), halves().device), step, 0)

    keys, values = halves(16, 128), halves(32, 128)
    floats, one = torch.zeros(ROWS, 32), torch.zeros(ROWS, 32, 128)
    scan((32, 128, 128)).delta_rule(0, DeltaRule(keys, keys, values, floats, floats, True))
    scan((32, 128, 128)).delta_rule(0, DeltaRule(values, values, values, one, floats, False))
    groups, dt, rates = halves(8, 128), torch.zeros(ROWS, 128), torch.zeros(128)
    scan((128, 64, 128)).mamba2(0, Mamba2(halves(128, 64), dt, rates, groups, groups, rates))
    wide, rates = halves(8192), torch.zeros(8192, 16)
    selective = Mamba1(wide, torch.zeros(ROWS, 8192), rates, halves(16), halves(16))
    scan((8192, 16)).mamba1(0, selective)
    scan((1,)).convolve(0, halves(512), torch.zeros(512, 4, dtype=BF16), None, "silu")


if __name__ == "__main__":
    for capability in map(int, sys.argv[1:]):

        def launched(
            kernel: str, constants: dict[str, Any], shared: int, gpu: int = capability
        ) -> None:
            print(json.dumps({"kernel": kernel, "gpu": gpu, "shared": shared}))

        for name in ("convolve", "keep_inputs", "delta_rule", "mamba1", "mamba2"):
            kernel = getattr(scans, name)
            kernel = getattr(kernel, "_kernel", kernel)
            setattr(scans, name, Compiles(kernel, capability, launched))
        run_all()
