"""What a server has beside the rest where its model sees images."""

from __future__ import annotations

import pickle

from app.server.backend import Backend
from app.server.settings import Settings
from app.serving.images.fetching import Fetcher, FetchLimits
from app.serving.images.intake import READING, ImageIntake
from app.serving.images.jobs import ImageJob
from app.serving.service import VisionIntake
from app.serving.workers.pool import WorkerPool
from app.telemetry.metrics import Metrics

_WHITE = (
    "iVBORw0KGgoAAAANSUhEUgAAADgAAAA4CAAAAACN7WTCAAAAJUlEQVR42u3LMREAAAgEoNf+"
    "nbWC5ww7NfnpiKIoiqIoiqIoniwyIgFvCyLXLgAAAABJRU5ErkJggg=="
)
"""A PNG, which each new worker prepares before its first job."""


def vision_intake(settings: Settings, backend: Backend, metrics: Metrics) -> VisionIntake | None:
    """None where the model has no eyes."""
    if backend.vision is None:
        return None
    max_tokens = settings.image_tokens(backend.max_sequence_tokens, backend.most_whole)
    pool = WorkerPool(
        backend.image_target,
        backend.image_model,
        settings.reading_limits(),
        workers=settings.image_workers,
        limits=settings.image_limits(),
        trouble=READING,
        warm_up=ImageJob(_WHITE, "low", max_tokens),
        kills_for_nobody=False,
        read=pickle.loads,  # arrays are copied at once: there is nothing to pace, or to freeze
    )
    fetcher = None
    if settings.allowed_image_hosts:
        limits = FetchLimits(max_bytes=settings.max_image_bytes)
        fetcher = Fetcher(frozenset(settings.allowed_image_hosts), limits)
    intake = ImageIntake(
        pool,
        metrics,
        max_tokens=max_tokens,
        max_kept_bytes=settings.kept_images_bytes,
        fetcher=fetcher,
    )
    return VisionIntake(backend.vision, intake)
