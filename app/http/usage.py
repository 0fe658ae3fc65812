"""What an answer cost, as OpenAI's usage object."""

from __future__ import annotations

from typing import Any

from app.serving.generation import Generation


def usage_object(generation: Generation, reasoning_tokens: int = 0) -> dict[str, Any]:
    """OpenAI's usage so far, and in its details how the tokens came about.

    A prompt counts once, however many choices it has.
    """
    answers = generation.usage.values()
    prompt_tokens = generation.prompt_tokens
    completion = sum(each.completion_tokens for each in answers)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt_tokens + completion,
        "prompt_tokens_details": {
            "cached_tokens": generation.cached_tokens,
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
