"""Fakes of a vision model for a server: an image has a token for each patch."""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import httpx
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.core.errors import InvalidRequest
from app.core.images import (
    ExpandedPrompt,
    Features,
    PreparedImage,
    PromptImage,
    PromptImages,
    TwoWay,
)
from app.core.text import SEAM, RenderedPrompt
from app.server.composition import assemble
from app.server.settings import Settings
from app.telemetry.metrics import Metrics
from tests.server.backend import backend, compiling, started
from tests.serving.fakes import FakeEngine, FakeTokenizer
from tests.serving.image_targets import PLACEHOLDER

MARKER = "<image>"
Pixels = NDArray[Any]


class SeeingTokenizer(FakeTokenizer):
    """A token for each byte, and one for ``MARKER``; ``[role]`` precedes each message."""

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        opens: bool = True,
    ) -> RenderedPrompt:
        self.seen.append(messages)
        text = "".join(f"[{each['role']}]{self._written(each['content'])}" for each in messages)
        tokens: list[int] = []
        for piece in text.split(SEAM):
            for number, part in enumerate(piece.split(MARKER)):
                tokens += [*([PLACEHOLDER] if number else []), *part.encode()]
        return RenderedPrompt(tokens, text[-64:])

    def _written(self, content: str | Sequence[Mapping[str, Any]]) -> str:
        if isinstance(content, str):
            return content
        return "".join(MARKER if each["type"] == "image" else each["text"] for each in content)


class FakeVisionSpec:
    marker = MARKER
    placeholder = PLACEHOLDER
    two_way: TwoWay | None = None

    def expand(self, tokens: Sequence[int], images: Sequence[PreparedImage]) -> ExpandedPrompt:
        if tokens.count(PLACEHOLDER) != len(images):
            raise InvalidRequest("there are not as many places as images", role="prompt")
        waiting, seen = list(images), []
        expanded: list[int] = []
        for token in tokens:
            if token == PLACEHOLDER:
                image = waiting.pop(0)
                seen.append(PromptImage(image, ((len(expanded), image.num_tokens),)))
                expanded += image.expansion
            else:
                expanded.append(token)
        return ExpandedPrompt(expanded, PromptImages(seen))


class PixelEncoder:
    """An encoder whose features are the pixels; without ``gate`` it waits for ``finish``."""

    def __init__(self) -> None:
        self.gate = True
        self.asked: list[tuple[PreparedImage, Future[Features], Callable[[], bool]]] = []

    def feature_bytes(self, image: PreparedImage) -> int:
        return image.nbytes

    def encode(self, image: PreparedImage, is_wanted: Callable[[], bool]) -> Future[Features]:
        self.asked.append((image, Future[Features](), is_wanted))
        if self.gate:
            self.finish()
        return self.asked[-1][1]

    def finish(self, error: Exception | None = None) -> None:
        """Complete the encoding of the last requested image, or fail it with ``error``."""
        image, encoded, _ = self.asked[-1]
        if error is None:
            encoded.set_result(image.inputs["pixel_values"])
        else:
            encoded.set_exception(error)


def spelled(tokens: Sequence[int]) -> str:
    """A readable prompt: a run of 12 image tokens is ``{12}``."""
    text, run = "", 0
    for token in [*tokens, None]:
        if token == PLACEHOLDER:
            run += 1
            continue
        text += f"{{{run}}}" if run else ""
        text, run = text + ("" if token is None else chr(token)), 0
    return text


def picture(
    width: int = 16, height: int = 8, *, format: str = "PNG", seed: int = 0, **options: Any
) -> bytes:
    """The bytes of an image file with noise."""
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, format, **options)
    return file.getvalue()


def data_url(file: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(file).decode()}"


class Seeing:
    """A server with a fake vision model and real image workers."""

    def __init__(
        self,
        engine: FakeEngine,
        tokenizer: SeeingTokenizer,
        client: httpx.AsyncClient,
        encoder: PixelEncoder,
    ) -> None:
        self.engine = engine
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.client = client

    async def answer(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        response = await self.client.post(path, json={"model": "leapjson-demo", **body})
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def refusal(
        self, path: str, body: Mapping[str, Any], status: int = 400
    ) -> dict[str, Any]:
        response = await self.client.post(path, json={"model": "leapjson-demo", **body})
        assert response.status_code == status, response.text
        error: dict[str, Any] = response.json()["error"]
        return error

    @property
    def prompt(self) -> str:
        """The last prompt that the engine received, as ``spelled`` shows it."""
        return spelled(self.engine.added[-1].prompt)

    @property
    def images(self) -> list[Any]:
        """The pixels of the images in the last prompt."""
        images = self.engine.added[-1].images
        assert images is not None
        return [cast(Pixels, each.features)[0] for each in images.images]


@asynccontextmanager
async def seeing(*, schemas: bool = False, **settings: Any) -> AsyncIterator[Seeing]:
    """A started server; ``context`` is the maximum length of a sequence.

    ``schemas``: whether they are compiled, by a worker that takes longer to start.
    """
    engine, tokenizer, encoder = FakeEngine(), SeeingTokenizer(), PixelEncoder()
    blind = compiling(engine) if schemas else backend(engine)
    parts = replace(
        blind,
        tokenizer=tokenizer,
        chat_format=replace(blind.chat_format, image_marker=MARKER, takes_images=True),
        max_sequence_tokens=settings.pop("context", 4096),
        vision=FakeVisionSpec(),
        vision_encoder=encoder,
        image_target="tests.serving.image_targets:prepare",
    )
    settings = {"compile_workers": 1, **settings}
    async with started(assemble(Settings(**settings), parts, Metrics())) as client:
        yield Seeing(engine, tokenizer, client, encoder)
