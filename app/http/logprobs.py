"""Log-probabilities of an answer's tokens, as chat completions have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.core.constraint import Vocabulary
from app.core.events import AnswerToken

LOWEST_LOGPROB = -9999.0
"""What OpenAI reports for a probability of zero; JSON has no infinity."""


def logprob_entries(tokens: Sequence[AnswerToken], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """``logprobs.content`` for tokens that added text; their bytes, joined, are the text."""
    names = vocabulary.token_bytes
    return [
        {
            **named_token(token.data, token.logprob),
            "top_logprobs": [named_token(names[top.token_id], top.logprob) for top in token.top],
        }
        for token in tokens
        if token.data
    ]


def named_token(data: bytes | None, logprob: float) -> dict[str, Any]:
    """A token without bytes of its own (end of sequence, say) has an empty name."""
    return {
        "token": (data or b"").decode(errors="replace"),
        "logprob": max(logprob, LOWEST_LOGPROB),
        "bytes": None if data is None else list(data),
    }
