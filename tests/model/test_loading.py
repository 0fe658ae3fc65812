"""Loading: where weights may come from, and the limits that follow from the configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from app.core.errors import UnsupportedModel
from app.core.request import SamplingParams
from app.core.step import Draw, LogitsRow, Span, StepPlan
from app.model.loading import eos_token_ids
from app.model.runner import TorchRunner, load_runner
from tests.model.tiny import VOCAB, eager_model, runner_config, save_config, tiny_runner


def greedy_token(runner: TorchRunner) -> int:
    runner.launch(StepPlan([Span([5, 6, 7], 0, [[0]])], [LogitsRow(0, 2)]))
    return runner.sample([Draw(SamplingParams(temperature=0.0), 0)]).wait().tokens[0].token_id


def test_stored_weights_are_served(tmp_path: Path) -> None:
    eager_model(save_config(tmp_path / "config", "llama")).save_pretrained(tmp_path / "stored")
    made_up = load_runner(runner_config(str(tmp_path / "config")))
    stored = load_runner(runner_config(str(tmp_path / "stored"), random_weights=False))
    assert greedy_token(stored) == greedy_token(made_up)


def test_missing_weights_are_refused_and_not_made_up(tmp_path: Path) -> None:
    eager_model(save_config(tmp_path, "llama")).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnsupportedModel, match=r"lacks 1 weights.*up_proj"):
        load_runner(runner_config(str(tmp_path), random_weights=False))


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    model = eager_model(save_config(tmp_path, "llama"))
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UnsupportedModel, match="safetensors"):
        load_runner(runner_config(str(tmp_path), random_weights=False))


def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text("raise SystemExit('the code of the model was run')")
    with pytest.raises(UnsupportedModel, match="configuration"):
        load_runner(runner_config(str(tmp_path)))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="cannot read the configuration"):
        load_runner(runner_config(str(tmp_path / "nothing")))


def test_the_description_says_what_was_loaded(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path, "llama", kv_cache_bytes=1 << 16)
    seen = runner.description
    assert (seen.architecture, seen.device, seen.dtype) == ("LlamaForCausalLM", "cpu", "float32")
    assert seen.parameters == eager_model(str(tmp_path)).num_parameters()
    # 2 layers x (key + value) x 2 heads x 8 dimensions x 4 bytes = 256 bytes a token.
    assert (runner.num_blocks + 1) * runner.block_size * 256 == 1 << 16
    assert runner.max_model_len == 128


def test_the_context_is_no_longer_than_the_cache(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path, "llama", kv_cache_bytes=256 * 4 * 9)
    assert (runner.num_blocks, runner.max_model_len) == (8, 32)
    with pytest.raises(UnsupportedModel, match="cache holds 32 tokens"):
        tiny_runner(tmp_path, "llama", kv_cache_bytes=256 * 4 * 9, max_model_len=33)


def test_the_context_is_no_longer_than_the_model_was_made_for(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="made for 128"):
        tiny_runner(tmp_path, "llama", max_model_len=129)


def test_a_cache_without_room_for_a_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="hold no block"):
        tiny_runner(tmp_path, "llama", kv_cache_bytes=100)


def test_a_tokenizer_larger_than_the_logits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="tokenizer"):
        tiny_runner(tmp_path, "llama", vocab_size=VOCAB + 1)


def test_padding_of_the_logits_is_never_sampled(tmp_path: Path) -> None:
    runner = tiny_runner(tmp_path, "llama", vocab_size=5)
    runner.launch(StepPlan([Span([1, 2, 3], 0, [[0]])], [LogitsRow(0, 2)] * 50))
    drawn = runner.sample([Draw(SamplingParams(temperature=5.0), key) for key in range(50)]).wait()
    assert {token.token_id for token in drawn.tokens} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("asked", "frozen_long"), [(None, True), (16, False)])
def test_longrope_is_frozen_by_the_longest_context(
    asked: int | None, frozen_long: bool, tmp_path: Path
) -> None:
    model = eager_model(save_config(tmp_path, "phi3 with longrope"), max_model_len=asked)
    rope = model.model.rotary_emb
    assert rope.inv_freq[0] == pytest.approx(0.25 if frozen_long else 1.0)
    rope(torch.zeros(1, 1, 32), torch.tensor([[3]]))
    assert rope.inv_freq[0] == pytest.approx(0.25 if frozen_long else 1.0)


def test_end_of_sequence_ids_come_from_the_generation_config_first(tmp_path: Path) -> None:
    model = save_config(tmp_path, "llama", eos_token_id=2)
    assert eos_token_ids(model) == {2}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert eos_token_ids(model) == {7, 9}
