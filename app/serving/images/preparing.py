"""The program of the workers that read images: files in, tensors for the model's tower out.

It imports torch and transformers, which is why these workers are others than those for schemas.
"""

from __future__ import annotations

import functools

from app.core.images import ImageJob, ImageProcessor, PreparedImage, ReadingLimits
from app.model.lean_imports import leave_out
from app.serving.images.reading import read_image

leave_out(distributed=True)
import torch  # noqa: E402

from app.model.vision import load_image_processor  # noqa: E402


def prepare_image(job: ImageJob, model: str, limits: ReadingLimits) -> PreparedImage:
    """``model``: what it is loaded from. Raises ``InvalidRequest``."""
    return _processor(model).prepare(read_image(job.data, limits), job.detail, job.max_tokens)


@functools.cache
def _processor(model: str) -> ImageProcessor:
    torch.set_num_threads(1)  # the cores are the engine's
    return load_image_processor(model)
