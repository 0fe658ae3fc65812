"""Insertion of image features into the embeddings of a step."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from app.core.images import Features, PreparedImage
from app.model.inputs import StepArrays
from app.model.vision.tower import EncodingCancelled, Tower


class ImageEmbeddings:
    """Hooks that put the features of a step into a model's embeddings and first layers."""

    def __init__(
        self, model: PreTrainedModel, vision_encoder: TowerThread, depth: int, embedded_as: int
    ) -> None:
        """``depth``: layers after which features are added; ``embedded_as``: see ``Tower``.
        ``model`` must have its final modules. Costs one call a pass without images."""
        self._embedded_as = embedded_as
        self.vision_encoder = vision_encoder
        self._device = model.device
        self._now: tuple[Tensor, Tensor] | None = None
        """Indices of the step's tokens that are images' [N], and their features [N, 1 + D, H]."""
        self._hooks = [model.get_input_embeddings().register_forward_hook(self._replace)]
        decoder: Any = model.get_decoder()
        for number in range(depth):
            add = partial(self._add, number + 1)
            self._hooks.append(decoder.layers[number].register_forward_hook(add))

    def remove(self) -> None:
        self.vision_encoder.close()
        for hook in self._hooks:
            hook.remove()

    @contextlib.contextmanager
    def of_step(self, step: StepArrays) -> Iterator[None]:
        """Within the block a forward pass uses the features of the step's images."""
        image_rows = () if step.vision_input is None else step.vision_input.rows
        if not image_rows:
            yield
            return
        parts = list[Tensor]()
        for each in image_rows:
            assert each.features is not None, "a step needs features that are not computed"
            features = cast(Tensor, each.features)[each.first : each.first + each.length]
            parts.append(features.to(self._device, non_blocking=True))  # in the steps' own stream
        rows = torch.cat([torch.arange(each.row, each.row + each.length) for each in image_rows])
        step.token_ids[rows.numpy()] = self._embedded_as
        self._now = rows.to(self._device), torch.cat(parts)
        try:
            yield
        finally:
            self._now = None

    def _replace(self, _: nn.Module, __: Any, embedded: Tensor) -> Tensor:
        """Put features into the embeddings [1, T, H]."""
        if self._now is not None:
            rows, features = self._now
            embedded[0, rows] = features[:, 0].to(embedded.dtype)
        return embedded

    def _add(self, number: int, _: nn.Module, __: Any, hidden: Tensor) -> Tensor:
        if self._now is not None:  # in place: our own loops continue with the same memory
            rows, features = self._now
            hidden[0, rows] += features[:, number].to(hidden.dtype)
        return hidden


_NICENESS = 5
"""Niceness of the tower's thread on a CPU."""


class TowerThread:
    """See ``app.core.images.VisionEncoder``.

    On a GPU it has a stream of its own, and its features are copied to pinned host memory before
    they are returned: so no step waits for that stream, and its memory is that of one image.
    """

    def __init__(self, tower: Tower, token_bytes: int) -> None:
        """``token_bytes``: memory of the features of one token."""
        self._tower = tower
        self._token_bytes = token_bytes
        self._stream: torch.cuda.Stream | None = None
        if tower.device.type == "cuda":
            self._stream = torch.cuda.Stream(tower.device)  # type: ignore[no-untyped-call]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leapjson-tower")
        if self._stream is None:
            threads = torch.get_num_threads()
            self._thread.submit(_lower_priority, max(1, threads // 2)).result()
            torch.set_num_threads(threads)  # the last setting applies to all later threads
        self._closed = False

    def feature_bytes(self, image: PreparedImage) -> int:
        return image.num_tokens * self._token_bytes

    def encode(
        self, image: PreparedImage, is_wanted: Callable[[], bool] = lambda: True
    ) -> Future[Features]:
        """The features as of ``Tower.encode``, in host memory; fails with ``EncodingCancelled``."""
        return self._thread.submit(self._encode, image, is_wanted)

    def close(self) -> None:
        """End the thread, if necessary within an image. Images that wait are not encoded."""
        self._closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)

    @torch.inference_mode()
    def _encode(self, image: PreparedImage, is_wanted: Callable[[], bool]) -> Tensor:
        def goes_on() -> bool:
            return not self._closed and is_wanted()

        if not goes_on():
            raise EncodingCancelled
        if self._stream is None:
            return self._tower.encode(image, goes_on)
        with torch.cuda.stream(self._stream):
            features = self._tower.encode(image, goes_on)
            pinned = torch.empty_like(features, device="cpu", pin_memory=True)
            pinned.copy_(features, non_blocking=True)
            self._stream.synchronize()
        return pinned


def _lower_priority(threads: int) -> None:
    """Leave the cores to the steps: low priority, batch scheduling and ``threads`` threads."""
    torch.get_num_threads()  # else the thread's first operation sets the default for new threads
    torch.set_num_threads(threads)
    if sys.platform == "linux":  # where threads have priorities of their own
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
