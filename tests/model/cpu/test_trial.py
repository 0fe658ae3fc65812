"""The choice between our own loops and torch's products, by timings at load."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from app.model import optimise
from app.model.composition import load_runner
from app.model.config import ModelConfig
from app.model.cpu.attention import CpuAttention
from app.model.cpu.kernels import panels
from app.model.cpu.packed_linear import PackedLinear, can_pack, padded
from app.model.cpu.trial import BLOCKS, ROWS, Trial, compare
from app.model.kv_storage import allocate
from app.model.layers.attention import AttentionRoute, probe_layers
from app.model.layers.recurrent import RecurrentRoute
from app.model.loaded import LoadedModel
from tests.model.cpu.test_layers import FITS, saved
from tests.model.tiny import varied_model

BOTH = pytest.mark.skipif(
    not panels.runs_here() or not can_pack(torch.bfloat16, torch.device("cpu")),
    reason="needs own loops and torch's products in bfloat16",
)
SLOW, FAST = [1.0, 2.0, 3.0, 4.0], [0.5, 1.0, 1.5, 2.0]


def test_few_shapes_reach_the_kernels_of_torch() -> None:
    """torch compiles code for each shape and keeps it."""
    sizes = {padded(rows) for rows in range(1, 4097)}
    assert len(sizes) == 80
    assert all(rows <= padded(rows) <= rows * 9 / 8 for rows in range(1, 4097))


@pytest.mark.skipif(not torch._C._has_mkldnn, reason="this torch has no oneDNN")
def test_a_packed_product_is_the_plain_one_for_any_number_of_rows() -> None:
    linear = nn.Linear(64, 32)
    packed = PackedLinear(linear)
    with torch.inference_mode():
        for shape in [(0,), (1,), (15,), (17,), (33,), (1, 0), (1, 37), (2, 9)]:
            x = torch.randn(*shape, 64)
            torch.testing.assert_close(packed(x), linear(x))
        x = torch.randn(64, 17).T
        torch.testing.assert_close(packed(x), linear(x))
        assert packed(x).untyped_storage().nbytes() == 18 * linear(x[:1]).nbytes


@pytest.mark.parametrize(
    ("loops", "torch", "loops_win"),
    [
        (FAST, SLOW, True),
        (SLOW, FAST, False),
        (SLOW, SLOW, True),
        ([1.1 * each for each in SLOW], SLOW, True),  # within noise
        ([*FAST[:3], 8.0], SLOW, True),  # slower for prompts only
    ],
)
def test_the_loops_run_unless_torch_is_clearly_faster(
    loops: list[float], torch: list[float], loops_win: bool
) -> None:
    assert Trial(loops, torch).loops_win == loops_win


@BOTH
@pytest.mark.parametrize("kind", ["llama", "qwen2 with a window in some layers", "gemma2"])
@torch.inference_mode()
def test_both_are_timed_and_the_model_stays_as_it_was(kind: str, tmp_path: Path) -> None:
    model, route = varied_model(saved(tmp_path, kind)), AttentionRoute()
    recurrent = RecurrentRoute(model)
    loaded = LoadedModel(model, route, recurrent, probe_layers(model, route, recurrent))
    ids = torch.tensor([[5, 6, 7]])
    model.set_attn_implementation("eager")
    before = model(ids).logits
    storage = allocate(loaded.shapes, num_blocks=BLOCKS, block_size=4, device=model.device)
    forward = loaded.forward_over(storage, None, 4 * BLOCKS, ModelConfig("", device="cpu"))
    assert isinstance(forward.attention, CpuAttention)
    trial = compare(loaded, lambda: forward)
    assert trial is not None
    assert len(trial.loops) == len(trial.torch) == len(ROWS)
    assert all(seconds > 0 for seconds in (*trial.loops, *trial.torch))
    model.set_attn_implementation("eager")
    assert torch.equal(model(ids).logits, before)


@FITS
def test_the_faster_one_runs_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(
        saved(tmp_path, "llama"), random_weights=True, dtype="bfloat16", device="cpu"
    )
    arithmetic = []
    for trial, name in ((Trial(FAST, SLOW), "own loops"), (Trial(SLOW, FAST), "torch")):
        monkeypatch.setattr(optimise, "compare", lambda *_, found=trial, **__: found)
        runner = load_runner(config)  # the self-check passes on both
        assert runner.description.products == f"{name}; {trial}"
        arithmetic.append(runner.description.arithmetic)
        runner.close()
    assert arithmetic[0] != arithmetic[1]
