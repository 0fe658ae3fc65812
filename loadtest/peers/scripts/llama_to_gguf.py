"""Writes a Hugging Face Llama in bfloat16 as GGUF: ``llama_to_gguf.py FOLDER TARGET KIND``.

For models with a byte-level BPE that splits text as GPT-2 does. With the kind BF16 weights are
copied unchanged, with Q8_0 or Q4_0 every matrix is quantised as in llama.cpp; norms become float32,
as llama.cpp requires. Needs only the packages gguf and numpy.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from llama_weights import interleave, read_safetensors

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
COMPLETE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def main() -> None:
    folder, target, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "llama", config["model_type"]
    writer = gguf.GGUFWriter(target, "llama")
    write_config(writer, config)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}"])
    write_tokenizer(writer, folder, config)
    for name, weight in read_safetensors(folder / "model.safetensors"):
        heads = None
        if ".q_proj" in name:
            heads = config["num_attention_heads"]
        elif ".k_proj" in name:
            heads = config["num_key_value_heads"]
        if heads is not None:
            weight = interleave(weight, heads)
        name = renamed(name.removesuffix(".weight")) + ".weight"
        write_tensor(writer, name, weight, gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_config(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    rope = config.get("rope_parameters") or {}
    writer.add_name("peer")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_freq_base(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def write_tokenizer(writer: gguf.GGUFWriter, folder: Path, config: dict[str, Any]) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    ids = dict(tokenizer["model"]["vocab"])
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    ids.update(special)
    names = sorted(ids, key=ids.__getitem__)
    assert [ids[name] for name in names] == list(range(config["vocab_size"]))
    kinds = [gguf.TokenType.CONTROL if name in special else gguf.TokenType.NORMAL for name in names]
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(chat_template(folder))


def chat_template(folder: Path) -> str:
    """The chat template of a folder: from its own file, where newer ones have it."""
    own = folder / "chat_template.jinja"
    if own.exists():
        return own.read_text(encoding="utf-8")
    described = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    template: str = described["chat_template"]
    return template


def renamed(name: str) -> str:
    if name in COMPLETE:
        return COMPLETE[name]
    _, _, number, part = name.split(".", 3)
    return f"blk.{number}.{LAYER[part]}"


def write_tensor(
    writer: gguf.GGUFWriter, name: str, bits: np.ndarray, kind: gguf.GGMLQuantizationType
) -> None:
    if kind == gguf.GGMLQuantizationType.BF16 and bits.ndim > 1:
        writer.add_tensor(name, bits.view(np.uint8), raw_dtype=kind)
        return
    values = (bits.astype(np.uint32) << 16).view(np.float32)
    if bits.ndim == 1:
        writer.add_tensor(name, values)
    else:
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


if __name__ == "__main__":
    main()
