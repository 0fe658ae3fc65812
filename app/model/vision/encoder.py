"""A thread for a model's vision encoder: images are encoded beside the steps, one at a time."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from app.core.images import Features, PreparedImage
from app.model.vision.tower import NotWanted, Tower

_NICENESS = 5
"""Of the tower's thread on a CPU."""


class TowerThread:
    """See ``app.core.images.VisionEncoder``.

    On a GPU it has a stream of its own, and its features come to pinned host memory before anybody
    has them: so no step has to wait for that stream, and its memory is that of one image.
    """

    def __init__(self, tower: Tower, token_bytes: int) -> None:
        """``token_bytes``: of the features in one place."""
        self._tower = tower
        self._token_bytes = token_bytes
        self._stream: torch.cuda.Stream | None = None
        if tower.device.type == "cuda":
            self._stream = torch.cuda.Stream(tower.device)  # type: ignore[no-untyped-call]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leapjson-tower")
        if self._stream is None:
            threads = torch.get_num_threads()
            self._thread.submit(_step_back, max(1, threads // 2)).result()
            torch.set_num_threads(threads)  # for all threads to come it is what was set last
        self._closed = False

    def feature_bytes(self, image: PreparedImage) -> int:
        return image.num_tokens * self._token_bytes

    def encode(
        self, image: PreparedImage, is_wanted: Callable[[], bool] = lambda: True
    ) -> Future[Features]:
        """The features as of ``Tower.see``, in host memory; fails with ``NotWanted``."""
        return self._thread.submit(self._encode, image, is_wanted)

    def close(self) -> None:
        """End the thread, amid an image if need be. What is not done never will be."""
        self._closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)

    @torch.inference_mode()
    def _encode(self, image: PreparedImage, is_wanted: Callable[[], bool]) -> Tensor:
        def goes_on() -> bool:
            return not self._closed and is_wanted()

        if not goes_on():
            raise NotWanted
        if self._stream is None:
            return self._tower.see(image, goes_on)
        with torch.cuda.stream(self._stream):
            features = self._tower.see(image, goes_on)
            pinned = torch.empty_like(features, device="cpu", pin_memory=True)
            pinned.copy_(features, non_blocking=True)
            self._stream.synchronize()
        return pinned


def _step_back(threads: int) -> None:
    """Leave the cores to the steps: a smaller share, as a batch job, and of half of them."""
    torch.get_num_threads()  # else its first operation takes over what holds for new threads
    torch.set_num_threads(threads)
    if sys.platform == "linux":  # where threads have priorities of their own
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
