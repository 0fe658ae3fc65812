"""Products by AMX's tiles, whose instructions are emulated: against float32 and our other loops."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch
from torch import nn

from app.model import optimise
from app.model.cpu.kernels import amx, panels
from app.model.cpu.kernels.quantized_panels import KINDS, PanelKind
from app.model.cpu.layers import PanelLinear
from app.model.cpu.trial import Trial
from app.model.cpu.workspace import CpuTeam
from app.model.layers.quantized import QuantizedLinear
from tests.model.cpu.test_layers import FITS
from tests.model.cpu.test_quantized_panels import random_weight
from tests.model.cpu.tile_emulator import emulated
from tests.model.same_bits import compare, make_runner

pytestmark = pytest.mark.skipif(not panels.runs_here(), reason="needs AVX2 on Linux")


@pytest.mark.parametrize(("inputs", "outputs"), [(64, 64), (2, 1), (30, 130), (130, 70)])
def test_a_product_is_that_of_float32_and_a_row_has_the_same_bits_beside_others(
    inputs: int, outputs: int
) -> None:
    torch.manual_seed(inputs)
    workers = CpuTeam(2)
    workers.use_amx(1, 0)
    linear = nn.Linear(inputs, outputs, dtype=torch.bfloat16)
    with emulated(), torch.inference_mode():
        own = PanelLinear(linear, workers)
        x = torch.randn(100, inputs, dtype=torch.bfloat16)
        exact = nn.functional.linear(x.float(), linear.weight.float(), linear.bias.float())
        alone = own(x[16:17])
        for rows in (17, 18, 32, 33, 97, 100):
            found = own(x[:rows])
            torch.testing.assert_close(found.float(), exact[:rows], rtol=2**-8, atol=2e-5)
            assert torch.equal(found[16:17], alone)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rounded_rows_have_the_bits_of_the_other_loops(kind: PanelKind, rounds: int) -> None:
    workers = CpuTeam(2)
    linear = QuantizedLinear(random_weight(kind, 70, 96), None)
    linear.rounds = rounds
    x = torch.randn(50, 96, dtype=torch.bfloat16)
    with emulated(), torch.inference_mode():
        own = PanelLinear(linear, workers)
        for rows in (1, 7, 16, 17, 23, 50):
            workers.use_amx(0, 0)
            expected = own(x[:rows])
            workers.use_amx(0, 7)
            assert torch.equal(own(x[:rows]), expected)


def test_amx_is_used_only_where_a_trial_of_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = amx.missing.__wrapped__
    monkeypatch.setattr(amx, "has", lambda _: False)
    lacks = {False: "this processor has no", True: "the loops were compiled without"}
    for runs, problem in lacks.items():
        monkeypatch.setattr(amx, "runs_here", lambda _, runs=runs: runs)
        assert missing() == f"{problem} amx-tile, amx-bf16, amx-int8"
    monkeypatch.setattr(amx, "has", lambda _: True)
    monkeypatch.setattr(amx, "_ARCH_PRCTL", 1 << 20)  # no system call
    assert missing() == "the system does not permit AMX (arch_prctl)"
    yield_ = 24
    monkeypatch.setattr(amx, "_ARCH_PRCTL", yield_)
    with emulated():
        assert missing() == ""
    for name in ("_exit", "getpid"):  # it ends, or computes nothing
        address = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
        monkeypatch.setattr(amx, "entry", lambda address=address: address)
        assert missing() == "a trial of AMX failed"


SMALL = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
SLOW, FAST = [1.0, 2.0, 3.0, 4.0], [0.5, 1.0, 1.5, 2.0]


@pytest.mark.parametrize(
    ("with_amx", "whole", "rounded"),
    [
        ([], 0, 0),
        (FAST, 1, 7),
        ([2.0, 4.0, 6.0, 8.0], 0, 0),
        ([2.0, 1.0, 1.5, 2.0], 1, 8),
        ([1.0, 1.0, 3.0, 2.0], 1, 128),
    ],
)
def test_amx_runs_where_it_was_faster(with_amx: list[float], whole: int, rounded: int) -> None:
    trial = Trial(SLOW, amx=with_amx)
    assert trial.amx_from(quantized=False) == (whole, 0)
    assert trial.amx_from(quantized=True) == (0, rounded)


@FITS
@pytest.mark.parametrize(
    ("quantize", "products", "rows"),
    [(None, "own loops with AMX; ms", (1, 0)), ("int4", "own loops; AMX from 7 rows; ms", (0, 7))],
)
def test_a_model_whose_trial_amx_won_runs_by_it(
    quantize: str | None,
    products: str,
    rows: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optimise, "compare", lambda *_, **__: Trial(SLOW, amx=FAST))
    chosen = []
    use = CpuTeam.use_amx

    def recorded(team: CpuTeam, *rows: int) -> None:
        chosen.append(rows)
        use(team, *rows)

    monkeypatch.setattr(CpuTeam, "use_amx", recorded)
    with emulated():
        runner = make_runner(tmp_path, quantize, **SMALL)  # the self-check passes
    assert runner.description.products.startswith(products)
    assert chosen == [rows]


@FITS
@pytest.mark.wide
@pytest.mark.parametrize("quantize", [None, "int4"])
def test_no_bit_of_an_answer_depends_on_what_else_runs(
    quantize: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimise, "compare", lambda *_, **__: Trial(SLOW, amx=FAST))
    with emulated():
        outcome = compare(make_runner(tmp_path, quantize, **SMALL), 24, longest=40, number=1)
    assert outcome.differ == 0
    assert outcome.rows > 100
    assert outcome.drafted
