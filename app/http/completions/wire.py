"""Completion requests as they are on the wire (OpenAI API reference, and extensions)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema

from app.http.requests.constraints import ConstraintFields
from app.http.requests.generation import (
    NO_EFFECT,
    NOT_SERVED,
    ChoiceFields,
    GenerationFields,
    StreamOptions,
)
from app.http.requests.wire import Count, NotServed

_TOKEN_SCHEMA = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
_PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
        _TOKEN_SCHEMA,
        {"type": "array", "minItems": 1, "items": _TOKEN_SCHEMA},
    ]
}


class CompletionRequest(GenerationFields, ChoiceFields, ConstraintFields):
    """The fields this server acts on; None means the default, as OpenAI takes null."""

    not_served: ClassVar[NotServed] = {
        **NOT_SERVED,
        "add_special_tokens": (None, True),
        "bootstrap_host": (None,),
        "bootstrap_port": (None,),
        "bootstrap_room": (None,),
        "custom_labels": (None, {}),
        "custom_logit_processor": (None,),
        "custom_params": (None, {}),
        "data_parallel_rank": (None,),
        "disagg_prefill_dp_rank": (None,),
        "ec_transfer_params": (None,),
        "extra_key": (None,),
        "images_config": (None, {}),
        "logprob_token_ids": (None,),
        "ngram_corpus_id": (None,),
        "prompt_embeds": (None,),
        "repetition_detection": (None,),
        "return_cached_tokens_details": (None, False),
        "return_mm_kwargs": (None, True),
        "return_routed_experts": (None, False),
        "return_token_offsets": (None, False),
        "routed_dp_rank": (None,),
        "routed_experts_prompt_start": (None, 0),
        "routed_experts_start_len": (None, 0),
        "session_params": (None, {}),
        "stop_regex": (None, "", []),
        "stream_interval": (None, 1),
        "suffix": (None, ""),
        "thinking_token_budget": (None, -1),
        "truncation_side": (None,),
        "vllm_xargs": (None, {}),
        "watermarking": (None, False),
    }
    no_effect: ClassVar[frozenset[str]] = NO_EFFECT | {"rid", "session_id"}

    model: str
    # Checked in ``prompts``: a union would check every one of a million tokens four times over.
    prompt: Annotated[Any, WithJsonSchema(_PROMPT_SCHEMA)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Count | None = None
    best_of: Count | None = None
    max_tokens: Count | None = None
    """16 where it is missing or null, as OpenAI has it for this endpoint."""
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    """Report each token's log-probability, and those of so many likeliest tokens beside it."""
