"""Images, in chat completions and in responses."""

from __future__ import annotations

from typing import Any

import openai
from features import CARD, CARD_TEXT, MODEL, Card, picture_url
from shared import chat, check, client, refused


def image_messages(url: str) -> list[Any]:
    content = [
        {"type": "text", "text": CARD_TEXT},
        {"type": "image_url", "image_url": {"url": url, "detail": "high"}},
    ]
    return [{"role": "user", "content": content}]


@check("images", "image_url, parse with a pydantic model")
def _() -> None:
    completion = chat.parse(
        model=MODEL, messages=image_messages(picture_url()), response_format=Card, temperature=0
    )
    assert completion.choices[0].message.parsed == CARD
    assert completion.usage
    assert completion.usage.prompt_tokens > 100


@check("images", "image_url, stream() with a pydantic model")
def _() -> None:
    with chat.stream(
        model=MODEL, messages=image_messages(picture_url()), response_format=Card, temperature=0
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == CARD


@check("images", "responses: input_image, parse with a pydantic model")
def _() -> None:
    content: list[Any] = [
        {"type": "input_text", "text": CARD_TEXT},
        {"type": "input_image", "image_url": picture_url(), "detail": "auto"},
    ]
    response = client.responses.parse(
        model=MODEL,
        input=[{"role": "user", "content": content}],
        text_format=Card,
        temperature=0,
    )
    assert response.output_parsed == CARD


@check("images", "an invalid image is a 400 that names the part, not retried")
def _() -> None:
    error = refused(
        openai.BadRequestError, messages=image_messages("data:image/png;base64,bm8gcGljdHVyZQ==")
    )
    assert error.code == "invalid_image"
    assert "messages[0].content[1]" in error.message
