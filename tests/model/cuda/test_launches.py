"""The launches of a step of a fused model, and when their kernels are compiled; needs no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from triton.runtime.jit import KernelInterface

from app.core.step import Span
from app.model.inputs import lay_out
from tests.model.compiled_mode import in_compiled_mode
from tests.model.fused_models import GEMMAS, fused, saved
from tests.model.interpreter import DEVICE

pytestmark = [
    pytest.mark.skipif(DEVICE.type == "cuda", reason="launches are counted without a GPU"),
    pytest.mark.usefixtures("as_on_a_gpu"),
]

ATTENTION_LAUNCHES = 3
"""Short tiles, long tiles, and the merge of chunks of keys."""


class Launches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records what a device would launch: torch's operations, and Triton's kernels.

    Views and allocations launch nothing.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        # ``to`` and ``reshape`` return views of some inputs and copies of others.
        same = func.is_view and result.untyped_storage().data_ptr() == (
            args[0].untyped_storage().data_ptr()
        )
        if not same and "empty" not in name and name != "detach_":
            self.names.append(name)
        return result

    def counting_kernels(self) -> Any:
        launch = KernelInterface.__getitem__

        def counted(kernel: Any, grid: Any) -> Any:
            def run(*args: Any, **kwargs: Any) -> None:
                self.names.append(kernel.fn.__name__)
                with _disable_current_modes():
                    launch(kernel, grid)(*args, **kwargs)

            return run

        return mock.patch.object(KernelInterface, "__getitem__", counted)


def launches_of_a_step(folder: str, *, batch_invariant: bool) -> tuple[list[str], int]:
    """Names of a step's launches without those of attention, and the number of attention calls."""
    _, forward, attention = fused(folder, torch.bfloat16, batch_invariant=batch_invariant)
    groups = len(attention.storage.groups)
    spans = [Span([5], 0, ((0,),) * groups), Span([6, 7], 0, ((1,),) * groups)]
    attention.begin(lay_out(spans, 4))
    ids, positions = torch.tensor([[5, 6, 7]]), torch.tensor([[0, 0, 1]])
    launches = Launches()
    with launches.counting_kernels(), launches:
        forward.compute(ids, positions, 0)
    return launches.names, attention.calls


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral with a window", *GEMMAS])
def test_a_layer_takes_eleven_launches_of_the_twelve_it_may(kind: str, tmp_path: Path) -> None:
    counts = []
    few, more = (2, 4) if kind == "gemma3" else (1, 2)  # Gemma 3: a rotary embedding by layer type
    for layers in (few, more):
        (folder := tmp_path / str(layers)).mkdir()
        names, calls = launches_of_a_step(
            saved(folder, kind, num_hidden_layers=layers), batch_invariant=False
        )
        assert calls == layers
        counts.append(len(names) + ATTENTION_LAUNCHES * calls)
    of_a_layer = (counts[1] - counts[0]) / (more - few)
    assert of_a_layer == 11
    assert counts[0] - few * of_a_layer <= 24, names


WITHOUT_SUMS = {"embedding", "to", "mul", "cat", "cos", "sin", "matmul"}
"""Operations of torch without sums. transformers 5.17 multiplies single positions by frequencies
with ``matmul``."""
OURS = {"_add_norm", "_rotate_and_store", "_activate", "_product", "_merge"}


def test_the_batch_invariant_mode_leaves_no_sum_to_a_library(tmp_path: Path) -> None:
    names, _ = launches_of_a_step(saved(tmp_path, "gemma3"), batch_invariant=True)
    assert set(names) <= WITHOUT_SUMS | OURS
    names, _ = launches_of_a_step(str(tmp_path), batch_invariant=False)
    assert set(names) - WITHOUT_SUMS - OURS == {"linear"}


ONLY_COMPILED = """
import sys
from pathlib import Path

import torch
from triton.runtime import driver
from triton.runtime.jit import JITFunction
from tests.model.compiled_mode import NoGpu

def only_compiled(kernel, grid):
    return lambda *args, **named: kernel.run(*args, grid=grid, warmup=True, **named)

driver.set_active(NoGpu())
JITFunction.__getitem__ = only_compiled

from app.core.step import Span
from app.model.cuda.compilations import KernelCompilations
from app.model.inputs import lay_out
from tests.model.fused_models import fused

compilations = KernelCompilations()
for folder, mode in (("qwen3", True), ("gemma3", False)):
    path = str(Path(sys.argv[1]) / folder)
    modes = dict(batch_invariant=mode, device_attention=mode)
    _, forward, attention = fused(path, torch.bfloat16, **modes)
    tables = (tuple(range(30)),) * len(attention.storage.groups)
    for tokens in (1, 2, 16, 17, 100):
        forward.run(lay_out([Span([3] * tokens, 0, tables, rows=(0,))], 4))
        print(compilations.while_loading, end=" ")
"""


def test_all_is_compiled_for_an_h100_by_its_first_step_with_no_gpu_here(tmp_path: Path) -> None:
    """By Triton's own launch path: kernels compiled by the first step serve steps of all sizes."""
    for kind in ("qwen3", "gemma3"):
        (tmp_path / kind).mkdir()
        saved(tmp_path / kind, kind)
    output = in_compiled_mode("-c", ONLY_COMPILED, str(tmp_path))
    counts = [int(count) for count in output.split()]
    # Kernels of norms with and without a sum, heads, activation, five products, and attention.
    assert counts[:5] == [10] * 5
    assert counts[5:] == [counts[5]] * 5
