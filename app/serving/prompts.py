"""Prompts in tokens, off the event loop where that takes long."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TypeVar

from app.answer.formats import ChatFormat
from app.answer.prompt import (
    Conversation,
    PreparedPrompt,
    Prompt,
    TextPrompt,
    TokenPrompt,
    prepare,
    text_length,
)
from app.answer.prompt import opening as find_opening
from app.core.text import Tokenizer

T = TypeVar("T")

LONG_PROMPT = 4096
"""Characters from which a prompt is tokenized on a thread: shorter ones take less than a hop."""

HUGE_PROMPT = 1 << 17
"""Characters from which prompts wait for one another, so that the threads stay free for others."""


class PromptPreparer:
    """Renders and tokenizes prompts. Used on the event loop's thread."""

    def __init__(self, tokenizer: Tokenizer, chat_format: ChatFormat) -> None:
        self._tokenizer = tokenizer
        self._chat_format = chat_format
        self._huge_prompts = asyncio.Semaphore(1)

    async def prepare(self, prompt: Prompt, *, add_special_tokens: bool = True) -> PreparedPrompt:
        """In tokens; long ones are tokenized on a thread, huge ones one at a time.

        Raises ``InvalidRequest`` where the chat template refuses.
        """
        match prompt:
            case TokenPrompt(tokens=tokens):
                return PreparedPrompt(tokens)
            case TextPrompt(text=text):
                encode = functools.partial(
                    self._tokenizer.encode_prompt, text, add_special_tokens=add_special_tokens
                )
                return PreparedPrompt(await self._tokenized(len(text), encode))
        length = text_length(prompt, HUGE_PROMPT)
        return await self._tokenized(length, functools.partial(self._render, prompt))

    async def _tokenized(self, length: int, work: Callable[[], T]) -> T:
        if length < LONG_PROMPT:
            return work()
        if length < HUGE_PROMPT:
            return await asyncio.to_thread(work)
        async with self._huge_prompts:
            return await asyncio.to_thread(work)

    def _render(self, conversation: Conversation) -> PreparedPrompt:
        given = prepare(conversation, self._chat_format)
        rendered = self._tokenizer.render_chat(given.messages, given.tools, given.options)
        reasoning = self._chat_format.reasoning
        opening = "closed" if reasoning is None else find_opening(rendered.tail, reasoning)
        return PreparedPrompt(rendered.tokens, opening)
