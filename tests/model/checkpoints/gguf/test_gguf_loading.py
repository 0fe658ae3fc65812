"""GGUF files of every served architecture, compared with transformers' models."""

from __future__ import annotations

import logging
import os
import re
import struct
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from torch import Tensor, nn

from app.core import gguf_file
from app.core.errors import UnsupportedModel
from app.model.checkpoints.gguf.configuration import ARCHITECTURES
from app.model.checkpoints.loading import eos_token_ids, read_config
from app.model.layers.quantized import QuantizedEmbedding, QuantizedExperts, QuantizedLinear
from tests.model.checkpoints.gguf.files import (
    MODELS,
    Kind,
    all_as,
    as_q4_k_m,
    configured,
    converted,
    tiny_model,
    write_gguf,
)
from tests.model.tiny import VOCAB, load_model, runner_config

CPU = torch.device("cpu")
IDS = torch.randint(0, VOCAB, (1, 20), generator=torch.Generator().manual_seed(2))


@torch.inference_mode()
def logits(model: Any) -> Tensor:
    found: Tensor = model(IDS).logits
    return found


def loaded(path: str, dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    return load_model(runner_config(path, random_weights=False, **settings), CPU, dtype)


def error(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_floats_is_the_model_that_was_written(tmp_path: Path, name: str) -> None:
    model = tiny_model(name)
    found = loaded(write_gguf(tmp_path / "m.gguf", model, all_as(Kind.F32)))
    assert type(found) is type(model)
    assert error(logits(found), logits(model)) < 1e-5


def test_every_architecture_that_is_served_is_among_them() -> None:
    assert {made.architecture for made in MODELS.values()} == ARCHITECTURES.keys()


@pytest.mark.parametrize("name", MODELS)
def test_weights_stay_as_they_are_stored_and_mean_what_the_package_gguf_unpacks(
    tmp_path: Path, name: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_model(name), all_as(Kind.Q5_1))
    stored, floats = loaded(path), loaded(path, dequantize=True)
    layers = [each for each in stored.modules() if isinstance(each, QuantizedLinear)]
    linears = [each for each in floats.modules() if isinstance(each, nn.Linear)]
    wide = [each for each in linears if each.out_features > 4 and each.in_features >= 32]
    assert len(layers) >= len(wide)
    assert isinstance(stored.get_input_embeddings(), QuantizedEmbedding)
    assert error(logits(stored), logits(floats)) < 1e-5


@pytest.mark.parametrize("name", ["llama", "mixtral", "qwen35", "gpt-oss", "gpt2"])
@pytest.mark.parametrize("kind", [as_q4_k_m, all_as(Kind.MXFP4), all_as(Kind.IQ4_XS)])
def test_so_do_those_of_other_types(tmp_path: Path, name: str, kind: Any) -> None:
    # Scales of Q4_K, Q6_K and IQ4_XS are products that are rounded to 16 bits.
    path = write_gguf(tmp_path / "m.gguf", tiny_model(name), kind)
    stored, floats = loaded(path), loaded(path, dequantize=True)
    assert error(logits(stored), logits(floats)) < 5e-3


def test_experts_are_linear_layers_of_their_own(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_model("qwen3moe"), all_as(Kind.Q4_1))
    experts = loaded(path).model.layers[0].mlp.experts
    assert isinstance(experts, QuantizedExperts)
    assert len(experts.gate_up) == len(experts.down) == 4


@pytest.mark.parametrize("part", ["gate", "down"])
def test_experts_that_are_quantised_in_part_are_refused_with_the_remedy(
    tmp_path: Path, part: str
) -> None:
    def kind(name: str) -> Kind:
        return all_as(Kind.F16 if f"ffn_{part}_exps" in name else Kind.Q4_1)(name)

    path = write_gguf(tmp_path / "m.gguf", tiny_model("qwen3moe"), kind)
    with pytest.raises(UnsupportedModel, match=r"only some weights of .*LEAPJSON_DEQUANTIZE"):
        loaded(path)
    assert loaded(path, dequantize=True)


def test_a_type_without_panels_is_rounded_to_8_bits_and_the_log_says_what_it_costs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def kind(name: str) -> Kind:
        return Kind.Q2_K if "ffn" in name else Kind.IQ3_S if "attn_q" in name else Kind.Q8_0

    path = write_gguf(tmp_path / "m.gguf", tiny_model("llama"), kind)
    with caplog.at_level(logging.WARNING):
        stored = loaded(path)
    (line,) = [each.message for each in caplog.records if "rounded" in each.message]
    found = re.search(r"2 of IQ3_S, 6 of Q2_K, with an error of at most (\d\.\d\d)%", line)
    assert found is not None, line
    assert 0.2 < float(found[1]) < 1
    assert error(logits(stored), logits(loaded(path, dequantize=True))) < 0.02


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
    model, plain = tiny_model("llama", rope_parameters=rope), tiny_model("llama")
    factors = plain.model.rotary_emb.inv_freq / model.model.rotary_emb.inv_freq
    extra = {"rope_freqs.weight": factors.numpy()}
    path = write_gguf(tmp_path / "m.gguf", plain, all_as(Kind.F32), extra=extra)
    assert error(logits(loaded(path)), logits(model)) < 1e-5
    assert error(logits(model), logits(plain)) > 0.01


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    ],
    ids=["linear", "yarn", "yarn of the context length"],
)
def test_scaled_positions_come_from_the_metadata(tmp_path: Path, rope: dict[str, Any]) -> None:
    model = tiny_model("qwen2", rope_parameters={**rope, "rope_theta": 10000.0})
    said: dict[str, float | str] = {
        "qwen2.rope.scaling.type": rope["rope_type"],
        "qwen2.rope.scaling.factor": rope["factor"],
    }
    if rope.get("original_max_position_embeddings") == 32:
        said["qwen2.rope.scaling.original_context_length"] = 32
    path = write_gguf(tmp_path / "m.gguf", tiny_model("qwen2"), all_as(Kind.F32), said)
    assert error(logits(loaded(path)), logits(model)) < 1e-5


def test_layers_that_guess_further_tokens_are_left_out(tmp_path: Path) -> None:
    model = tiny_model("qwen35")
    said: dict[str, float | str] = {"qwen35.nextn_predict_layers": 1, "qwen35.block_count": 5}
    extra = {"blk.4.nextn.eh_proj.weight": torch.zeros(4, 8).numpy()}
    path = write_gguf(tmp_path / "m.gguf", model, all_as(Kind.F32), said, extra)
    assert error(logits(loaded(path)), logits(model)) < 1e-5


def test_ends_of_an_answer_come_from_the_metadata_and_from_names(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf",
        tiny_model("llama"),
        all_as(Kind.F32),
        {"tokenizer.ggml.eot_token_id": 9, "tokenizer.ggml.eom_token_id": 7},
    )
    assert eos_token_ids(path) == {2, 7, 9}
    config = read_config(path)
    assert (config.model_type, config.bos_token_id, config.vocab_size) == ("llama", 1, VOCAB)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"llama.residual_scale": 0.5}, "unknown metadata llama.residual_scale = 0.5"),
        ({"llama.rope.scaling.type": "longrope"}, "RoPE scaling of type longrope"),
        ({"llama.rope.dimension_count": 32}, "rotates 32 of 64 dimensions of a head"),
        ({"llama.attention.head_count_kv": [2, 1]}, "with different llama.attention.head_count_kv"),
        ({"split.count": 3}, "one of 3 parts"),
        ({"llama.block_count": 1_000_000}, "1000000 blocks but 21 tensors"),
        ({"llama.attention.head_count": 0}, "cannot read the metadata"),
    ],
)
def test_unsupported_metadata_is_refused(
    tmp_path: Path, metadata: dict[str, Any], reason: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", tiny_model("llama"), all_as(Kind.F32), metadata)
    with pytest.raises(UnsupportedModel, match=reason):
        loaded(path)


def test_a_list_that_is_too_short_for_the_layers_is_refused(tmp_path: Path) -> None:
    metadata: dict[str, Any] = {"gemma3.attention.sliding_window_pattern": [True]}
    path = write_gguf(tmp_path / "m.gguf", tiny_model("gemma3"), all_as(Kind.F32), metadata)
    with pytest.raises(UnsupportedModel, match="cannot read the metadata"):
        loaded(path)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("t5", "an encoder-decoder"), ("deci", "whose layers differ"), ("rwkv7", "GGUF files of")],
)
def test_other_architectures_are_refused_by_name(tmp_path: Path, name: str, reason: str) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", name)
    writer.add_tensor("token_embd.weight", torch.zeros(4, 8).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match=f"architecture {name}.*{reason}"):
        loaded(str(tmp_path / "m.gguf"))


def test_other_tensors_missing_ones_and_types_that_nobody_unpacks_are_refused_by_name(
    tmp_path: Path,
) -> None:
    model = tiny_model("llama")
    extra = {"blk.0.attn_sinks.weight": torch.zeros(4).numpy()}
    path = write_gguf(tmp_path / "b.gguf", model, all_as(Kind.F32), extra=extra)
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.attn_sinks\.weight"):
        loaded(path)
    missing = {k: v for k, v in model.state_dict().items() if "layers.1.mlp.up" not in k}
    model.state_dict = lambda: missing
    path = write_gguf(tmp_path / "c.gguf", model, all_as(Kind.Q8_0))
    with pytest.raises(UnsupportedModel, match=r"lacks 1 weights.* model\.layers\.1\.mlp\.up_proj"):
        loaded(path)
    path = write_gguf(tmp_path / "d.gguf", tiny_model("llama"), all_as(Kind.Q8_K))
    with pytest.raises(UnsupportedModel, match=r"Q8_K, which the package gguf cannot unpack"):
        loaded(path)


def test_a_file_that_is_not_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"nothing of the kind" * 10)
    with pytest.raises(UnsupportedModel, match="GGUF"):
        loaded(str(tmp_path / "m.gguf"))
    with pytest.raises(UnsupportedModel, match="cannot read"):
        read_config(str(tmp_path / "none.gguf"))


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


ALIGNMENT = text(b"general.alignment")
NAME = text(b"general.name")
BROKEN = {
    "aligned to nothing": (1, 0, ALIGNMENT + struct.pack("<II", 4, 0)),
    "aligned to a text": (1, 0, ALIGNMENT + struct.pack("<I", 8) + text(b"wide")),
    "a list in lists": (1, 0, NAME + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5_000),
    "a text without an end": (1, 0, NAME + struct.pack("<IQ", 8, 1 << 40)),
    "a tensor of many axes": (0, 1, text(b"output.weight") + struct.pack("<I", 1 << 30)),
}


@pytest.mark.parametrize(("keys", "tensors", "content"), BROKEN.values(), ids=BROKEN)
def test_a_header_that_cannot_be_is_refused(
    tmp_path: Path, keys: int, tensors: int, content: bytes
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + content)
    with pytest.raises(UnsupportedModel, match="cannot read"):
        read_config(str(path))


def test_a_file_in_parts_is_read_from_any_of_them(tmp_path: Path) -> None:
    model = tiny_model("llama")
    said = {f"llama.{key}": value for key, value in configured(model).items()}
    tensors = list(converted(model).items())
    for number in range(3):
        writer = gguf.GGUFWriter(tmp_path / f"m-{number + 1:05}-of-00003.gguf", "llama")
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 3)
        writer.add_int32("split.tensors.count", len(tensors))
        for key, value in said.items() if number == 0 else ():
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
        for name, tensor in tensors[number::3]:
            writer.add_tensor(name, tensor.numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    first, second, third = sorted(map(str, tmp_path.glob("*.gguf")))
    for path in (first, second):
        assert error(logits(loaded(path)), logits(model)) < 1e-6
    Path(third).unlink()
    with pytest.raises(UnsupportedModel, match=r"one of 3 parts, and .*m-00003-of-00003\.gguf"):
        loaded(second)


def test_a_file_is_read_once_until_it_is_changed_or_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    read = gguf_file._read

    def counted(path: str) -> Any:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(gguf_file, "_read", counted)
    path = write_gguf(tmp_path / "model.gguf", tiny_model("llama"), all_as(Kind.F32))
    read_config(path)
    assert eos_token_ids(path) == {2}
    assert len(reads) == 1
    os.utime(path, (1, 1))
    read_config(path)
    assert len(reads) == 2
    gguf_file.forget_gguf()
    read_config(path)
    assert len(reads) == 3
