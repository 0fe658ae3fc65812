"""Small configurations, made from the defaults of a configuration class.

Numbers with a known name are replaced in every part of a configuration; other values stay. So a new
kind usually needs no entry. ``OVERRIDES`` has the values of kinds whose parts have to fit each
other in ways of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCAB = 96
PLAIN_TOKENS = range(3, VOCAB - 5)
"""Tokens without a special meaning such as an end or an image."""
_LAYERS = 2

_WIDTHS = {
    32: "hidden_size n_embd d_model embed_dim embedding_size word_embed_proj_dim emb_dim lru_width"
    " dim_model_base pronunciation_embed_dim shape_embed_dim text_hidden_size out_hidden_size"
    " adapter_out_dim adapter_in_dim",
    48: "intermediate_size ffn_dim ffn_hidden_size d_ff dim_ff dff d_inner intermediate_size_mlp"
    " dense_intermediate_size decoder_ffn_dim encoder_ffn_dim",
    24: "moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size"
    " expert_ffn_hidden_size",
}
_HEADS = {
    4: "num_attention_heads n_head n_heads num_heads attention_heads decoder_attention_heads"
    " encoder_attention_heads swa_num_attention_heads rotary_dim qk_rope_head_dim",
    2: "num_key_value_heads num_kv_heads num_query_groups num_global_key_value_heads"
    " swa_num_key_value_heads index_n_heads",
    8: "head_dim global_head_dim kv_channels dim_head query_pre_attn_scalar swa_head_dim"
    " kv_lora_rank qk_nope_head_dim v_head_dim index_head_dim",
    16: "q_lora_rank",
}
_EXPERTS = {
    4: "num_experts num_local_experts n_routed_experts moe_num_experts",
    2: "num_experts_per_tok moe_topk moe_k num_experts_per_token",
    1: "n_group topk_group first_k_dense_replace num_shared_experts n_shared_experts",
}
_POSITIONS = {
    128: "max_position_embeddings n_positions max_seq_len max_sequence_length n_ctx"
    " model_max_length context_length index_topk",
    6: "sliding_window window_size sliding_window_size",
    8: "attention_chunk_size",
    12: "local_attention",
}
_STATES = {
    16: "mamba_d_state state_size ssm_state_size",
    8: "linear_key_head_dim linear_value_head_dim linear_head_dim mamba_n_heads mamba_d_head"
    " mamba_num_heads mamba_head_dim",
    4: "linear_num_value_heads linear_num_heads time_step_rank mamba_dt_rank",
    2: "linear_num_key_heads mamba_n_groups n_groups mamba_expand expand",
    64: "mamba_d_ssm",
}
_LAYER_COUNTS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "layers",
    "decoder_layers",
    "encoder_layers",
)
_SIZES: Mapping[str, Any] = {
    "vocab_size": VOCAB,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    # With small weights attention would be almost uniform.
    "initializer_range": 0.3,
    "init_std": 0.3,
    "is_decoder": True,
    **dict.fromkeys(_LAYER_COUNTS, _LAYERS),
    **{
        name: size
        for table in (_WIDTHS, _HEADS, _EXPERTS, _POSITIONS, _STATES)
        for size, names in table.items()
        for name in names.split()
    },
}
_SET_FROM_NONE = ("num_key_value_heads", "head_dim")

_ROUTED = {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
_SECTIONS = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
_INKLING = {"unpadded_vocab_size": VOCAB, "rel_extent": 10, "d_rel": 4, "log_scaling_n_floor": 8}
_ALTERNATING = ["sliding_attention", "full_attention"]

OVERRIDES: Mapping[str, Mapping[str, Any]] = {
    **{
        kind: {"rope_parameters": _SECTIONS}
        for kind in ("qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text", "paddleocr_vl_text",
                     "glm_ocr_text", "glm4v_text", "cosmos3_edge_text")
    },
    "apertus1p5": {
        "image_token_offset": 40, "audio_token_offset": 48,
        "vision_config": {"codebook_size": 8}, "audio_config": {"codebook_size": 8},
    },
    "bailing_hybrid": _ROUTED,
    "chameleon_vqgan": {"base_channels": 32, "channel_multiplier": [1, 1], "num_embeddings": 16},
    "chameleon": {"vocabulary_map": {"<image>": VOCAB - 4}},
    "clip_vision_model": {"hidden_size": 64},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}},
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        "ffn_config": {"hidden_size": 32, "ffn_hidden_size": 48, "moe_top_k": 2},
    },
    "deepseek_ocr2_text": {**_ROUTED, "mlp_layer_types": ["dense", "sparse"]},
    "deepseek_v2": _ROUTED,
    "dots1": {**_ROUTED, "n_routed_experts": 4, "n_shared_experts": 1},
    "dots3_note_audio_encoder": {"adapter_input_size": 32},
    "dots3_note_text": {"head_dim": 12},
    "dots3_note_vision_encoder": {"mlp_layer_types": ["dense"] * 2, "per_layer_config": {}},
    "ernie4_5_vl_moe_text": {
        "moe_intermediate_size": [24, 24],
        "rope_parameters": {**_SECTIONS, "mrope_section": [1, 1, 2]},
    },
    "fun_asr_nano": {"adaptor_config": {"intermediate_size": 8}},
    "gemma3n_text": {
        "num_hidden_layers": 4,
        "layer_types": _ALTERNATING * 2,
        "num_kv_shared_layers": 2,
        "intermediate_size": [48] * 4,
        "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0],
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 8,
        "vocab_size_per_layer_input": VOCAB,
    },
    "gemma4_assistant": {
        "text_config": {
            "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
            "num_kv_shared_layers": 4,
        },
    },
    "gemma4_text": {
        "num_hidden_layers": 4,
        "layer_types": _ALTERNATING * 2,
        "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCAB,
        "per_layer_config": None,
    },
    "glm4v_moe_text": {
        "rope_parameters": {
            **_SECTIONS, "mrope_section": [1, 1, 0], "partial_rotary_factor": 0.5,
        },
    },
    "glm5_next_text": {"qk_rope_head_dim": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granite4_vision": {"deepstack_layer_map": [], "downsample_rate": "4/8"},
    "granite4_vision_text": {"hidden_size": 64},
    "hy_v4_vl_text": {"rope_parameters": {**_SECTIONS, "mrope_section": [1, 1, 0]}},
    "hunyuan_vl_text": {
        "rope_parameters": {**_SECTIONS, "mrope_section": [1, 1, 1, 1]},
    },
    "inkling2_loop_text": {
        **_INKLING, "n_layers_per_attn_res_block": 1, "loop_layer_index_start": 1,
        "loop_layer_index_end": 6, "loop_gate_rank": 4,
    },
    "inkling2_text": _INKLING,
    "inkling_vision": {"num_hidden_layers": 6, "n_layers": 6, "patch_size": 4},
    "inkling_text": _INKLING,
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "longcat_flash": {"head_dim": 4},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "molmo2_adapter": {"vision_feature_layer": [1, 0]},
    "molmo2_text": {"rope_scaling_layers": [0, 1], "additional_vocab_size": 8},
    "muse_spark_audio": {
        "num_hidden_layers": 4, "hidden_sizes": [8, 8, 8, 8], "out_hidden_size": 32,
    },
    "nemotron3_diarization": {"head_config": {"audio_hidden_size": 32}},
    "phi4_multimodal_audio": {"num_blocks": 1, "ext_pw_out_channel": 32, "nemo_conv_channels": 32,
                              "depthwise_separable_out_channel": 32},
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 24},
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 64,
        "indexer_compress_ratio": 4, "ple_layer_ids": [1], "ple_embed_dim": 32,
        "heads_per_ngram": 2, "ngram_vocab_size_base": 50, "split_ngram_parts": 1,
        "eos_token_id": 40,  # a token that the texts contain
    },
    "radio": {"video_temporal_patch_size": 2},
    "reformer": {
        "axial_pos_embds_dim": [16, 16], "axial_pos_shape": [8, 16], "attention_head_size": 8,
        "feed_forward_size": 48, "attn_layers": ["local", "lsh"],
    },
    "roc_bert": {"shape_vocab_size": VOCAB},
    "step3p5": {"sliding_window": 6, "share_expert_dim": 24},
    "vibevoice_acoustic_tokenizer_encoder": {
        "num_filters": 2, "depths": [1] * 7, "hidden_size": 16,
    },
    "zamba": {
        "num_hidden_layers": 4, "mamba_dt_rank": 4, "attention_hidden_size": 64,
        "attention_head_dim": 16, "num_key_value_heads": 4,
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
    },
    "wavtokenizer_encoder": {"codebook_dim": 32},
    "xlm": {"causal": True},
    "xmod": {"default_language": "en_XX"},
    "zamba2": {
        "num_hidden_layers": 3, "layer_types": ["linear_attention", "hybrid", "linear_attention"],
        "num_key_value_heads": 4, "attention_hidden_size": 64, "attention_head_dim": 16,
        "mamba_headdim": 8, "hybrid_layer_ids": [1], "adapter_rank": 4, "kv_channels": 8,
    },
    "zaya": {"num_experts_per_tok": 1},
}  # fmt: skip


_STARTS: Mapping[str, Mapping[str, Any]] = {
    "gemma4_assistant": {
        "text_config": {
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0,
            "num_kv_shared_layers": 30,
        },
    },
}
"""Arguments without which a configuration class fails."""


def small_config(kind: str) -> PretrainedConfig:
    """A configuration of ``kind`` whose model takes milliseconds to make and to run.

    It has each type of layer that the kind's models have.
    """
    family: Any = CONFIG_MAPPING[kind]
    return _shrunk(family(**_STARTS.get(kind, {})))


def _shrunk(default: PretrainedConfig) -> PretrainedConfig:
    family: Any = type(default)
    known = default.to_dict()
    parts = {name: getattr(default, name, None) for name in family.sub_configs}
    values: dict[str, Any] = {
        name: _shrunk(part).to_dict()
        for name, part in parts.items()
        if isinstance(part, PretrainedConfig)
    }
    for name, size in _SIZES.items():
        if name in known and name not in parts and _is_replaced(name, known[name], size):
            values[name] = _layers(default) if name in _LAYER_COUNTS else size
    for name, token in known.items():
        if name.endswith(("_token_id", "_token_index")) and isinstance(token, int):
            values.setdefault(name, VOCAB - 4)
    if known.get("kv_lora_rank"):  # latent attention has as many key heads as query heads
        values["num_key_value_heads"] = values["num_attention_heads"]
        values.pop("head_dim", None)
    for name, value in OVERRIDES.get(default.model_type, {}).items():
        within = isinstance(value, dict) and isinstance(values.get(name), dict)
        values[name] = values[name] | value if within else value
    config: PretrainedConfig = family(**values)
    return config


def _layers(default: PretrainedConfig) -> int:
    """Number of layers that includes each type of layer."""
    types = [*(getattr(default, "layer_types", None) or ())]
    return max([_LAYERS, *(1 + types.index(each) for each in set(types))])


def _is_replaced(name: str, known: Any, size: Any) -> bool:
    if known is None:
        return name in _SET_FROM_NONE
    return isinstance(known, bool) == isinstance(size, bool) and isinstance(known, int | float)
