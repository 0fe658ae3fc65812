"""Images of requests, encoded before their prompts go to the engine."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

from app.core.errors import LeapjsonError
from app.core.images import Features, PreparedImage, PromptImages, VisionEncoder
from app.core.lru import Lru
from app.serving.admission import Ticket
from app.serving.workers.fair_pool import FairPool

_log = logging.getLogger(__name__)

_FAILED = (
    "internal error: the vision encoder failed on an image of the prompt; the request may "
    "succeed without this image, or with another size of it"
)


class ImageEncoder:
    """Runs the model's vision encoder for requests. Event loop's thread only.

    It encodes one image at a time; tenants share its time fairly. A request's ticket accounts for
    the features until the request ends; the last used features stay in a cache.
    """

    def __init__(self, encoder: VisionEncoder, max_kept_bytes: int) -> None:
        self._encoder = encoder
        self.kept = Lru[tuple[str, bytes], Features](max_kept_bytes, lambda each: each.nbytes)
        """By scope and digest: shared between tenants, its timing would reveal who sent what."""
        self._turns = FairPool[None]()
        self._turns.release(None)
        self.num_waiting = 0
        """Answers whose images are not encoded yet."""
        self.computed = 0
        """Images that the encoder was run for."""
        self.found = 0
        """Images whose features were found in the cache."""
        self.seconds = 0.0
        """Spent in the encoder."""

    async def encode(self, images: PromptImages, ticket: Ticket, scope: str) -> PromptImages:
        """``images`` with their features in place of their pixels. Requests of one ``scope`` share
        features. Cancelling it ends the encoder before its next layer.

        Raises ``LeapjsonError`` where the encoder fails, and what ``Ticket.hold_images`` raises
        where there is no room for the features.
        """
        distinct = {each.image.digest: each.image for each in images.images}
        ticket.hold_images(sum(map(self._encoder.feature_bytes, distinct.values())))
        self.num_waiting += ticket.answers
        try:
            features = {
                digest: await self._one(image, ticket, scope) for digest, image in distinct.items()
            }
        finally:
            self.num_waiting -= ticket.answers
        ticket.release_images(sum([each.image.nbytes for each in images.images]))
        return images.encoded(features)

    async def _one(self, image: PreparedImage, ticket: Ticket, scope: str) -> Features:
        key = scope, image.digest
        if (kept := self.kept.get(key)) is not None:
            self.found += 1
            return kept
        await self._turns.acquire(ticket.tenant, ticket.tier)
        started, gone = time.perf_counter(), threading.Event()
        try:
            if (kept := self.kept.get(key)) is not None:  # encoded for another meanwhile
                self.found += 1
                return kept
            features = await asyncio.wrap_future(
                self._encoder.encode(image, lambda: not gone.is_set())
            )
        except Exception as error:
            _log.error("the vision encoder failed on an image", exc_info=error)
            raise LeapjsonError(_FAILED) from None
        finally:
            gone.set()
            seconds = time.perf_counter() - started
            self._turns.charge(ticket.tenant, seconds, ticket.tier)
            self._turns.release(None)
        self.computed += 1
        self.seconds += seconds
        self.kept.keep(key, features)
        return features
