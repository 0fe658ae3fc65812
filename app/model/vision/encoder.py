"""A thread for a model's tower: images are seen beside the steps, one after the other.

engine's thread    look(a) look(b)   step   step   step: the features of a   drop(a)
tower's thread     | image of a       | image of b        | ...
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from app.core.images import PreparedImage, VisionCounts
from app.model.vision.features import FeatureCache, Features
from app.model.vision.tower import NotWanted, Tower

_NICENESS = 5
"""Of the tower's thread on a CPU."""


class TowerJob:
    """See ``app.core.images.EncodeJob``."""

    def __init__(self, features: Sequence[Features], let_go: Callable[[Features], None]) -> None:
        self.features = features
        self.error: Exception | None = None
        self.is_dropped = False
        self._let_go = let_go
        self._done = threading.Event()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def finish(self, error: Exception | None = None) -> None:
        """Called once, by whoever knows."""
        self.error = error
        self._done.set()

    def wait(self) -> None:
        """Until it is done; raises its error. Nothing that serves waits so."""
        self._done.wait()
        if self.error is not None:
            raise self.error

    def drop(self) -> None:
        if self.is_dropped:
            return
        self.is_dropped = True
        for each in self.features:
            self._let_go(each)


class TowerThread:
    """See ``app.core.images.VisionEncoder``."""

    def __init__(self, tower: Tower, max_bytes: int, token_bytes: int) -> None:
        """As ``FeatureCache``."""
        self._tower = tower
        self._cache = FeatureCache(max_bytes, token_bytes)
        self._device = tower.device
        self._stream: torch.cuda.Stream | None = None
        if tower.device.type == "cuda":
            self._stream = torch.cuda.Stream(tower.device)  # type: ignore[no-untyped-call]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leapjson-tower")
        if self._stream is None:
            threads = torch.get_num_threads()
            self._thread.submit(_step_back, max(1, threads // 2)).result()
            torch.set_num_threads(threads)  # for all threads to come it is what was set last
        self._on_done: Callable[[], None] = lambda: None
        self._closed = False
        self._computed = 0
        self._seconds = 0.0
        self._found = self._found_later = 0
        """When they were asked for, and when the thread came to it: each has a thread of its own
        that counts."""

    @property
    def counts(self) -> VisionCounts:
        """Any thread may read it."""
        found = self._found + self._found_later
        return VisionCounts(self._computed, found, self._seconds, self._cache.nbytes)

    def watch(self, on_done: Callable[[], None]) -> None:
        self._on_done = on_done

    def has_room(self, images: Sequence[PreparedImage]) -> bool:
        return self._cache.has_room(images)

    def look(self, images: Sequence[PreparedImage]) -> TowerJob:
        distinct = {image.digest: image for image in images}
        features = [self._cache.hold(image) for image in distinct.values()]
        look = TowerJob(features, self._cache.let_go)
        missing = [each for each in features if each.tensor is None]
        self._found += len(features) - len(missing)
        if missing:
            self._thread.submit(self._work, look, missing)
        else:
            look.finish()
        return look

    def features(self, image: PreparedImage) -> Tensor:
        """Those that a look holds, for a step on the current stream: [1 + D, placeholders, H]."""
        tensor = self._cache.of(image)
        if self._stream is not None:  # its memory is not given to another image while the step runs
            tensor.record_stream(torch.cuda.current_stream(self._device))
        return tensor

    def rehearse(self, image: PreparedImage) -> None:
        """Run the tower for ``image`` and wait, as nobody does who serves. Nothing is kept."""
        self._thread.submit(self._run, image, lambda: True).result()

    def close(self) -> None:
        """End the thread, amid an image if need be. What is not done never will be."""
        self._closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _work(self, look: TowerJob, missing: Sequence[Features]) -> None:
        error = None
        try:
            for each in missing:
                self._see(each)
        except Exception as caught:
            error = caught
        look.finish(error)
        self._on_done()

    def _see(self, features: Features) -> None:
        if features.tensor is not None:  # another prompt with this image came before
            self._found_later += 1
            return
        if not self._wants(features):
            raise NotWanted
        started = time.perf_counter()
        tensor = self._run(features.image, functools.partial(self._wants, features))
        self._computed += 1
        self._seconds += time.perf_counter() - started
        self._cache.put(features, tensor)

    def _run(self, image: PreparedImage, is_wanted: Callable[[], bool]) -> Tensor:
        with self._on_stream():
            return self._tower.see(image, is_wanted)

    def _wants(self, features: Features) -> bool:
        return features.holders > 0 and not self._closed

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        """On a GPU beside the stream of the steps; at the end all is there."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            yield
            self._stream.synchronize()


def _step_back(threads: int) -> None:
    """Leave the cores to the steps: a smaller share, as a batch job, and of half of them."""
    torch.get_num_threads()  # else its first operation takes over what holds for new threads
    torch.set_num_threads(threads)
    if sys.platform == "linux":  # where threads have priorities of their own
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
