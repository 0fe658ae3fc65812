"""All kinds of models in transformers that may generate text, and the most popular ones."""

from __future__ import annotations

from collections.abc import Mapping

from transformers.models.auto import modeling_auto

CAUSAL: Mapping[str, str] = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
SEVERAL_PARTS: Mapping[str, str] = {
    **modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
    **modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
}
"""Kinds that take images or sound beside text."""

NOT_OF_TEXT: Mapping[str, str] = {
    "blip": "every layer of its decoder reads an image, and its `generate` needs one",
    "diffusion_gemma": "generates blocks of text by diffusion",
    "evolla": "reads a protein with every question",
    "gemma4_assistant": "a draft model that reads the keys and values of another model",
    "gemma4_unified_assistant": "a draft model that reads the keys and values of another model",
    "hrm_text": "reads its prompt in both directions (`prefix_lm`)",
    "idefics": "needs an image with every text",
    "kyutai_speech_to_text": "adds audio to every token",
    "paligemma": "reads its prompt in both directions",
    "pi0": "generates movements of a robot",
    "voxtral_realtime": "adds audio to every token",
    "xlnet": "reads its text in a permuted order",
}
"""Kinds that do not generate text token by token from text alone in transformers either."""

POPULAR: tuple[str, ...] = (
    "apertus", "bloom", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "deepseek_v32",
    "deepseek_v4", "ernie4_5_moe", "exaone4", "falcon", "falcon_h1", "gemma", "gemma2", "gemma3",
    "gemma3n_text", "gemma4", "glm4", "glm4_moe", "glm5_next", "glm_moe_dsa", "gpt2", "gpt_neox",
    "gpt_oss", "granite", "granitemoehybrid", "hunyuan_v1_dense", "hunyuan_vl", "idefics3",
    "inkling_text", "internvl", "jamba", "kimi_linear", "lfm2", "llama", "llama4", "llava", "mamba",
    "mamba2", "minimax", "minimax_m2", "ministral3", "mistral", "mistral3", "mixtral", "mpt",
    "nemotron_h", "olmo2", "olmo3", "opt", "paligemma", "phi", "phi3", "qwen2", "qwen2_5_vl",
    "qwen2_moe", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_moe", "qwen3_next", "qwen3_vl",
    "qwen4_exp", "recurrent_gemma", "roberta", "seed_oss", "smollm3", "starcoder2",
)  # fmt: skip
"""The most popular kinds, in alphabetical order."""


def every_kind() -> list[str]:
    """``model_type`` of each kind's configuration, sorted."""
    return sorted({*CAUSAL, *SEVERAL_PARTS})
