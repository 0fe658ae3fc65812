"""Every kind of model in transformers that may write text, and the sixty that people use most."""

from __future__ import annotations

from collections.abc import Mapping

from transformers.models.auto import modeling_auto

CAUSAL: Mapping[str, str] = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
SEVERAL_PARTS: Mapping[str, str] = {
    **modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
    **modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
}
"""Kinds with images or sounds beside the text."""

POPULAR: tuple[str, ...] = (
    "apertus", "bloom", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "deepseek_v32",
    "ernie4_5_moe", "exaone4", "falcon", "falcon_h1", "gemma", "gemma2", "gemma3", "gemma3n_text",
    "gemma4", "glm4", "glm4_moe", "glm_moe_dsa", "gpt2", "gpt_neox", "gpt_oss", "granite",
    "granitemoehybrid", "hunyuan_v1_dense", "idefics3", "internvl", "jamba", "kimi_linear", "lfm2",
    "llama", "llama4", "llava", "mamba", "mamba2", "minimax_m2", "ministral3", "mistral",
    "mistral3", "mixtral", "mpt", "nemotron_h", "olmo2", "olmo3", "opt", "paligemma", "phi", "phi3",
    "qwen2", "qwen2_5_vl", "qwen2_moe", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_moe",
    "qwen3_next", "qwen3_vl", "seed_oss", "smollm3", "starcoder2",
)  # fmt: skip
"""In an order in which lists of such models put them: by their own names."""


def every_kind() -> list[str]:
    """``model_type`` of each kind's configuration, sorted."""
    return sorted({*CAUSAL, *SEVERAL_PARTS})
