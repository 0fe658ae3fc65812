"""Fields of OpenAI, Anthropic, vLLM, SGLang, llama.cpp and OpenRouter that are not acted on.

One table for all APIs that generate, as clients send the same fields everywhere; each API adds
fields that have another name there. ``docs/requests.md`` lists the refused ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.http.requests.constraints import ExtensionFields
from app.http.requests.wire import Unsupported

NO_EFFECT = frozenset(
    [
        *("cache_control", "cache_prompt", "client_metadata", "custom_labels", "diagnostics"),
        *("metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("request_id", "rid", "safety_identifier", "session_id", "user", "user_profile_id"),
        "workspace_id",
    ]
)
"""Labels, and hints about caches: prefixes are always shared."""


def refused(instead: str, *harmless: Any) -> Unsupported:
    """A field that is refused, as it would change the answer, except null and ``harmless``."""
    return Unsupported((None, *harmless), instead)


def left_out(*harmless: Any) -> Unsupported:
    """A field that is ignored, as it would not change the answer."""
    return Unsupported((None, *harmless))


def renamed(names: Mapping[str, Sequence[str]]) -> dict[str, Unsupported]:
    """Fields refused because this API has another name for them, the key in ``names``."""
    return {name: refused(f"use {here}") for here, each in names.items() for name in each}


_DRAWING = "use temperature, top_p, top_k and min_p"
_PENALTY = "use repetition_penalty, frequency_penalty or presence_penalty"
_CACHES = "the prefix cache is managed by the server; leave it out"
_TOOLS = "use tools and tool_choice"
_MORE = "there are no further fields to include; leave it out"
_KEPT = "send the conversation itself"
_WHOLE = "prompts are never truncated; shorten it yourself"
_IN_CONSTRAINT = "use a constraint, or logit_bias"
_TEMPLATE = "the model's own chat template is always used; leave it out"
_SPECIAL = "texts contain no special tokens; leave it out"

UNSUPPORTED: Mapping[str, Unsupported] = {
    **dict.fromkeys(
        [
            *("access_programs", "background_options", "bootstrap_host", "bootstrap_port"),
            *("bootstrap_room", "data_parallel_rank", "disagg_prefill_dp_rank"),
            *("ec_transfer_params", "guided_decoding_backend", "inference_geo"),
            *("kv_transfer_params", "ngram_corpus_id", "routed_dp_rank", "truncation_side"),
        ],
        left_out(),
    ),
    **dict.fromkeys(
        ["custom_params", "images_config", "media_io_kwargs", "mm_processor_kwargs", "vllm_xargs"],
        left_out({}),
    ),
    # The prompt.
    "add_generation_prompt": refused("answers always continue the prompt; leave it out", True),
    "chat_template": refused(_TEMPLATE),
    "continue_final_message": refused("use /v1/chat/completions", False),
    "context_management": left_out([], {}),
    "conversation": refused(_KEPT),
    "documents": refused("put them into the messages", []),
    "echo": refused("join the prompt and the answer yourself", False),
    "previous_input_messages": refused(_KEPT, []),
    "previous_response_id": refused("use /v1/responses, or send the conversation itself"),
    "prompt_embeds": refused("send text or tokens"),
    "session_params": refused(_KEPT, {}),
    "suffix": refused("answers continue the prompt only; leave it out", ""),
    "truncate_prompt_tokens": refused(_WHOLE),
    "truncation": left_out("disabled"),
    "image": refused("prompts must be text"),
    "return_mm_kwargs": left_out(True),
    # The content of the answer.
    "audio": refused("only text is generated; leave it out"),
    "function_call": refused(_TOOLS, "none"),
    "functions": refused(_TOOLS, []),
    "guided_whitespace_pattern": refused("use structured_outputs.whitespace_pattern"),
    "modalities": refused("only text is generated; leave it out", ["text"]),
    "mcp_servers": refused("define them as functions in tools", []),
    "container": refused("the server runs no tools; leave it out"),
    "lora_path": refused("name the adapter in model, as model:adapter"),
    "moderation": refused("leave it out"),
    "verbosity": left_out("medium"),
    "watermarking": refused("leave it out", False),
    "web_search_options": refused("leave it out"),
    # The end of the answer.
    "include_stop_str_in_output": refused("add the stop string yourself", False),
    "no_stop_trim": refused("add the stop string yourself", False),
    "repetition_detection": refused(_PENALTY),
    "stop_regex": refused("use stop, or a regex as the constraint", "", []),
    "thinking_token_budget": refused("use reasoning.max_tokens", -1),
    "t_max_predict_ms": refused("use timeout", 0),
    # Sampling.
    "allowed_token_ids": refused(_IN_CONSTRAINT),
    "bad_words": refused(_IN_CONSTRAINT, []),
    "custom_logit_processor": refused("use logit_bias or a constraint"),
    "dry_multiplier": refused(_PENALTY, 0, 0.0),
    "dynatemp_range": refused(_DRAWING, 0, 0.0),
    "length_penalty": left_out(1, 1.0),
    "logits_processors": refused("use logit_bias or a constraint", []),
    "mirostat": refused(_DRAWING, 0),
    "no_repeat_ngram_size": refused(_PENALTY, 0),
    "tfs_z": refused(_DRAWING, 1, 1.0),
    "top_a": refused(_DRAWING, 0, 0.0),
    "top_n_sigma": refused(_DRAWING, -1, -1.0),
    "typical_p": refused(_DRAWING, 1, 1.0),
    "use_beam_search": refused("use n", False),
    "xtc_probability": refused(_DRAWING, 0, 0.0),
    # Reports beside the answer.
    "logprob_token_ids": refused("use top_logprobs"),
    "n_probs": refused("use logprobs", 0),
    **dict.fromkeys(
        [
            *("enable_response_messages", "return_hidden_states", "return_routed_experts"),
            "return_token_offsets",
        ],
        refused(_MORE, False),
    ),
    "prompt_logprobs": refused(_MORE),
    "return_cached_tokens_details": refused("usage has the cached tokens", False),
    "return_token_ids": refused("use /tokenize", False),
    "return_tokens_as_token_ids": refused("use /tokenize", False),
    "routed_experts_prompt_start": left_out(0),
    "routed_experts_start_len": left_out(0),
    "separate_reasoning": refused("join reasoning_content and content yourself", True),
    "skip_special_tokens": refused(_SPECIAL, True),
    "spaces_between_special_tokens": left_out(True, False),
    "stream_interval": left_out(1),
    "stream_reasoning": left_out(True),
    # How it is served.
    "background": refused("use stream, or wait for the answer", False),
    "cache_salt": refused(_CACHES),
    "extra_key": refused(_CACHES),
    "priority": left_out(0),
    "speed": left_out("standard"),
    "store": left_out(False),
}

_CONSTRAINTS = tuple(ExtensionFields.model_fields)
"""Fields that name a constraint, of which Anthropic's API has one of its own."""

_CHAT_ALONE = dict.fromkeys(
    [
        *("chat_template_kwargs", "include_reasoning", "reasoning", "reasoning_effort"),
        *("thinking", "tool_choice", "tools"),
    ],
    refused("use /v1/chat/completions"),
)

_IN_CHAT: Mapping[str, tuple[str, ...]] = {
    "max_tokens": ("max_new_tokens", "max_output_tokens", "max_tokens_to_sample"),
    "messages": ("input", "instructions", "prompt", "system"),
    "response_format": ("format", "output_config", "output_format", "text"),
    "stop": ("stop_sequences",),
}
_IN_COMPLETIONS = {
    **_IN_CHAT,
    "max_tokens": (*_IN_CHAT["max_tokens"], "max_completion_tokens"),
    "messages": (),
    "prompt": ("input", "instructions", "messages", "system"),
    "logprobs": ("top_logprobs",),
}
_IN_RESPONSES = {
    "text.format": ("format", "output_config", "output_format", "response_format"),
    "tools": ("functions",),
    "reasoning.exclude": ("include_reasoning",),
    "reasoning.effort": ("reasoning_effort",),
    "max_output_tokens": (
        *("max_completion_tokens", "max_new_tokens", "max_tokens", "max_tokens_to_sample"),
    ),
    "input": ("messages",),
    "instructions": ("system",),
    "stop": ("stop_sequences",),
}
_IN_MESSAGES = {
    "output_config.format": (*_CONSTRAINTS, "format", "response_format", "text"),
    "output_config.effort": ("reasoning_effort",),
    "thinking": ("reasoning",),
    "thinking.display": ("include_reasoning",),
    "max_tokens": (*_IN_CHAT["max_tokens"], "max_completion_tokens"),
    "messages": ("input", "prompt"),
    "system": ("instructions",),
    "stop_sequences": ("stop",),
}


def _without(*names: str) -> dict[str, Unsupported]:
    """``UNSUPPORTED`` for an API that supports ``names``."""
    return {name: field for name, field in UNSUPPORTED.items() if name not in names}


CHAT: Mapping[str, Unsupported] = {
    **_without("add_generation_prompt", "continue_final_message"),
    **renamed(_IN_CHAT),
    "add_special_tokens": refused(_TEMPLATE, False),
    "best_of": refused("use n", 1),
    "max_tool_calls": left_out(),
}
COMPLETIONS: Mapping[str, Unsupported] = {
    **_without("echo"),
    **_CHAT_ALONE,
    **renamed(_IN_COMPLETIONS),
    "add_special_tokens": refused("leave it out", True),
    "schema_in_prompt": refused("prompts are used unchanged; leave it out", "auto", False),
}
RESPONSES: Mapping[str, Unsupported] = {
    **_without("previous_response_id", "store"),
    **renamed(_IN_RESPONSES),
    "best_of": refused("send several requests", 1),
    "logprobs": refused("use top_logprobs", False),
    "n": refused("send several requests", 1),
    "prompt": refused(_KEPT),
}
MESSAGES: Mapping[str, Unsupported] = {
    **_without("context_management"),
    **renamed(_IN_MESSAGES),
    "best_of": refused("send several requests", 1),
    "chat_template_kwargs": refused("use thinking"),
    "logprobs": refused("ask /v1/chat/completions", False),
    "n": refused("send several requests", 1),
    "parallel_tool_calls": refused("use tool_choice.disable_parallel_tool_use", True),
    "top_logprobs": refused("ask /v1/chat/completions", 0),
}
