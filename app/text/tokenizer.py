"""A model's tokenizer: text to tokens, and chats to prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer as FastTokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from app.core.errors import InvalidRequest, UnsupportedModel

_SENTINEL = "\n"
"""Put before text whose tokenizer would add a space at the start; taken off again."""


class HfTokenizer:
    """A fast Hugging Face tokenizer, for prompts and for re-tokenizing answers. Thread-safe."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise UnsupportedModel("the tokenizer is not a fast one (it has no tokenizer.json)")
        self.hf = tokenizer
        self._prompts = FastTokenizer.from_str(backend.to_str())
        self._answers = FastTokenizer.from_str(backend.to_str())
        for own in (self._prompts, self._answers):
            own.no_truncation()
            own.no_padding()
        self._answers.encode_special_tokens = True
        self._sentinel_ids = self._find_sentinel()

    @classmethod
    def load(cls, name: str) -> HfTokenizer:
        """From a folder or a Hub name. Never runs code from the repository.

        Raises ``UnsupportedModel`` where there is no tokenizer to load.
        """
        try:
            return cls(AutoTokenizer.from_pretrained(name, trust_remote_code=False))
        except (OSError, ValueError, ImportError, KeyError) as error:
            raise UnsupportedModel(f"cannot load the tokenizer of {name}: {error}") from error

    def encode(self, text: str) -> list[int]:
        """Tokens of answer text: no special tokens, neither added nor read from the text."""
        if not self._sentinel_ids:
            return self._encode_answer(text)
        ids = self._encode_answer(_SENTINEL + text)
        return ids[len(self._sentinel_ids) :]

    def encode_prompt(self, text: str) -> list[int]:
        """Tokens of prompt text; names of special tokens in it become those tokens."""
        ids: list[int] = self._prompts.encode(text, add_special_tokens=False).ids
        return ids

    def render_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The prompt for the assistant's next message, by the model's own chat template.

        Raises ``InvalidRequest`` if the model has no chat template or the template refuses.
        """
        if not self.hf.chat_template:
            raise InvalidRequest("this model has no chat template", param="messages")
        try:
            text = self.hf.apply_chat_template(
                [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {error}", param="messages"
            ) from error
        return self.encode_prompt(str(text))

    def _encode_answer(self, text: str) -> list[int]:
        ids: list[int] = self._answers.encode(text, add_special_tokens=False).ids
        return ids

    def _find_sentinel(self) -> list[int]:
        """Tokens of the sentinel if this tokenizer needs one (SentencePiece adds a space)."""
        spelled = [self._answers.id_to_token(token) for token in self._encode_answer("a")]
        return [] if spelled == ["a"] else self._encode_answer(_SENTINEL)
