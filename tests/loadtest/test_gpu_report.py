"""The GPU report, as far as it can be tried without one."""

from __future__ import annotations

import pytest
import torch

from loadtest.gpu_report import SHAPES, TINY, check_kernel, main, parse, weight_bytes


def test_the_floor_counts_the_weights_that_llama_has_but_for_the_embedding() -> None:
    small, large = SHAPES
    tied, embedding = 1_235_814_400, 128_256 * 4096
    assert weight_bytes(small) == 2 * tied
    assert weight_bytes(large) == 2 * (8_030_261_248 - embedding)


def test_the_check_compares_the_attention_with_plain_attention() -> None:
    assert check_kernel(TINY, torch.device("cpu"), torch.float32) < 1e-4


@pytest.mark.parametrize(("arguments", "said"), [([], "CUDA"), (["--device", "cpu"], "--tiny")])
def test_without_a_gpu_it_says_what_it_needs(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        parse(arguments)
    assert said in capsys.readouterr().err


def test_every_part_runs_on_a_tiny_model(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--device", "cpu", "--tiny", "--batch", "2", "--steps", "2"])
    table = capsys.readouterr().out
    assert all(f"| 2 | {mode} |" in table for mode in ("free", "no leap", "constrained"))
    assert "no step" not in table
