"""The images of a request on their way to the prompt: fetched, read, prepared, counted."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from typing import cast

from app.answer.images import ImageSource
from app.core.errors import InvalidImage, ReaderStuck, RequestError, Unavailable
from app.core.images import ImageDetail, ImageJob, PreparedImage, VisionSpec
from app.core.lru import Lru
from app.serving.admission import Ticket
from app.serving.images.encoding import ImageEncoder
from app.serving.images.fetching import Fetcher
from app.serving.workers.pool import JobErrors, WorkerPool

_TOKEN_BYTES = 40
"""Memory of a token in ``expansion``, a list of integers."""
_FEW_BYTES = 1 << 10
"""Other memory of an image."""


ImageKey = tuple[str, bytes, ImageDetail]
"""Scope, digest of the file as it was sent, and detail of a prepared image, for one model and one
token limit. Shared between tenants, the cache's timing would reveal what others sent."""


def image_key(data: str | bytes, detail: ImageDetail, scope: str) -> ImageKey:
    """Costs a millisecond a megabyte, mostly without the GIL."""
    form = b"" if isinstance(data, bytes) else b"base64"
    file = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
    return scope, hashlib.blake2b(file, digest_size=32, person=form).digest(), detail


def kept_images(max_bytes: int) -> Lru[ImageKey, PreparedImage]:
    """An LRU cache of prepared images."""
    return Lru(max_bytes, lambda image: image.nbytes + image.num_tokens * _TOKEN_BYTES + _FEW_BYTES)


_LONG = 1 << 18
"""Bytes of a file from which its digest is taken on a thread."""

IMAGE_ERRORS = JobErrors(
    lambda limit: InvalidImage(
        f"decoding the image exceeded a limit: {limit}; send a simpler image"
    ),
    ReaderStuck,
    "the image could not be decoded",
)
"""Errors of an image that fails in a worker."""


class ImageIntake:
    """Has images prepared. Event loop's thread only.

    Each ticket holds what its images take, as they were sent and prepared, until it leaves. A file
    that came before is not read again, while it is kept.
    """

    def __init__(
        self,
        pool: WorkerPool,
        observe: Callable[[str, float], None],
        vision: VisionSpec,
        encoder: ImageEncoder,
        *,
        max_tokens: int,
        max_kept_bytes: int,
        fetcher: Fetcher | None = None,
    ) -> None:
        """``pool`` makes a ``PreparedImage`` of an ``ImageJob``. ``observe``: called for each image
        with its result (ok, kept, invalid, unavailable or error) and the seconds it took, waiting
        included; it must be quick and must not raise. ``max_tokens``: of one image;
        ``max_kept_bytes``: limit of kept images; ``fetcher``: None where URLs are disabled."""
        self.kept = kept_images(max_kept_bytes)
        """Images that were prepared for earlier requests."""
        self.vision = vision
        self.encoder = encoder
        self.pool = pool
        self._observe = observe
        self._max_tokens = max_tokens
        self._fetcher = fetcher

    async def close(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()
        await self.pool.close()

    async def prepare(
        self, sources: Sequence[ImageSource], ticket: Ticket, scope: str
    ) -> list[PreparedImage]:
        """All of a prompt's images, in order. Requests of one ``scope`` share what is kept.

        Raises the ``LeapjsonError`` of the first one that fails, named as the request has it.
        """
        results = await asyncio.gather(
            *(self._one(source, ticket, scope) for source in sources), return_exceptions=True
        )
        prepared = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            prepared.append(result)
        return prepared

    async def _one(self, source: ImageSource, ticket: Ticket, scope: str) -> PreparedImage:
        started, result = time.perf_counter(), "error"
        try:
            data: str | bytes = source.base64
            if source.url:
                assert self._fetcher is not None, "URLs are refused where none may be fetched"
                data = await self._fetcher.fetch(source.url)
            ticket.hold_images(len(data))
            detail: ImageDetail = "low" if source.low else "auto"
            key = (
                image_key(data, detail, scope)
                if len(data) < _LONG
                else await asyncio.to_thread(image_key, data, detail, scope)
            )
            prepared, done = self.kept.get(key), "kept"
            if prepared is None:
                job, done = ImageJob(data, detail, self._max_tokens), "ok"
                answer = await self.pool.run(job, ticket.tenant, ticket.tier)
                prepared = cast(PreparedImage, answer)
                self.kept.keep(key, prepared)
            ticket.hold_images(prepared.nbytes)
            result = done
            return prepared
        except RequestError as error:
            result = "invalid"
            raise InvalidImage(error.message).at(source.param) from None
        except Unavailable:
            result = "unavailable"
            raise
        finally:
            self._observe(result, time.perf_counter() - started)
