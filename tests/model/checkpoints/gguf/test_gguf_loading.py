"""GGUF files of every kind we serve against transformers' plain models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("gguf")

from transformers import AutoModelForCausalLM

from app.core.errors import UnsupportedModel
from app.core.model_name import reads_gguf
from app.model.checkpoints.loading import eos_token_ids, load_model, read_config
from app.model.layers.quantized import QuantizedLinear
from app.model.layers.quantized_embedding import QuantizedEmbedding
from tests.model.checkpoints.gguf.files import Kind, all_as, as_q4_k_m, tiny_model, write_gguf
from tests.model.tiny import VOCAB, runner_config

pytestmark = pytest.mark.skipif(not reads_gguf(), reason="needs a recent transformers")

CPU = torch.device("cpu")
IDS = torch.randint(0, VOCAB, (1, 20), generator=torch.Generator().manual_seed(2))


@torch.inference_mode()
def logits(model: Any) -> Tensor:
    found: Tensor = model(IDS).logits
    return found


def loaded(path: str, dtype: torch.dtype = torch.float32) -> Any:
    return load_model(runner_config(path, random_weights=False), CPU, dtype)


def error(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize(
    ("name", "kind", "most"),
    [
        ("llama", all_as(Kind.Q8_0), 1e-6),
        ("llama", all_as(Kind.Q4_1), 1e-6),
        ("llama", as_q4_k_m, 3e-3),  # their scales are products, rounded to 16 bits
        ("llama, tied", all_as(Kind.Q4_0), 1e-6),
        ("qwen2", as_q4_k_m, 3e-3),
        ("qwen3", all_as(Kind.Q4_0), 1e-6),
    ],
)
def test_weights_are_the_values_that_transformers_unpacks(
    tmp_path: Path, name: str, kind: Any, most: float
) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_model(name), kind)
    found = loaded(path)
    assert isinstance(found.model.layers[0].mlp.down_proj, QuantizedLinear)
    assert isinstance(found.model.embed_tokens, QuantizedEmbedding)
    auto: Any = AutoModelForCausalLM
    plain = auto.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    assert error(logits(found), logits(plain)) < most


@pytest.mark.parametrize("name", ["gemma2", "gemma3"])
def test_gemma_is_the_model_that_was_written(tmp_path: Path, name: str) -> None:
    model = tiny_model(name)
    plain = loaded(write_gguf(tmp_path / "f.gguf", model, all_as(Kind.F32)))
    assert error(logits(plain), logits(model)) < 1e-6
    rounded = loaded(write_gguf(tmp_path / "q.gguf", model, all_as(Kind.Q8_0)))
    assert 0 < error(logits(rounded), logits(model)) < 0.03


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16])
def test_floats_stay_plain_linear_layers(tmp_path: Path, kind: Kind) -> None:
    model = tiny_model("llama")
    found = loaded(write_gguf(tmp_path / "m.gguf", model, all_as(kind)))
    assert type(found.lm_head) is torch.nn.Linear
    assert error(logits(found), logits(model)) < 0.03


def test_llama_3s_scaled_positions_come_from_their_tensor(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    model = tiny_model("llama", rope_parameters=rope)
    plain = tiny_model("llama").model.rotary_emb.inv_freq
    factors = plain / model.model.rotary_emb.inv_freq
    path = write_gguf(
        tmp_path / "m.gguf", model, all_as(Kind.F32), extra={"rope_freqs.weight": factors.numpy()}
    )
    assert error(logits(loaded(path)), logits(model)) < 1e-5
    assert error(logits(model), logits(tiny_model("llama"))) > 0.01


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    ],
    ids=["linear", "yarn"],
)
def test_scaled_positions_come_from_the_metadata(tmp_path: Path, rope: dict[str, Any]) -> None:
    model = tiny_model("qwen2", rope_parameters={**rope, "rope_theta": 10000.0})
    said: dict[str, float | str] = {
        "qwen2.rope.scaling.type": rope["rope_type"],
        "qwen2.rope.scaling.factor": rope["factor"],
    }
    if rope["rope_type"] == "yarn":
        said["qwen2.rope.scaling.original_context_length"] = 32
    path = write_gguf(tmp_path / "m.gguf", model, all_as(Kind.F32), said)
    assert error(logits(loaded(path)), logits(model)) < 1e-5


def test_ends_of_an_answer_come_from_the_metadata_and_from_names(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf",
        tiny_model("llama"),
        all_as(Kind.F32),
        {"tokenizer.ggml.eot_token_id": 9},
    )
    assert eos_token_ids(path) == {2, 9}
    config = read_config(path)
    assert (config.model_type, config.bos_token_id, config.vocab_size) == ("llama", 1, VOCAB)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"llama.expert_count": 8}, "expert_count = 8"),
        ({"llama.residual_scale": 0.5}, "llama.residual_scale = 0.5, which is not understood"),
        ({"llama.rope.scaling.type": "longrope"}, "scaled by longrope"),
        ({"split.count": 3}, "one of 3 parts"),
    ],
)
def test_what_a_file_says_and_nobody_understands_is_refused(
    tmp_path: Path, metadata: dict[str, float | str], reason: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_model("llama"), all_as(Kind.F32), metadata)
    with pytest.raises(UnsupportedModel, match=reason):
        loaded(path)


def test_other_types_other_tensors_and_missing_ones_are_refused_by_name(tmp_path: Path) -> None:
    model = tiny_model("llama")
    path = write_gguf(tmp_path / "a.gguf", model, all_as(Kind.Q5_0))
    with pytest.raises(UnsupportedModel, match=r"a\.gguf"):
        loaded(path)
    extra = {"blk.0.attn_sinks.weight": torch.zeros(4).numpy()}
    path = write_gguf(tmp_path / "b.gguf", model, all_as(Kind.F32), extra=extra)
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.attn_sinks\.weight"):
        loaded(path)
    missing = {k: v for k, v in model.state_dict().items() if "layers.1.mlp.up" not in k}
    model.state_dict = lambda: missing
    path = write_gguf(tmp_path / "c.gguf", model, all_as(Kind.Q8_0))
    with pytest.raises(UnsupportedModel, match=r"missing, model\.layers\.1\.mlp\.up_proj"):
        loaded(path)


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"nothing of the kind" * 10)
    with pytest.raises(UnsupportedModel, match="GGUF"):
        loaded(str(tmp_path / "m.gguf"))
    with pytest.raises(UnsupportedModel, match="cannot read"):
        read_config(str(tmp_path / "none.gguf"))
