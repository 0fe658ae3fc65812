"""The language part of a multimodal checkpoint gives the whole model's logits for text."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from app.core.errors import UnsupportedModel
from app.model.checkpoints.language_part import keep_language_part
from app.model.checkpoints.loading import eos_token_ids, read_config
from app.model.layers.architecture import position_limit
from app.model.layers.model_call import logits_of
from tests.model.reach.small import small_config
from tests.model.tiny import VOCAB, load_model, runner_config

CPU = torch.device("cpu")


def stored(folder: Path, kind: str) -> PreTrainedModel:
    """A whole model with random weights, saved to ``folder`` by its own class."""
    auto: Any = AutoModelForImageTextToText
    torch.manual_seed(0)
    model: PreTrainedModel = auto.from_config(small_config(kind), attn_implementation="eager")
    model.eval().save_pretrained(folder)
    return model


def loaded(folder: Path, *, images: bool = False) -> PreTrainedModel:
    config = runner_config(str(folder), random_weights=False, images=images)
    return load_model(config, CPU, torch.float32)


@torch.inference_mode()
def logits(model: PreTrainedModel) -> torch.Tensor:
    return logits_of(model, torch.arange(20, 40).unsqueeze(0), None, 0)


LANGUAGE_CLASS = {
    "gemma3": "Gemma3ForConditionalGeneration",
    "idefics3": "Idefics3ForConditionalGeneration",
    "llama4": "Llama4ForCausalLM",
    "llava": "LlavaForConditionalGeneration",
    "mistral3": "Mistral3ForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_5": "Qwen3_5ForCausalLM",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
}


WHOLE_LLAMA_4 = pytest.param(
    "llama4",
    marks=pytest.mark.skipif(
        transformers.__version__ == "5.24.0",
        reason="the whole Llama 4 of transformers 5.24.0 never runs",
    ),
)


@pytest.mark.parametrize("kind", [WHOLE_LLAMA_4, *sorted(LANGUAGE_CLASS.keys() - {"llama4"})])
def test_the_language_part_of_a_checkpoint_gives_the_logits_of_the_whole_model(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = stored(tmp_path, kind)
    expected = logits(whole)
    with caplog.at_level(logging.INFO):
        part = loaded(tmp_path)
    torch.testing.assert_close(logits(part), expected, atol=1e-5, rtol=1e-5)
    assert type(part).__name__ == LANGUAGE_CLASS[kind]
    assert part.num_parameters() < whole.num_parameters()
    if type(part) is type(whole):
        assert "served as a text model" in caplog.text
    assert not any("vis" in name for name, _ in part.named_parameters())


@pytest.mark.parametrize("kind", [WHOLE_LLAMA_4, "qwen3_5"])
def test_the_whole_model_is_loaded_if_images_are_wanted(kind: str, tmp_path: Path) -> None:
    whole = stored(tmp_path, kind)
    part = loaded(tmp_path, images=True)
    assert type(part) is type(whole)
    torch.testing.assert_close(logits(part), logits(whole), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["blip-2", "kosmos-2", "nemotron_h_omni"])
def test_a_language_model_within_one_that_wants_images_is_served_alone(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = small_config(kind)
    config.save_pretrained(tmp_path)
    with caplog.at_level(logging.INFO):
        part = load_model(runner_config(str(tmp_path)), CPU, torch.float32)
    assert type(part.config) is type(config.get_text_config())
    assert part.can_generate()
    assert "only" in caplog.text
    assert logits(part).shape == (20, VOCAB)


def test_a_decoder_that_reads_an_image_in_its_layers_is_no_language_model(tmp_path: Path) -> None:
    small_config("blip").save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match="does not run on two tokens of text"):
        load_model(runner_config(str(tmp_path)), CPU, torch.float32)


def test_limits_and_ends_are_those_of_the_language_part(tmp_path: Path) -> None:
    stored(tmp_path, "qwen2_5_vl")
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config["text_config"] |= {"max_position_embeddings": 77, "eos_token_id": 5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert position_limit(read_config(str(tmp_path))) == 77
    assert eos_token_ids(str(tmp_path)) == {5}


def test_a_missing_weight_of_the_language_part_is_refused(tmp_path: Path) -> None:
    stored(tmp_path, "qwen2_5_vl")
    weights = load_file(tmp_path / "model.safetensors")
    [name] = [each for each in weights if each.endswith("layers.1.mlp.up_proj.weight")]
    del weights[name]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnsupportedModel, match=r"lacks 1 weights.*up_proj"):
        loaded(tmp_path)


def test_a_part_that_the_forward_pass_reads_is_kept(tmp_path: Path) -> None:
    """Its removal would end in an error, so the model is served with it."""
    model: Any = stored(tmp_path, "llava")
    tower = model.model.vision_tower
    forward = model.model.forward

    def asks(*args: Any, **kwargs: Any) -> Any:
        assert model.model.vision_tower.dtype == torch.float32
        return forward(*args, **kwargs)

    model.model.forward = asks
    keep_language_part(model)
    assert model.model.vision_tower is tower


def test_a_model_without_the_library_of_its_encoder_is_served_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its language model is created, by the class for that part."""
    monkeypatch.setattr("app.model.checkpoints.language_part.is_timm_available", lambda: False)
    config = small_config("gemma3n")
    auto: Any = AutoModelForCausalLM
    torch.manual_seed(0)
    language = auto.from_config(config.get_text_config(), attn_implementation="eager").eval()
    names = language.state_dict().keys() - {"lm_head.weight"}
    weights = {
        name.replace("model.", "model.language_model.", 1): language.state_dict()[name].contiguous()
        for name in names
    }
    config.save_pretrained(tmp_path)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    part = loaded(tmp_path)
    assert type(part).__name__ == "Gemma3nForCausalLM"
    torch.testing.assert_close(logits(part), logits(language))


def test_a_model_that_is_no_language_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(UnsupportedModel, match="vit is not a causal language model"):
        loaded(tmp_path)
