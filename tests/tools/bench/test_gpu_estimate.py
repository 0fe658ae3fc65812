"""The estimate of a step on a GPU: its arithmetic, and the launches it counts with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from app.model.config import ModelConfig
from tests.model.cuda.test_launches import Launches
from tools.bench.gpu_estimate import FUSED, LOADS, Code, Load, Machine, estimate, floor, main
from tools.bench.gpu_report.model import interpreted_runner
from tools.bench.gpu_report.shapes import LLAMA_8B, TINY

ONE_ANSWER, CONSTRAINED, MANY = LOADS[0], LOADS[2], LOADS[3]
EXACT = Machine(
    copy=1e12, products=1e15, gap=1e-6, shortest=2e-6, reading=1.0, gathering=1.0, multiplying=1.0
)


def test_one_answer_takes_what_reading_the_weights_takes_and_its_launches() -> None:
    found = estimate(LLAMA_8B, EXACT, FUSED, ONE_ANSWER)
    assert found["products"] == pytest.approx(LLAMA_8B.weight_bytes / 1e12)
    launches = 32 * FUSED.layer + FUSED.around + FUSED.draw
    assert found["gaps"] == pytest.approx(launches * 1e-6)
    small = FUSED.layer - FUSED.layer_products - FUSED.layer_attention
    assert found["small kernels"] == pytest.approx((32 * small + FUSED.around) * 2e-6)
    assert sum(found.values()) > floor(LLAMA_8B, EXACT, ONE_ANSWER)


def test_many_tokens_take_what_their_multiplications_take() -> None:
    crowded = replace(MANY, tokens=4096)
    found = estimate(LLAMA_8B, EXACT, FUSED, crowded)
    weights = sum(LLAMA_8B.product_weights.values())
    layers = 2 * 32 * 4096 * weights
    assert found["products"] == pytest.approx((layers + 2 * 256 * 4096 * 128_256) / 1e15)


def test_attention_reads_keys_and_values_of_every_answer() -> None:
    long = Load("", answers=64, tokens=64, draws=64, context=8192, host=0.0, gained=64)
    assert estimate(LLAMA_8B, EXACT, FUSED, long)["attention"] == pytest.approx(
        64 * 8192 * 131_072 / 1e12
    )


def test_what_is_launched_kernel_by_kernel_is_all_gaps() -> None:
    eager = Code(layer=45, layer_products=7, layer_attention=4, around=9, draw=40, draw_passes=20)
    plain = estimate(LLAMA_8B, EXACT, eager, CONSTRAINED)
    assert plain["gaps"] > 3 * estimate(LLAMA_8B, EXACT, FUSED, CONSTRAINED)["gaps"]


def launches(folder: Path, layers: int) -> int:
    """Of a forward pass with tiles of both kinds and chunks to merge, on tensors of the CPU."""
    replace(TINY, layers=layers).write(folder, None)
    config = ModelConfig(model=str(folder), random_weights=True, max_graph_tokens=0)
    steps: Any = interpreted_runner(config)._graphs
    counted, compute = Launches(), steps._compute

    def computed(step: Any) -> Any:
        with counted.counting_kernels(), counted:
            return compute(step)

    steps._compute = computed
    with torch.inference_mode():
        steps._warm_up()
    return len(counted.names)


@pytest.mark.skipif(torch.cuda.is_available(), reason="counted in the interpreter")
def test_the_code_launches_as_often_as_the_estimate_says(tmp_path: Path) -> None:
    one, two = launches(tmp_path / "1", 1), launches(tmp_path / "2", 2)
    assert two - one == FUSED.layer
    # In bfloat16 sine and cosine are cast; and a graph leaves its logits where all do.
    assert one - FUSED.layer + 2 + 1 == FUSED.around


def test_the_command_prints_a_row_for_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--copy", "4000"])
    printed = capsys.readouterr().out
    assert "estimated" in printed
    assert all(f"| {load.name} |" in printed for load in LOADS)
