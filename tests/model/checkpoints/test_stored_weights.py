"""Runners of quantised checkpoints: panels on the CPU against the same weights as floats."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

from app.core.errors import UnsupportedModel
from app.core.step import Span
from app.model.composition import load_runner
from app.model.config import ModelConfig
from app.model.cpu.kernels import panels
from app.model.cpu.kernels.quantized_panels import QuantizedWeight
from app.model.inputs import lay_out
from app.model.runner import TorchRunner
from app.model.self_check import worst_error
from tests.model.checkpoints.gguf.files import (
    SIZES,
    Kind,
    all_as,
    as_q4_k_m,
    tiny_model,
    write_gguf,
)
from tests.model.checkpoints.test_gptq_awq import AWQ, GPTQ, checkpoint
from tests.steps import planned

NEEDS_LOOPS = pytest.mark.skipif(not panels.runs_here(), reason="needs AVX2")
TOKENS = (5, 6, 7, 8, 9, 30, 60, 90)


def config(model: str, **changes: Any) -> ModelConfig:
    settings: dict[str, Any] = {"device": "cpu", "block_size": 4, "kv_cache_bytes": 1 << 21}
    return ModelConfig(model=model, **(settings | changes))


def logits(runner: TorchRunner) -> torch.Tensor:
    """Logits of the last three tokens."""
    plan = planned([Span(TOKENS, 0, [[0, 1]])], [(0, i) for i in (5, 6, 7)])
    return runner._forward.run(lay_out(plan, 4)).float()


@torch.inference_mode()
def exact(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(torch.tensor([TOKENS])).logits[0, 5:]
    return found.float()


@NEEDS_LOOPS
@pytest.mark.parametrize(
    ("name", "kind", "stored"),
    [
        ("llama", all_as(Kind.Q8_0), "15 int8 by 32"),
        ("llama", all_as(Kind.Q4_0), "15 int4 by 32"),
        ("llama", all_as(Kind.Q4_1), "15 int4 by 32 with minima"),
        ("llama", as_q4_k_m, "11 int4 by 32 with minima, 4 int8 by 16"),
        ("qwen2", as_q4_k_m, "10 int4 by 32 with minima, 5 int8 by 16"),
        ("qwen3", all_as(Kind.Q4_0), "15 int4 by 32"),
        ("gemma3", all_as(Kind.Q8_0), "15 int8 by 32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_gguf_file_is_served_as_its_values_in_floats_would_be(
    tmp_path: Path, name: str, kind: Any, stored: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_model(name, initializer_range=0.03), kind)
    runner = load_runner(config(path))
    description = runner.description
    assert description.quantized == stored
    wide = sum(description.weight_bytes.get(kind, 0) for kind in ("bfloat16", "float32"))
    assert wide < 20_000, "only norms, biases and tables of positions are floats"
    floats = load_runner(config(path, dequantize=True, dtype="float32"))
    assert floats.description.quantized == ""
    assert description.parameters == pytest.approx(floats.description.parameters, rel=0.04)
    assert worst_error(logits(runner), logits(floats)) < 0.06


@NEEDS_LOOPS
def test_weights_are_held_once(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_model("llama"), all_as(Kind.Q8_0))

    def held() -> set[tuple[int, ...]]:
        """Shapes of weights that are held outside of panels."""
        gc.collect()
        of_blocks = [each for each in gc.get_objects() if type(each) is QuantizedWeight]
        linears = [each for each in gc.get_objects() if type(each) is torch.nn.Linear]
        return {(each.outputs, each.inputs) for each in of_blocks} | {
            tuple(each.weight.shape) for each in linears if each.weight.numel()
        }

    before = held()
    runner = load_runner(config(path))
    assert {rows for rows, _ in held() - before} <= {SIZES["vocab_size"]}  # the embedding
    runner.close()
    runner = load_runner(config(path, dequantize=True, dtype="bfloat16"))
    assert not held() - before
    runner.close()


@NEEDS_LOOPS
@pytest.mark.parametrize(
    "description", [AWQ, GPTQ | {"sym": True, "group_size": 128}], ids=["awq", "gptq"]
)
def test_checkpoints_of_awq_and_gptq_are_served(
    tmp_path: Path, description: dict[str, Any]
) -> None:
    model = checkpoint(tmp_path, description)
    runner = load_runner(config(str(tmp_path)))
    assert runner.description.quantized.startswith("14 int4 by 32")
    assert worst_error(logits(runner), exact(model)) < 0.2  # large weights amplify rounding


def test_floats_of_a_gguf_file_are_served_as_they_are(tmp_path: Path) -> None:
    model = tiny_model("llama")
    path = write_gguf(tmp_path / "m.gguf", model, all_as(Kind.F32))
    runner = load_runner(config(path, dtype="float32"))
    assert worst_error(logits(runner), exact(model)) < 1e-3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"dtype": "float32"},
            r"bfloat16 activations, but dtype is float32; set LEAPJSON_DTYPE",
        ),
        pytest.param(
            {"quantize": "int4"},
            r"already quantised; leave LEAPJSON_QUANTIZE out",
            marks=NEEDS_LOOPS,
        ),
    ],
)
def test_settings_that_conflict_with_stored_weights_are_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_model("llama"), all_as(Kind.Q8_0))
    with pytest.raises(UnsupportedModel, match=reason):
        load_runner(config(path, **changes))


def test_a_processor_without_the_instructions_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panels, "missing", lambda: ["AVX2"])
    path = write_gguf(tmp_path / "m.gguf", tiny_model("llama"), all_as(Kind.Q4_0))
    with pytest.raises(UnsupportedModel, match=r"missing: AVX2.*LEAPJSON_DEQUANTIZE"):
        load_runner(config(path))


def test_on_a_gpu_quantised_gguf_is_refused(tmp_path: Path) -> None:
    from app.model.composition import run_as_stored

    path = write_gguf(tmp_path / "m.gguf", tiny_model("llama"), all_as(Kind.Q4_0))
    with pytest.raises(UnsupportedModel, match=r"GGUF run only on the CPU"):
        run_as_stored(config(path), torch.device("cuda"))
    assert not run_as_stored(config(path, dequantize=True), torch.device("cuda"))
