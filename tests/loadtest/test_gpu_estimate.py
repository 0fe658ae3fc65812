"""The estimate of a step on a GPU: its arithmetic, and the launches it counts with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadtest.gpu_estimate import FUSED, LOADS, Code, Load, Machine, estimate, floor, main
from loadtest.gpu_report.shapes import LLAMA_8B

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


def test_the_command_prints_a_row_for_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--copy", "4000"])
    printed = capsys.readouterr().out
    assert "estimated" in printed
    assert all(f"| {load.name} |" in printed for load in LOADS)
