"""A model's tokenizer: text to tokens, and chats to prompts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer as FastTokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from app.core.errors import InvalidRequest, UnsupportedModel
from app.core.model_name import is_gguf
from app.core.text import SEAM, RenderedPrompt
from app.text.gguf_tokenizer import gguf_tokenizer
from app.text.vocabulary import backend_of

_SENTINEL = "\n"
"""Prefix for text whose tokenizer would add a space at the start; removed afterwards."""

_TAIL = 64

_OWN_ARGUMENTS = frozenset(
    inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters
) | {"messages"}
"""Arguments set by the server, which requests cannot set."""


class HfTokenizer:
    """A fast Hugging Face tokenizer, for prompts and for re-tokenizing answers. Thread-safe."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_characters: int = 4 << 20) -> None:
        """``max_characters``: of a prompt; to tokenize one takes up to 400 bytes of memory."""
        self.hf = tokenizer
        self._max_characters = max_characters
        self._prompts: FastTokenizer = backend_of(tokenizer)
        self._answers = _copy(self._prompts)
        for own in (self._prompts, self._answers):
            own.no_truncation()
            own.no_padding()
        self._answers.encode_special_tokens = True
        spelled = [self._answers.id_to_token(token) for token in self._encode_answer("a")]
        # SentencePiece adds a space to what stands first.
        self._sentinel_ids = [] if spelled == ["a"] else self._encode_answer(_SENTINEL)
        self._marks: dict[str, int] = {}
        self._mark_pattern = re.compile("")

    @classmethod
    def load(cls, name: str, max_characters: int = 4 << 20) -> HfTokenizer:
        """The tokenizer of a folder, Hub name or GGUF file. Never runs code from the repository.

        Raises ``UnsupportedModel`` if there is no tokenizer to load.
        """
        if is_gguf(name):
            return cls(gguf_tokenizer(name), max_characters)
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        except Exception as error:  # tokenizers raises no kind of its own
            raise UnsupportedModel(f"cannot load the tokenizer of {name}: {error}") from error
        return cls(tokenizer, max_characters)

    @property
    def chat_template(self) -> str | None:
        """The chat template; several of them are put one after the other."""
        template = self.hf.chat_template
        return "\n".join(template.values()) if isinstance(template, dict) else template

    @property
    def special_tokens(self) -> frozenset[str]:
        """The names of the special tokens, as they are spelled in text."""
        added = self._prompts.get_added_tokens_decoder().values()
        return frozenset(token.content for token in added if token.special)

    @property
    def reads_schemas(self) -> bool:
        """Whether the model reads JSON Schema: ``reads_schemas`` of ``tokenizer_config.json``."""
        return self.hf.init_kwargs.get("reads_schemas") is not False

    @property
    def takes_text(self) -> bool:
        """Whether the chat template writes content given as text, rather than as a list of parts.

        Also true if it writes neither: there is no template, or it refuses both.
        """
        text, parts = "a message", [{"type": "text", "text": "a message"}]
        return self._writes("user", text) == 1 or self._writes("user", parts) != 1

    @property
    def takes_system(self) -> bool:
        """Whether the chat template writes what a system message says."""
        mark = "a system message"
        content = mark if self.takes_text else [{"type": "text", "text": mark}]
        return self._writes("system", content, mark) > 0

    def takes_images(self, marker: str) -> bool:
        """Whether the chat template writes ``marker`` for a part of a message that is an image."""
        content = [{"type": "image"}, {"type": "text", "text": "a message"}]
        return self._writes("user", content) == self._writes("user", content, marker) == 1

    def _writes(self, role: str, content: Any, mark: str = "a message") -> int:
        """How often the template writes ``mark`` for such a message."""
        user = "x" if isinstance(content, str) else [{"type": "text", "text": "x"}]
        messages = [{"role": role, "content": content}]
        if role != "user":
            messages.append({"role": "user", "content": user})
        try:
            return str(self.hf.apply_chat_template(messages, tokenize=False)).count(mark)
        except Exception:  # a template may raise anything; requests get its error later
            return 0

    def make_writable(self, marks: Collection[str]) -> None:
        """Let answers hold the special tokens that are spelled as one of ``marks``.

        ``encode`` then reads them from the text as the tokens they are, as ``Vocabulary`` spells
        them with the same marks. The end of sequence stays what it is. Call before threads share
        the tokenizer.
        """
        self._marks = {
            token.content: number
            for number, token in self._prompts.get_added_tokens_decoder().items()
            if token.special and token.content in marks and token.content != self.hf.eos_token
        }
        longest_first = sorted(self._marks, key=len, reverse=True)
        self._mark_pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def encode(self, text: str) -> list[int]:
        """Tokens of answer text: no special tokens, neither added nor read from the text.

        Marks made writable are the exception.
        """
        if not self._marks:
            return self._encode_plain(text)
        ids: list[int] = []
        for part in self._mark_pattern.split(text):
            if part in self._marks:
                ids.append(self._marks[part])
            elif part:
                ids += self._encode_plain(part)
        return ids

    def encode_prompt(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Tokens of prompt text; names of special tokens in it become those tokens.

        ``add_special_tokens`` adds the tokenizer's default tokens before and after it (mostly the
        beginning of sequence); a chat template writes these itself. Raises ``InvalidRequest``.
        """
        self._check_length(text)
        # encode_batch_fast releases the GIL; encode does not.
        (encoding,) = self._prompts.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones by their names; ids that are no tokens add nothing."""
        # See encode_prompt.
        (text,) = self._prompts.decode_batch([list(tokens)], skip_special_tokens=False)
        return str(text)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        opens: bool = True,
    ) -> RenderedPrompt:
        """The prompt for the assistant's next message, by the model's own chat template.

        ``opens``: it begins that message; else it ends after the others. ``options``: further
        variables of the template. Raises ``InvalidRequest`` if the model has no chat template, if
        the template refuses, or for an option that requests cannot set.
        """
        if not self.hf.chat_template:
            raise InvalidRequest(
                "this model has no chat template; send a prompt to /v1/completions",
                param="messages",
            )
        options = dict(options or {})
        taken = sorted(_OWN_ARGUMENTS & options.keys())
        if taken:
            raise InvalidRequest(
                f"{taken[0]!r} cannot be set by a request", param="chat_template_kwargs"
            )
        try:
            text = self.hf.apply_chat_template(
                [dict(message) for message in messages],
                tools=None if tools is None else [dict(tool) for tool in tools],
                tokenize=False,
                add_generation_prompt=opens,
                **options,
            )
        except (
            *(TemplateError, TypeError, ValueError, LookupError, ArithmeticError),
            *(AttributeError, RecursionError),
        ) as error:
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {error}", param="messages"
            ) from error
        self._check_length(str(text))
        pieces = str(text).split(SEAM)
        tokens = [token for piece in pieces for token in self.encode_prompt(piece)]
        return RenderedPrompt(tokens, "".join(pieces)[-_TAIL:])

    def _check_length(self, text: str) -> None:
        if len(text) > self._max_characters:
            raise InvalidRequest(
                f"the prompt has {len(text)} characters of text and the limit is "
                f"{self._max_characters} (LEAPJSON_MAX_BODY_BYTES); shorten it",
                role="prompt",
            )

    def _encode_plain(self, text: str) -> list[int]:
        if not self._sentinel_ids:
            return self._encode_answer(text)
        return self._encode_answer(_SENTINEL + text)[len(self._sentinel_ids) :]

    def _encode_answer(self, text: str) -> list[int]:
        ids: list[int] = self._answers.encode(text, add_special_tokens=False).ids
        return ids


def _copy(tokenizer: FastTokenizer) -> FastTokenizer:
    """A tokenizer with options of its own; both have the same vocabulary in memory."""
    copy = FastTokenizer(tokenizer.model)
    for part in ("normalizer", "pre_tokenizer", "decoder", "post_processor"):
        if (own := getattr(tokenizer, part)) is not None:
            setattr(copy, part, own)
    added = tokenizer.get_added_tokens_decoder()
    in_order = [added[number] for number in sorted(added)]
    for special, tokens in groupby(in_order, lambda token: bool(token.special)):
        (copy.add_special_tokens if special else copy.add_tokens)([*tokens])
    if copy.get_added_tokens_decoder() != added:  # the model was replaced after they were added
        return FastTokenizer.from_str(tokenizer.to_str())
    return copy
