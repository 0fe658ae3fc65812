"""``POST /tokenize`` and ``POST /detokenize``, as vLLM has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter
from pydantic import WithJsonSchema
from pydantic_core import to_json

from app.answer.prompt import Prompt, TextPrompt
from app.http.chat.parse import ConversationFields, read_conversation
from app.http.completions.parse import check_token_ids
from app.http.endpoint import Api, endpoint
from app.http.openapi import Shape, describe
from app.http.requests.unsupported import CHAT, NO_EFFECT, UNSUPPORTED, refused
from app.http.requests.wire import Body, Ignored, Unsupported
from app.serving.admission import Ticket

TOKENIZE = "/tokenize"
DETOKENIZE = "/detokenize"

_ERRORS = (400, 404, 413, 429, 504)


class TokenizeText(Body):
    unsupported: ClassVar[Mapping[str, Unsupported]] = {
        "add_generation_prompt": UNSUPPORTED["add_generation_prompt"]
    }
    no_effect = NO_EFFECT

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True
    """Whether to add what the model expects around a text (its beginning of sequence)."""
    return_token_strs: bool | None = None


class TokenizeChat(ConversationFields):
    """Request for the prompt of a chat completion with these fields."""

    unsupported: ClassVar[Mapping[str, Unsupported]] = {
        name: CHAT[name]
        for name in (
            "add_special_tokens",
            "chat_template",
            "media_io_kwargs",
            "mm_processor_kwargs",
            "prompt",
        )
    }
    no_effect = NO_EFFECT

    return_token_strs: bool | None = None


class DetokenizeRequest(Body):
    unsupported: ClassVar[Mapping[str, Unsupported]] = {
        "skip_special_tokens": refused("all tokens are returned; leave it out", False)
    }
    no_effect = NO_EFFECT

    model: str | None = None
    # Checked by ``check_token_ids``, which is quicker where there are a million.
    tokens: Annotated[
        list[Any], WithJsonSchema({"type": "array", "items": {"type": "integer", "minimum": 0}})
    ]


class Tokenized(Shape):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(Shape):
    prompt: str


router = APIRouter()
"""Routes without a queue, as no model runs."""


async def _written(
    tokens: Sequence[int], ticket: Ticket, api: Api, content: Callable[[], Any]
) -> bytes:
    """The JSON of ``content()``; millions of tokens take seconds, and no queue limits requests."""
    # A token has four characters or so.
    return await api.service.in_thread_if_long(
        4 * len(tokens), ticket.tenant, lambda: to_json(content())
    )


def _parse_tokenize(
    body: Mapping[str, Any], ignored: Ignored, api: Api
) -> tuple[Prompt, bool, bool]:
    """The prompt, whether special tokens are added, and whether texts are asked for.

    A chat if there are ``messages``, else a text. Raises ``InvalidRequest``.
    """
    if "messages" not in body:
        text = TokenizeText.read(body, ignored)
        api.models.find(text.model)
        return TextPrompt(text.prompt), text.add_special_tokens, bool(text.return_token_strs)
    chat = TokenizeChat.read(body, ignored)
    api.models.find(chat.model)
    conversation, _ = read_conversation(chat, ignored, api.config)
    return conversation, False, bool(chat.return_token_strs)


async def _tokenize(call: tuple[Prompt, bool, bool], ticket: Ticket, api: Api) -> bytes:
    """``token_strs`` are the texts of the tokens, each by itself; null if not asked for."""
    prompt, add_special_tokens, strings = call
    token_bytes, decode = api.vocabulary.token_bytes, api.service.tokenizer.decode
    tokens = await api.service.tokenize(prompt, ticket, add_special_tokens=add_special_tokens)

    def text(token: int) -> str:
        """A special token has no bytes of its own, but the tokenizer can write it."""
        data = token_bytes[token]
        return decode([token]) if data is None else data.decode(errors="replace")

    def content() -> dict[str, Any]:
        known = {token: text(token) for token in set(tokens)} if strings else {}
        return {
            "count": len(tokens),
            "max_model_len": api.config.max_model_len,
            "tokens": tokens,
            "token_strs": [known[token] for token in tokens] if strings else None,
        }

    return await _written(tokens, ticket, api, content)


def _parse_detokenize(body: Mapping[str, Any], ignored: Ignored, api: Api) -> Sequence[int]:
    """The tokens. Raises ``InvalidRequest`` for one that the model does not have."""
    wire = DetokenizeRequest.read(body, ignored)
    api.models.find(wire.model)
    check_token_ids(wire.tokens, "tokens", api.vocabulary.size)
    return wire.tokens


async def _detokenize(tokens: Sequence[int], ticket: Ticket, api: Api) -> bytes:
    decode = api.service.tokenizer.decode
    return await _written(tokens, ticket, api, lambda: {"prompt": decode(tokens)})


router.post(
    TOKENIZE,
    openapi_extra=describe(
        "Tokenize a text or a conversation's prompt",
        Tokenized,
        bodies=[TokenizeText, TokenizeChat],
        errors=_ERRORS,
    ),
)(endpoint(TOKENIZE, _parse_tokenize, _tokenize))
router.post(
    DETOKENIZE,
    openapi_extra=describe("Detokenize", Detokenized, bodies=[DetokenizeRequest], errors=_ERRORS),
)(endpoint(DETOKENIZE, _parse_detokenize, _detokenize))
