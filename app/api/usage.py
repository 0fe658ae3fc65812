"""What an answer cost, as OpenAI's usage object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.core.events import AnswerUsage


def usage_object(
    prompt_tokens: int, usage: Mapping[int, AnswerUsage], reasoning_tokens: int = 0
) -> dict[str, Any]:
    """OpenAI's usage, and in its details how the tokens came about. The prompt counts once."""
    answers = usage.values()
    completion = sum(each.completion_tokens for each in answers)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt_tokens + completion,
        "prompt_tokens_details": {
            "cached_tokens": max((each.cached_tokens for each in answers), default=0),
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": min(reasoning_tokens, completion),
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
            "leapt_tokens": sum(each.leapt_tokens for each in answers),
            "drafted_tokens": sum(each.drafted_tokens for each in answers),
            "forward_passes": sum(each.forward_passes for each in answers),
        },
    }
