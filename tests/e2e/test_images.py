"""Images from the request to the answer, through a server with a tiny real vision model.

The oracle is transformers: its processor for the same image, and the logits of the whole model.
"""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from tokenizers import decoders
from transformers import AutoTokenizer

from app.server.backend import load_backend
from app.server.composition import assemble
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from tests.model.vision.seeing import Seeing, seeing
from tests.server.backend import started

CHAT = "/v1/chat/completions"

PARTS = (
    "{% for m in messages %}{{ m['role'] }}: "
    "{% for c in m['content'] if c['type'] == 'image' %}MARK\n{% endfor %}"
    "{% for c in m['content'] if c['type'] == 'text' %}{{ c['text'] }}{% endfor %} "
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
"""LLaVA's template: content is a list, and images come first."""
EITHER = (
    "{% for m in messages %}{{ m['role'] }}: "
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}MARK{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %} "
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
"""Qwen's template: content is a text or a list."""
TEXT = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""A template without support for images."""


def png(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def noise(seed: int) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def with_template(model: Seeing, template: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model.folder)
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    tokenizer.chat_template = template.replace("MARK", model.text("IMAGE"))
    tokenizer.save_pretrained(model.folder)


@asynccontextmanager
async def server_of(model: Seeing) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(
        model=model.folder,
        served_model_name="eyes",
        dtype="float32",
        image_workers=1,
        compile_workers=1,
    )
    metrics = Metrics()
    backend = load_backend(settings, metrics)
    try:
        assembly = assemble(settings, backend, metrics)
        async with started(assembly) as client:
            yield client
    finally:
        backend.close()


async def answer(client: httpx.AsyncClient, *content: Any, **fields: Any) -> dict[str, Any]:
    body = {"model": "eyes", "temperature": 0, "messages": [{"role": "user", "content": content}]}
    response = await client.post(CHAT, json=body | fields)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def image(picture: Image.Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": png(picture)}}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


@pytest.mark.parametrize(
    ("kind", "template", "prompt"),
    [
        ("llava", PARTS, "user: IMAGE\nIMAGE\nTwo? assistant:"),
        ("qwen2_5_vl", EITHER, "user: TwoIMAGE?IMAGE assistant:"),
        ("llava", TEXT, "user: TwoIMAGE\n?IMAGE\n assistant:"),
    ],
    ids=["parts", "either", "text"],
)
async def test_pictures_are_seen_as_transformers_shows_them(
    tmp_path: Path, kind: str, template: str, prompt: str
) -> None:
    model = seeing(tmp_path, kind)
    with_template(model, template)
    pictures = noise(1), noise(2)
    async with server_of(model) as client:
        content = [text("Two"), image(pictures[0]), text("?"), image(pictures[1])]
        found = await answer(
            client, *content, logprobs=True, top_logprobs=5, max_tokens=1, on_budget="truncate"
        )
        inputs = model.inputs(prompt, *pictures)
        assert found["usage"]["prompt_tokens"] == inputs["input_ids"].shape[1]
        (token,) = found["choices"][0]["logprobs"]["content"]
        ones = {each["bytes"][0]: each["logprob"] for each in token["top_logprobs"]
                if each["bytes"] is not None and len(each["bytes"]) == 1}  # fmt: skip
        assert len(ones) > 1
        logits = model.logits(inputs)[-1].double()
        first, *others = ones
        for other in others:  # differences: the server excludes tokens without text
            expected = float(logits[other] - logits[first])
            assert ones[other] - ones[first] == pytest.approx(expected, abs=1e-3)

        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
        format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        told = await answer(
            client, *content, response_format=format, max_tokens=64, confidence=True,
            schema_in_prompt=False,
        )  # fmt: skip
        choice = told["choices"][0]
        assert choice["message"]["content"] in ('{"a": true}', '{"a": false}')
        assert any(each["pointer"] == "/a" for each in choice["confidence"])
