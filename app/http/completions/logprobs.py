"""Log-probabilities as legacy completions have them: four lists, with an item for each token."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Any

from app.core.constraint import Vocabulary
from app.core.events import AnswerToken
from app.core.text import Tokenizer
from app.http.logprobs import LOWEST_LOGPROB

TokenName = Callable[[int], str]
"""The name of a token that was not drawn."""


def spelled(data: bytes) -> str:
    """Bytes as text, or as ``bytes:\\xe2\\x80``, as OpenAI writes parts of a character."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def token_name(vocabulary: Vocabulary, tokenizer: Tokenizer) -> TokenName:
    """Tokens without bytes of their own are special ones, which the tokenizer can write."""

    def name(token: int) -> str:
        data = vocabulary.token_bytes[token]
        return tokenizer.decode([token]) if data is None else spelled(data)

    return name


class ChoiceLogprobs:
    """The log-probabilities of one choice, as its tokens come."""

    def __init__(self, name: TokenName) -> None:
        self._name = name
        self._named = False
        """Whether tokens without text are reported, too, by their names."""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._characters = 0
        """Whole characters before the next token, which may be inside the one after them."""

    def of(
        self,
        tokens: Sequence[AnswerToken],
        prompt: Sequence[AnswerToken] = (),
        text: str = "",
    ) -> dict[str, Any]:
        """``logprobs`` for the next tokens; those that added no text are left out.

        ``text_offset`` counts characters of the choice's text. Where that begins with the
        ``prompt``, whose text is ``text``, all tokens are there, the first without a probability:
        evaluations count them.
        """
        if prompt:
            self._named = True
        if not self._named:
            tokens = [token for token in tokens if token.data]
        tokens = [*prompt, *tokens]
        first = tokens[0] if prompt else None
        return {
            "text_offset": [self._advance(token, text) for token in tokens],
            "token_logprobs": [
                None if token is first else _finite(token.logprob) for token in tokens
            ],
            "tokens": [self._spelled(token) for token in tokens],
            "top_logprobs": [
                None if token is first else self._likeliest(token) for token in tokens
            ],
        }

    def _spelled(self, token: AnswerToken) -> str:
        return spelled(token.data) if token.data else self._name(token.token_id)

    def _advance(self, token: AnswerToken, text: str) -> int:
        begins = self._characters
        name = "" if token.data else self._name(token.token_id)
        if name and text.startswith(name, begins):  # a special token that the prompt names
            self._characters += len(name)
        self._characters += len(self._decoder.decode(token.data))
        return begins

    def _likeliest(self, token: AnswerToken) -> dict[str, float]:
        """By name; the drawn token is always among them, so there may be one more than asked for.

        Of tokens with the same name (one spelled in a special way, say) the likeliest counts.
        """
        drawn = self._spelled(token)
        likeliest: dict[str, float] = {}
        for top in token.top:
            name = drawn if top.token_id == token.token_id else self._name(top.token_id)
            likeliest.setdefault(name, _finite(top.logprob))
        likeliest.setdefault(drawn, _finite(token.logprob))
        return likeliest


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST_LOGPROB)
