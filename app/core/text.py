"""Text and tokens: what a model's tokenizer does for the layers above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.core.images import PromptImages

SEAM = "\udffe"
"""A separator in messages that no token crosses, so that the text around it is not read as the name
of a special token. A lone surrogate is in no text that a client sends."""


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt in tokens."""

    tokens: Sequence[int]
    tail: str | None = None
    """The last characters of a conversation's text, which tell whether it opens the reasoning."""
    images: PromptImages | None = None
    """Images of the prompt; None: it has none."""


class Tokenizer(Protocol):
    """The model's tokenizer and chat template. Any thread may call it."""

    def encode(self, text: str) -> list[int]:
        """Tokens of answer text, split as the model was trained on; no special tokens."""

    def encode_prompt(self, text: str, *, add_special_tokens: bool = False) -> Sequence[int]:
        """Tokens of prompt text; names of special tokens in it become those tokens."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones included."""

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        opens: bool = True,
    ) -> RenderedPrompt:
        """The prompt for the next message; unless it ``opens`` one, it ends behind the messages.

        Raises ``InvalidRequest`` if the template refuses.
        """
