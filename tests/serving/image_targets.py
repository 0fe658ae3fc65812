"""A processor that misbehaves on request; runs in the image workers of the tests."""

from __future__ import annotations

import base64
import math
import os
import signal

import numpy as np
from PIL import Image

from app.core.errors import InvalidRequest
from app.core.images import ImageJob, PreparedImage, ReadingLimits, digest_of
from app.serving.images.reading import read_image

PATCH = 8
"""Pixels on each side of a patch."""
PLACEHOLDER = 256
HANGS, DIES, HOGS, FAILS = (13, 13), (17, 17), (19, 19), (23, 23)
"""Sizes of images at which the processor hangs, dies, uses too much memory, or raises."""


PEAK = b"peak"
"""Data instead of a file: the result has one token per MiB of the worker's peak memory."""


def prepare(job: ImageJob, model: str, limits: ReadingLimits) -> PreparedImage:
    if job.data == base64.b64encode(PEAK).decode():
        return PreparedImage(bytes(32), [PLACEHOLDER] * _peak(), {"pixel_values": np.zeros((1, 1))})
    image = read_image(job.data, limits)
    match image.size:
        case size if size == HANGS:
            while True:
                pass
        case size if size == DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        case size if size == HOGS:
            return [np.empty(1 << 30, np.uint8) for _ in range(16)]  # type: ignore[return-value]
        case size if size == FAILS:
            raise TypeError("a bug")
    if job.detail == "low":
        image.thumbnail((2 * PATCH, 2 * PATCH))
    return _patched(image, job.max_tokens)


def _peak() -> int:
    """Peak memory of the worker in MiB."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(each for each in status if each.startswith("VmHWM:"))
    return int(line.split()[1]) >> 10


def _patched(image: Image.Image, max_tokens: int) -> PreparedImage:
    """``image`` with a token for each patch, scaled down to at most ``max_tokens``."""
    while (tokens := math.ceil(image.width / PATCH) * math.ceil(image.height / PATCH)) > max_tokens:
        if image.size == (1, 1):
            raise InvalidRequest(f"it counts for {tokens} tokens and the limit is {max_tokens}")
        image = image.resize((max(1, image.width * 9 // 10), max(1, image.height * 9 // 10)))
    expansion = [PLACEHOLDER] * tokens
    inputs = {"pixel_values": np.asarray(image)[None]}
    return PreparedImage(digest_of(expansion, inputs), expansion, inputs)
