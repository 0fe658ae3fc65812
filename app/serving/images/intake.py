"""The images of a request on their way to the prompt: fetched, read, prepared, counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from app.answer.images import ImageSource
from app.core.errors import InvalidImage, ReaderStuck, RequestError, Unavailable
from app.core.images import ImageDetail, PreparedImage
from app.serving.admission import Ticket
from app.serving.images.fetching import Fetcher
from app.serving.images.jobs import ImageJob
from app.serving.workers.pool import Trouble, WorkerPool

READING = Trouble(
    lambda limit: InvalidImage(f"reading the image passed a limit, {limit}; send a simpler one"),
    ReaderStuck,
    "the image could not be read",
)
"""What is told where a worker fails at an image."""


class ImageObserver(Protocol):
    """Told of images; must be quick and must not raise."""

    def observe_image(self, result: str, seconds: float) -> None:
        """``result``: ok, invalid, unavailable or error; ``seconds``: waiting included."""


class ImageIntake:
    """Has images prepared. Event loop's thread only.

    Each ticket holds what its images take, as they were sent and prepared, until it leaves.
    """

    def __init__(
        self,
        pool: WorkerPool,
        observer: ImageObserver,
        *,
        max_tokens: int,
        fetcher: Fetcher | None = None,
    ) -> None:
        """``pool`` makes a ``PreparedImage`` of an ``ImageJob``; ``max_tokens``: what one image may
        count for; ``fetcher``: None where no URL is taken."""
        self._pool = pool
        self._observer = observer
        self._max_tokens = max_tokens
        self._fetcher = fetcher

    @property
    def restarts(self) -> int:
        """Workers that had to be replaced."""
        return self._pool.restarts

    async def start(self) -> None:
        """Wait until every worker is ready."""
        await self._pool.start()

    async def close(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()
        await self._pool.close()

    async def prepare(self, sources: Sequence[ImageSource], ticket: Ticket) -> list[PreparedImage]:
        """All of a prompt's images, in order.

        Raises the ``LeapjsonError`` of the first one that fails, named as the request has it.
        """
        results = await asyncio.gather(
            *(self._one(source, ticket) for source in sources), return_exceptions=True
        )
        prepared = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            prepared.append(result)
        return prepared

    async def _one(self, source: ImageSource, ticket: Ticket) -> PreparedImage:
        started, result = time.perf_counter(), "error"
        try:
            prepared = await self._read(source, ticket)
            result = "ok"
            return prepared
        except RequestError as error:
            result = "invalid"
            raise InvalidImage(error.message).at(source.param) from None
        except Unavailable:
            result = "unavailable"
            raise
        finally:
            self._observer.observe_image(result, time.perf_counter() - started)

    async def _read(self, source: ImageSource, ticket: Ticket) -> PreparedImage:
        data: str | bytes = source.base64
        if source.url:
            assert self._fetcher is not None, "URLs are refused where none may be fetched"
            data = await self._fetcher.fetch(source.url)
        ticket.hold_images(len(data))
        detail: ImageDetail = "low" if source.low else "auto"
        job = ImageJob(data, detail, self._max_tokens)
        prepared: PreparedImage = await self._pool.work(job, ticket.tenant)
        ticket.hold_images(prepared.nbytes)
        return prepared
