"""Steps on CUDA: replayed from a graph where one fits, else launched one by one.

Launched from Python, a small step waits for Python. A CUDA graph of it is one launch, but fixed in
shape, so there is one for each of some thirty *buckets*: so many tokens, in whatever spans, and so
many rows of logits. A step is padded to the smallest bucket it fits in. All that differs between
two steps of a bucket lies in one buffer (``step_buffers``), which a step that no graph fits goes
through as well: both are the same launches on the same inputs, and padding is the only difference.

After all graphs are captured, each is replayed with random steps and compared with the same step
launched one by one, twice, so that what one graph does to another's memory shows.

Choosing, padding and comparing run anywhere; only ``GraphCapture`` needs a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.core.errors import UnsupportedModel
from app.core.progress import SILENCE, Progress
from app.model.cuda.attention import TritonAttention
from app.model.cuda.step_buffers import DeviceStep, Layout, ListSizes, StepBuffers, put_drawn
from app.model.cuda.trial_steps import TrialSteps
from app.model.cuda.work import Kind, Work, most_chunks
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays
from app.model.self_check import row_errors
from app.model.state_storage import StateStorage

_SIZES = (1, 2, 4, *range(8, 32, 8), *range(32, 64, 16), *range(64, 128, 16), *range(128, 256, 32),
          *range(256, 512, 64), *range(512, 1024, 128), *range(1024, 4097, 256))  # fmt: skip
"""Tokens of the buckets. Below 128 a step reads weights for longer than padding computes; above,
padding is a quarter at most, and a tenth on average."""
_FEW_ROWS_FROM = 128
"""Larger buckets also come with rows for a quarter of the tokens: mostly leaps and prompts."""
_MOST_ROWS = 512
"""Of logits in any bucket; those of 128,000 tokens take 131 MB in half precision."""
_MOST_TABLE_BLOCKS = 1 << 20
"""Of all sequences of a replayed step together: 512 answers of 32,000 tokens, in blocks of 16."""
_MOST_CHUNKS = 64
"""Items for each token of a captured batch-invariant step."""
_WARM_TOKENS = 64
_WARM_UPS = 2
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
"""Largest relative error of a row of logits between a replay and the same launches."""
_TOLERANCE_IN_DOUBT = 0.5
"""The same for models with nondeterministic launches: some add in any order, and a mixture of
experts may then choose another one. Unrelated rows are 1.4 apart."""
_PADDING_TOLERANCE = 0.5
"""Of the middle row of a padded step: libraries choose other products for other shapes."""
_COMPARED_ROWS = 64
"""Logits compared at a time: they are widened to float32."""

_NO_INTS = np.empty(0, dtype=np.int64)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """The shape of one captured step."""

    tokens: int
    rows: int
    """Rows of logits."""


def make_buckets(max_tokens: int) -> tuple[Bucket, ...]:
    """The smallest first; none for ``max_tokens`` 0."""
    sizes = [size for size in _SIZES if size <= max_tokens]
    buckets = [Bucket(size, size) for size in sizes if size <= _MOST_ROWS]
    buckets += [Bucket(size, size // 4) for size in sizes if size >= _FEW_ROWS_FROM]
    return tuple(sorted(buckets))


def choose_bucket(buckets: Sequence[Bucket], tokens: int, rows: int) -> Bucket | None:
    """The smallest bucket that has room for so many; None where none has."""
    return next((b for b in buckets if b.tokens >= tokens and b.rows >= rows), None)


def list_sizes(kind: Kind, tokens: int, max_model_len: int) -> ListSizes:
    """What the lists of a captured step of so many tokens hold.

    Enough for every mix of spans; batch-invariant, for some 64,000 keys of each on average.
    """
    chunks = min(most_chunks(kind, max_model_len), _MOST_CHUNKS)
    if not kind.short_tokens:
        return ListSizes(short=0, long=tokens * chunks, merges=tokens)
    tiles = 0
    if tokens > kind.short_most:
        tiles = tokens // (kind.short_most + 1) + tokens // kind.long_tokens + 1
    return ListSizes(short=tokens * chunks, long=tiles * chunks, merges=tokens)


class Replay(Protocol):
    def replay(self) -> None:
        """Start what was captured once more."""


class Capture(Protocol):
    def __call__(self, launch: Callable[[], None]) -> Replay:
        """Record what ``launch`` starts on the device."""


class GraphCapture:
    """Captures CUDA graphs that share one pool of memory, on one stream beside the current one."""

    def __init__(self) -> None:
        self._pool: Any = torch.cuda.graph_pool_handle()
        # One for all: torch keeps freed memory, and libraries their workspace, for each stream.
        self._side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, launch: Callable[[], None]) -> Replay:
        side = self._side
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):  # libraries choose their products, and allocate
                launch()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=side):
            launch()
        return graph


@dataclass(frozen=True, slots=True)
class _Captured:
    """A graph, with all that it reads and would not keep alive itself."""

    layout: Layout
    step: DeviceStep
    launch: Callable[[], None]
    graph: Replay


class CudaSteps:
    """Runs one model's steps."""

    def __init__(
        self,
        forward: RaggedForward,
        attention: TritonAttention,
        *,
        max_graph_tokens: int,
        max_model_len: int,
        states: StateStorage | None = None,
        capture: Callable[[], Capture] = GraphCapture,
        must_capture: bool = False,
    ) -> None:
        """``max_graph_tokens`` 0: no graphs. ``prepare`` comes before the first ``run``.

        ``states`` are those of the model's recurrent layers. ``must_capture`` where others replay
        the same graphs: all have them or none.
        """
        self._forward = forward
        self.attention = attention
        self._storage = attention.storage
        self._states = states
        self._device = self._storage.device
        self._buckets = make_buckets(max_graph_tokens)
        self._max_model_len = max_model_len
        self._make_capture = capture
        self._must_capture = must_capture
        self._layouts = {bucket: self._layout(bucket) for bucket in self._buckets}
        self._buffers = StepBuffers(
            self._device, max([layout.end for layout in self._layouts.values()], default=0)
        )
        self._captured: dict[Bucket, _Captured] = {}
        self._logits = torch.empty(0)
        """Of the largest bucket's rows: all replays write here."""

    @property
    def count(self) -> int:
        """Step shapes captured."""
        return len(self._captured)

    @torch.inference_mode()
    def prepare(self, progress: Progress = SILENCE) -> None:
        """Compile all kernels, capture all buckets, and compare their replays.

        A model that waits for the device inside its forward pass cannot be captured: none of its
        steps is then, and they are launched one by one. Raises ``UnsupportedModel`` where a kernel
        does not fit into the GPU, or a replay is not what it should be.
        """
        with progress.stage("compiling GPU kernels"):
            logits = self._warm_up()
            if self._states is None:
                self._warm_up(trees=True)
        if not self._buckets:
            return
        self._logits = logits.new_empty(max(b.rows for b in self._buckets), logits.shape[1])
        try:
            capture = self._make_capture()
            with progress.stage("capturing CUDA graphs", len(self._buckets)) as stage:
                for bucket in reversed(self._buckets):
                    self._captured[bucket] = self._capture(bucket, capture)
                    stage.reach(len(self._captured), now=f"{bucket.tokens} tokens")
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if self._must_capture:
                raise UnsupportedModel(
                    f"steps cannot be captured as CUDA graphs; set cuda_graphs to false: {error}"
                ) from error
            self._captured.clear()
            self._buckets = ()
            _log.warning("steps run without CUDA graphs: %s", error)
        self._check_replays()

    @torch.inference_mode()
    def run(self, step: StepArrays, drawn: Tensor | None = None) -> Tensor:
        """Logits of the step's rows, [R, width], valid until the next ``run``.

        ``drawn`` are token ids [rows of the step before], int64, still on the device:
        ``step.drawn_rows`` says which tokens are among them.
        """
        fitting = self.find_bucket(step)
        if (step.drawn_rows < 0).all():
            drawn = None
        if fitting is None:
            return self._run_eagerly(step, drawn)
        bucket, works = fitting
        captured = self._captured[bucket]
        if step.vision_input is not None and step.vision_input.turned is not None:
            # Without trees nothing but the model reads them.
            step = replace(step, positions=step.vision_input.turned)
        self._load(captured, step, works, drawn)
        captured.graph.replay()
        return self._logits[: len(step.logits_rows)]

    def find_bucket(self, step: StepArrays) -> tuple[Bucket, list[Work]] | None:
        """The bucket whose graph a step is replayed from, and its lists; None: it fits in none.

        Graphs know nothing of trees, of features of images, and of positions by axis.
        """
        vision_input = step.vision_input
        if step.ancestors is not None or (vision_input is not None and vision_input.shows):
            return None
        bucket = choose_bucket(self._buckets, len(step.token_ids), len(step.logits_rows))
        if bucket is None:
            return None
        works = self._padded_work(step, bucket)
        return None if works is None else (bucket, works)

    def _padded_work(self, step: StepArrays, bucket: Bucket) -> list[Work] | None:
        """The lists of a step with padding up to ``bucket``; None where they are too long."""
        layout = self._layouts[bucket]
        blocks = sum(len(table) for span in step.spans for table in span.blocks)
        if blocks > layout.table_blocks:
            return None
        works = self.attention.list_work(step, range(len(step.token_ids), bucket.tokens))
        fits = all(sizes.hold(work) for sizes, work in zip(layout.lists, works, strict=True))
        return works if fits else None

    def _run_eagerly(self, step: StepArrays, drawn: Tensor | None) -> Tensor:
        self.attention.begin(step)
        device_step = self.attention.step
        if drawn is not None:
            put_drawn(device_step, drawn)
        if step.vision_input is None or step.vision_input.turned is None:
            return self._compute(device_step)
        positions = self._forward.told_positions(step)
        return self._forward.compute(device_step.token_ids, positions, device_step.logits_rows)

    def _compute(self, step: DeviceStep) -> Tensor:
        return self._forward.compute(step.token_ids, step.positions, step.logits_rows)

    def _load(
        self, captured: _Captured, step: StepArrays, works: list[Work], drawn: Tensor | None = None
    ) -> None:
        self._buffers.load(captured.layout, step, works, self.attention.spare_slots)
        if drawn is not None:
            put_drawn(captured.step, drawn)

    def _layout(self, bucket: Bucket) -> Layout:
        sequence_blocks = -(self._max_model_len // -self._storage.block_size)
        groups = len(self._storage.groups)
        return Layout(
            tokens=bucket.tokens,
            rows=bucket.rows,
            groups=groups,
            lists=[
                list_sizes(kind, bucket.tokens, self._max_model_len)
                for kind in self.attention.kinds
            ],
            tables=min(bucket.tokens * sequence_blocks * groups, _MOST_TABLE_BLOCKS),
            adapters=self.attention.has_adapters,
            states=self.attention.state_sizes(bucket.tokens, bucket.tokens),
        )

    def _nothing(self) -> StepArrays:
        """A step of no token, to be padded."""
        slots = (_NO_INTS,) * len(self._storage.groups)
        return StepArrays(_NO_INTS, _NO_INTS, slots, _NO_INTS, spans=(), drawn_rows=_NO_INTS)

    def _warm_up(self, *, trees: bool = False) -> Tensor:
        """Every launch of a forward pass, with work or without, so that its kernels are there.

        Returns one row of logits.
        """
        layout = Layout(
            tokens=_WARM_TOKENS,
            rows=1,
            groups=len(self._storage.groups),
            lists=[ListSizes(_WARM_TOKENS, _WARM_TOKENS, 1)] * len(self.attention.kinds),
            tables=1,
            adapters=self.attention.has_adapters,
            states=self.attention.state_sizes(_WARM_TOKENS, 1),
            trees=trees,
        )
        nothing = self._nothing()
        buffers = StepBuffers(self._device, layout.end)
        step = buffers.device_step(layout, [[sizes.whole()] for sizes in layout.lists])
        works = self.attention.list_work(nothing, range(_WARM_TOKENS))
        buffers.load(layout, nothing, works, self.attention.spare_slots)
        put_drawn(step, step.token_ids[0])
        self.attention.begin_on_device(step)
        return self._compute(step)

    def _capture(self, bucket: Bucket, capture: Capture) -> _Captured:
        layout, attention, forward = self._layouts[bucket], self.attention, self._forward
        step = self._buffers.device_step(layout, [[sizes.whole()] for sizes in layout.lists])
        logits = self._logits[: bucket.rows]

        def launch() -> None:  # does not hold ``self``, which holds the graph and its memory
            attention.begin_on_device(step)
            logits.copy_(forward.compute(step.token_ids, step.positions, step.logits_rows))

        nothing = self._nothing()
        works = self.attention.list_work(nothing, range(bucket.tokens))
        self._buffers.load(layout, nothing, works, self.attention.spare_slots)
        return _Captured(layout, step, launch, capture(launch))

    def _check_replays(self) -> None:
        """Raises ``UnsupportedModel`` where a replay is not the step that it should be."""
        trials = TrialSteps(self._storage, self._max_model_len, self._states)
        with trials.noise_in_cache():
            for bucket in (*self._captured, *reversed(self._captured)):
                step, works = trials.step_that(
                    partial(self._padded_work, bucket=bucket), bucket.tokens, bucket.rows
                )
                self._check_replay(bucket, step, works)

    def _check_replay(self, bucket: Bucket, step: StepArrays, works: list[Work]) -> None:
        captured = self._captured[bucket]
        launched = self._tried(captured, step, works, captured.launch)
        saved = self._saved(step)
        middle = float(np.median(_row_errors(launched, self._run_eagerly(step, None))))
        replayed = self._tried(captured, step, works, captured.graph.replay)
        differing = _differing(self._saved(step), saved)
        shape = f"a step of {bucket.tokens} tokens and {bucket.rows} rows of logits"
        tolerance = _TOLERANCE[self._logits.dtype]
        errors = _row_errors(replayed, launched)
        _log.debug("%s: replayed %.2g, without padding %.2g", shape, errors.max(), middle)
        if not max(errors.max(), differing) <= tolerance:  # so written that NaN fails too
            again = self._tried(captured, step, works, captured.launch)
            if not torch.equal(again, launched):
                tolerance = max(tolerance, _TOLERANCE_IN_DOUBT)
        for what, error in (("", errors.max()), (" in the states it saves", differing)):
            if not error <= tolerance:
                raise UnsupportedModel(
                    f"self-check failed: {shape}, replayed from a CUDA graph, differs from the "
                    f"same launches without it{what} (relative error {error:.2g}, limit "
                    f"{tolerance:.2g}); set cuda_graphs to false"
                )
        if not middle <= _PADDING_TOLERANCE:
            raise UnsupportedModel(
                f"self-check failed: {shape} differs from the same step without padding (relative "
                f"error of the middle row {middle:.2g}, limit {_PADDING_TOLERANCE:.2g}); set "
                "cuda_graphs to false"
            )

    def _tried(
        self,
        captured: _Captured,
        step: StepArrays,
        works: list[Work],
        start: Callable[[], None],
    ) -> Tensor:
        """Logits of a step that nothing is left of from the times before: [rows, width]."""
        self._load(captured, step, works)
        self._forget(step)
        self._logits.fill_(torch.nan)
        start()
        return self._logits[: len(step.logits_rows)].clone()

    def _forget(self, step: StepArrays) -> None:
        """Take from the cache what this step has written there before."""
        for layer, group in self._storage.group_of.items():
            slots = torch.from_numpy(step.slots[group]).to(self._device)
            for kept in self._storage.of_layer(layer):
                kept.view(torch.uint8).index_fill_(0, slots, 0)
        for states, slots in self._states_saved(step):
            states.index_fill_(0, slots, 0)

    def _saved(self, step: StepArrays) -> list[Tensor]:
        """What a step has saved of recurrent states, layer by layer."""
        return [states.index_select(0, slots) for states, slots in self._states_saved(step)]

    def _states_saved(self, step: StepArrays) -> list[tuple[Tensor, Tensor]]:
        """Each tensor of states, and the slots that a step saves to."""
        if self._states is None:
            return []
        slots = torch.from_numpy(step.state_arrays.save_slots).to(self._device)
        tensors = (*self._states.conv.values(), *self._states.scan.values())
        return [(tensor, slots) for tensor in tensors]


def _differing(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest relative difference between tensors; NaN where there is one."""
    pairs = [(a.float(), b.float()) for a, b in zip(found, expected, strict=True) if a.numel()]
    errors = [(a - b).norm() / b.norm().clamp_min(1e-30) for a, b in pairs]
    return float(torch.stack(errors).max()) if errors else 0.0


def _row_errors(logits: Tensor, expected: Tensor) -> NDArray[np.float32]:
    """Of rows that may be too many to widen them at once; 0 where the expected ones overflow.

    Noise is no context that a model in half precision has been trained on.
    """
    parts = []
    for at in range(0, len(logits), _COMPARED_ROWS):
        wanted = expected[at : at + _COMPARED_ROWS]
        errors = row_errors(logits[at : at + _COMPARED_ROWS], wanted)
        parts.append(errors.masked_fill(wanted.isnan().any(1), 0))
    found: NDArray[np.float32] = torch.cat(parts).cpu().numpy()
    return found
