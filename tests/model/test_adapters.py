"""Adapters in random batches against models whose weights they are merged into, in float32."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from app.core.errors import UnsupportedModel
from app.core.step import Span
from app.model.composition import load_runner
from app.model.config import AdaptersConfig
from app.model.cpu.kernels import panels
from tests.model.hybrid import hybrid_runner, lively_model
from tests.model.peft_files import ATTENTION, MLP, merge, save_adapter
from tests.model.rows import (
    drawn_rows,
    expected_logprobs,
    random_sequences,
    row_logprobs,
    run_randomly,
)
from tests.model.tiny import (
    CONFIGS,
    VOCAB,
    eager_model,
    load_model,
    runner_config,
    save_config,
)
from tests.model.vision.seeing import seeing

MODELS: dict[str, tuple[str, ...]] = {
    "llama": ATTENTION + MLP,
    "qwen3": ATTENTION + MLP,
    "gemma3 with a window": ATTENTION + MLP,
    "gpt2": ("c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"),
    "gpt-oss with sinks and a window": ATTENTION,
    "deepseek with latent attention": ("q_a_proj", "q_b_proj", "o_proj"),
}
"""Adapted modules, by model; in a mixture of experts only those of attention."""
TEXTS = ((41, 1), (3, 0), (17, 2), (30, 1), (25, 0))
"""Number of tokens of each sequence, and the slot of its adapter."""


def served(tmp_path: Path, name: str, **changes: Any) -> tuple[Any, list[Any]]:
    """A runner with two adapters, and for each slot the plain model to compare with."""
    model = save_config(tmp_path / "model", name)
    first = save_adapter(tmp_path / "first", eager_model(model), MODELS[name])
    second = save_adapter(
        tmp_path / "second", eager_model(model), MODELS[name][:1], rank=3, seed=1, lora_alpha=6
    )
    named = {"first": str(first), "second": str(second)}
    config = AdaptersConfig(named=named, count=3, rank=4)
    runner = load_runner(runner_config(model, adapters=config, **changes))
    merged = [merge(eager_model(model), folder) for folder in (first, second)]
    return runner, [eager_model(model), *merged]


@pytest.mark.parametrize("name", MODELS)
def test_each_sequence_of_a_batch_runs_with_its_own_adapter(name: str, tmp_path: Path) -> None:
    runner, models = served(tmp_path, name)
    dice = random.Random(name)
    sequences = random_sequences(runner, [length for length, _ in TEXTS], dice)
    for sequence, (_, slot) in zip(sequences, TEXTS, strict=True):
        sequence.adapter = slot
    found = run_randomly(runner, sequences, dice, share=1)
    for sequence, rows in zip(sequences, found, strict=True):
        expected = expected_logprobs(models[sequence.adapter], sequence.tokens)
        np.testing.assert_allclose([rows[at] for at in range(len(expected))], expected, atol=1e-4)
    plain = expected_logprobs(models[0], sequences[0].tokens)
    assert np.abs(found[0][40] - plain[40]).max() > 1


def all_rows(
    runner: Any, text: list[int], adapter: int
) -> tuple[list[Span], list[tuple[int, int]]]:
    """A step of one text, with all its rows."""
    blocks = [list(range(-(-len(text) // runner.block_size)))]
    span = Span(text, 0, blocks * len(runner.cache_groups), adapter=adapter)
    return [span], [(0, at) for at in range(len(text))]


def logprobs_alone(runner: Any, text: list[int], adapter: int) -> Any:
    """Log-probabilities at every position, [T, V], of a text that is alone in its step."""
    return np.stack(row_logprobs(runner, *all_rows(runner, text, adapter)))


def test_layers_with_a_state_are_adapted_like_others(tmp_path: Path) -> None:
    model = lively_model("qwen3_5_text")
    endings = ("in_proj_qkv", "in_proj_z", "out_proj", "q_proj", "o_proj")
    adapter = save_adapter(tmp_path / "adapter", model, endings, size=0.1)
    config = AdaptersConfig(named={"one": str(adapter)}, count=1, rank=4)
    runner = hybrid_runner(tmp_path / "model", model, adapters=config)
    text = list(range(20, 40))
    plain, merged = expected_logprobs(model, text), expected_logprobs(merge(model, adapter), text)
    np.testing.assert_allclose(logprobs_alone(runner, text, 0), plain, atol=2e-4)
    np.testing.assert_allclose(logprobs_alone(runner, text, 1), merged, atol=2e-4)
    assert np.abs(plain - merged).max() > 0.5


@pytest.mark.parametrize("images", [False, True])
def test_an_adapter_of_the_language_model_fits_it_alone_and_as_a_part(
    images: bool, tmp_path: Path
) -> None:
    whole: Any = seeing(tmp_path / "model", "qwen3_5").model
    base = str(tmp_path / "model")
    settings = runner_config(base, random_weights=False, images=False)
    alone = load_model(settings, torch.device("cpu"), torch.float32)
    named = {}
    for name, trained in (("alone", alone), ("within", whole)):
        named[name] = str(save_adapter(tmp_path / name, trained, ("q_proj", "out_proj"), size=0.5))
    config = AdaptersConfig(named=named, count=2, rank=4)
    changes = {"random_weights": False, "adapters": config, "images": images}
    runner = load_runner(runner_config(base, **changes))
    assert (runner.vision is not None) == images
    text = list(range(20, 40))
    plain, one, other = [drawn_rows(runner, *all_rows(runner, text, slot)) for slot in range(3)]
    assert plain != one == other


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_in_bfloat16_a_row_does_not_depend_on_the_adapters_beside_it(
    quantize: str | None, tmp_path: Path
) -> None:
    changes = {"dtype": "bfloat16", "quantize": quantize}
    if not panels.runs_here():
        pytest.skip("needs AVX2 on Linux")
    runner, models = served(tmp_path, "llama", **changes)
    text = list(range(20, 32))
    wanted = [logprobs_alone(runner, text, slot) for slot in (0, 1, 2)]
    spans = [Span(text, 0, [[4 * slot, 4 * slot + 1, 4 * slot + 2]], adapter=slot)
             for slot in (2, 0, 1)]  # fmt: skip
    rows = row_logprobs(runner, spans, [(i, at) for i in range(3) for at in range(len(text))])
    found = np.reshape(rows, (3, len(text), VOCAB))
    for index, slot in enumerate((2, 0, 1)):
        np.testing.assert_array_equal(found[index], wanted[slot])
        exact = expected_logprobs(models[slot], text)
        assert np.abs(found[index] - exact).mean() < 0.2


def test_a_projection_whose_weight_is_taken_apart_is_not_adapted(tmp_path: Path) -> None:
    model = save_config(tmp_path / "model", "deepseek with latent attention")
    adapter = save_adapter(tmp_path / "adapter", eager_model(model), ("kv_b_proj",))
    config = AdaptersConfig(named={"one": str(adapter)}, rank=4)
    with pytest.raises(UnsupportedModel, match=r"it adapts model.layers.0.self_attn.kv_b_proj"):
        load_runner(runner_config(model, adapters=config))


def test_names_are_those_of_the_models_that_are_tried() -> None:
    assert set(MODELS) < set(CONFIGS)
