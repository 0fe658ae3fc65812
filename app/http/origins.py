"""Where the tokens of an answer came from, as every API writes it beside its deltas."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.core.constraint import Vocabulary
from app.core.events import Origins, OriginToken
from app.http.logprobs import LOWEST_LOGPROB, named_token
from app.http.openapi import Shape


class TokenOfTop(Shape):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenOrigin(Shape):
    token: str
    """Its text, with U+FFFD for what is no whole character by itself."""
    bytes: list[int]
    """Those of all tokens, joined, are the answer's text, with marks of reasoning and calls."""
    source: Literal["sampled", "drafted", "held", "leapt"]
    logprob: float | None = None
    """Where log-probabilities were asked for; null: it was not drawn as it stands."""
    top_logprobs: list[TokenOfTop] = Field(default=[])


class TokenOrigins(Shape):
    """From the answer's token ``index`` on, its tokens are now these."""

    index: int
    tokens: list[TokenOrigin]


def origins_entry(origins: Origins, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """``vocabulary`` is given where log-probabilities are asked for."""
    return {
        "index": origins.index,
        "tokens": [_entry(token, vocabulary) for token in origins.tokens],
    }


def merged(before: Origins | None, after: Origins) -> Origins:
    """Two changes as one."""
    if before is None or after.index <= before.index:
        return after
    kept = before.tokens[: after.index - before.index]
    return Origins(before.index, [*kept, *after.tokens])


def _entry(token: OriginToken, vocabulary: Vocabulary | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "token": token.data.decode(errors="replace"),
        "bytes": list(token.data),
        "source": token.source,
    }
    if vocabulary is None:
        return entry
    logprob = token.logprob
    names = vocabulary.token_bytes
    return {
        **entry,
        "logprob": None if logprob is None else max(logprob, LOWEST_LOGPROB),
        "top_logprobs": [named_token(names[top.token_id], top.logprob) for top in token.top],
    }
