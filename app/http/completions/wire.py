"""Completion requests as they are on the wire (OpenAI API reference, and extensions)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from app.http.chat.wire import StreamOptions
from app.http.requests.constraints import ConstraintFields
from app.http.requests.sampling import SamplingFields
from app.http.requests.wire import Neutral

NEUTRAL: Neutral = {
    "add_special_tokens": (None, True),
    "allowed_token_ids": (None,),
    "bad_words": (None, []),
    "bootstrap_host": (None,),
    "bootstrap_port": (None,),
    "bootstrap_room": (None,),
    "cache_salt": (None,),
    "custom_labels": (None, {}),
    "custom_logit_processor": (None,),
    "custom_params": (None, {}),
    "data_parallel_rank": (None,),
    "disagg_prefill_dp_rank": (None,),
    "echo": (None, False),
    "ec_transfer_params": (None,),
    "extra_key": (None,),
    "guided_decoding_backend": (None,),
    "guided_whitespace_pattern": (None,),
    "images_config": (None, {}),
    "include_stop_str_in_output": (None, False),
    "kv_transfer_params": (None,),
    "length_penalty": (None, 1, 1.0),
    "logits_processors": (None, []),
    "logprob_token_ids": (None,),
    "lora_path": (None,),
    "ngram_corpus_id": (None,),
    "no_stop_trim": (None, False),
    "priority": (None, 0),
    "prompt_embeds": (None,),
    "prompt_logprobs": (None,),
    "repetition_detection": (None,),
    "return_cached_tokens_details": (None, False),
    "return_hidden_states": (None, False),
    "return_mm_kwargs": (None, True),
    "return_routed_experts": (None, False),
    "return_token_ids": (None, False),
    "return_token_offsets": (None, False),
    "return_tokens_as_token_ids": (None, False),
    "routed_dp_rank": (None,),
    "routed_experts_prompt_start": (None, 0),
    "routed_experts_start_len": (None, 0),
    "service_tier": (None, "auto", "default"),
    "session_params": (None, {}),
    "skip_special_tokens": (None, True),
    "spaces_between_special_tokens": (None, True, False),
    "stop_regex": (None, "", []),
    "store": (None, False),
    "stream_interval": (None, 1),
    "suffix": (None, ""),
    "thinking_token_budget": (None, -1),
    "truncate_prompt_tokens": (None,),
    "truncation_side": (None,),
    "use_beam_search": (None, False),
    "vllm_xargs": (None, {}),
    "watermarking": (None, False),
}
"""Known to clients of OpenAI, vLLM and SGLang, and not served here."""

HARMLESS = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "request_id",
        "rid",
        "safety_identifier",
        "session_id",
        "user",
    }
)
"""Fields that do not change what is generated: labels, and hints about caches."""

_TOKEN_SCHEMA = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
_PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
        _TOKEN_SCHEMA,
        {"type": "array", "minItems": 1, "items": _TOKEN_SCHEMA},
    ]
}


class CompletionRequest(SamplingFields, ConstraintFields):
    """The fields this server acts on; None means the default, as OpenAI takes null."""

    model: str
    # Checked in ``prompts``: a union would check every one of a million tokens four times over.
    prompt: Annotated[Any, WithJsonSchema(_PROMPT_SCHEMA)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    best_of: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    """16 where it is missing or null, as OpenAI has it for this endpoint."""
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    """Report each token's log-probability, and those of so many likeliest tokens beside it."""
