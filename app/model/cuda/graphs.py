"""Steps on CUDA: replayed from a CUDA graph if one fits, otherwise launched kernel by kernel.

The launches of a small step from Python take longer than its kernels. A CUDA graph is one launch,
but its shape is fixed, so there is a graph for each of some thirty *buckets*: a number of tokens,
in any spans, and a number of rows of logits. A step is padded to the smallest bucket it fits in.
All inputs that differ between steps are in one buffer (``step_buffers``), which steps without a
graph use as well: both have the same launches and the same inputs, except for padding.

After all graphs are captured, each is replayed twice with random steps and compared with the same
step launched kernel by kernel. This detects a graph that overwrites another's memory.

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
from app.model.inputs import NO_INTS, StepArrays
from app.model.self_check import TOLERANCE, row_errors
from app.model.state_storage import StateStorage

_SIZES = (1, 2, 4, *range(8, 32, 8), *range(32, 64, 16), *range(64, 128, 16), *range(128, 256, 32),
          *range(256, 512, 64), *range(512, 1024, 128), *range(1024, 4097, 256))  # fmt: skip
"""Tokens of the buckets. Below 128 tokens reading the weights takes longer than the computation, so
padding is free; above, padding is at most a quarter, on average a tenth."""
_FEW_ROWS_FROM = 128
"""Size from which buckets with a quarter as many rows exist too, for leaps and prompts."""
_MOST_ROWS = 512
"""Maximum rows of logits in a bucket: 131 MB in half precision for 128,000 token ids."""
_MOST_TABLE_BLOCKS = 1 << 20
"""Maximum cache blocks in a replayed step: 512 answers of 32,000 tokens, in blocks of 16."""
_MOST_CHUNKS = 64
"""Maximum items for each token of a captured batch-invariant step."""
_WARM_TOKENS = 64
_WARM_UPS = 2
_TOLERANCE_IN_DOUBT = 0.5
"""Maximum relative error of a replay, instead of ``TOLERANCE``, for models with nondeterministic
kernels, which add in any order; a mixture of experts may then choose another expert. The error
between unrelated rows is 1.4."""
_PADDING_TOLERANCE = 0.5
"""Maximum median error of a padded step: libraries use other kernels for other shapes."""
_COMPARED_ROWS = 64
"""Rows compared at a time, since they are converted to float32."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """The shape of one captured step."""

    tokens: int
    rows: int
    """Rows of logits."""


def make_buckets(max_tokens: int) -> tuple[Bucket, ...]:
    """Buckets up to ``max_tokens``, smallest first; none for 0."""
    sizes = [size for size in _SIZES if size <= max_tokens]
    buckets = [Bucket(size, size) for size in sizes if size <= _MOST_ROWS]
    buckets += [Bucket(size, size // 4) for size in sizes if size >= _FEW_ROWS_FROM]
    return tuple(sorted(buckets))


def choose_bucket(buckets: Sequence[Bucket], tokens: int, rows: int) -> Bucket | None:
    """The smallest bucket with room for ``tokens`` and ``rows``; None if there is none."""
    return next((b for b in buckets if b.tokens >= tokens and b.rows >= rows), None)


def list_sizes(kind: Kind, tokens: int, max_model_len: int) -> ListSizes:
    """Sizes of the lists of a captured step with ``tokens`` tokens.

    Enough for every mix of spans; in batch-invariant mode for some 64,000 keys a token on average.
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
        """Launch the captured work again."""


class Capture(Protocol):
    def __call__(self, launch: Callable[[], None]) -> Replay:
        """Capture the work that ``launch`` starts on the device."""


class GraphCapture:
    """Captures CUDA graphs on one separate stream; the graphs share one memory pool."""

    def __init__(self) -> None:
        self._pool: Any = torch.cuda.graph_pool_handle()
        # One stream for all: torch keeps freed memory, and libraries a workspace, by stream.
        self._side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, launch: Callable[[], None]) -> Replay:
        side = self._side
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):  # libraries choose kernels and allocate memory
                launch()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=side):
            launch()
        return graph


@dataclass(frozen=True, slots=True)
class _Captured:
    """A graph, and the objects that it reads and does not keep alive."""

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
        """``max_graph_tokens`` 0: no graphs. Call ``prepare`` before the first ``run``.

        ``states`` are those of the model's recurrent layers. ``must_capture``: other ranks replay
        the same graphs, so a failed capture is an error.
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
        """Output of all replays, with the rows of the largest bucket."""

    @property
    def count(self) -> int:
        """Number of captured buckets."""
        return len(self._captured)

    @torch.inference_mode()
    def prepare(self, progress: Progress = SILENCE) -> None:
        """Compile all kernels, capture all buckets, and check their replays.

        A model whose forward pass waits for the device cannot be captured: all its steps are then
        launched kernel by kernel. Raises ``UnsupportedModel`` if a kernel does not fit into the
        GPU, or if a replay gives other results.
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

        ``drawn``: token ids of the previous step's draws, int64, still on the device;
        ``step.drawn_rows`` maps this step's tokens to them.
        """
        fitting = self.find_bucket(step)
        if (step.drawn_rows < 0).all():
            drawn = None
        if fitting is None:
            return self._run_eagerly(step, drawn)
        bucket, works = fitting
        captured = self._captured[bucket]
        if step.vision_input is not None and step.vision_input.positions is not None:
            # Without trees only the model reads the positions.
            step = replace(step, positions=step.vision_input.positions)
        self._load(captured, step, works, drawn)
        captured.graph.replay()
        return self._logits[: len(step.logits_rows)]

    def find_bucket(self, step: StepArrays) -> tuple[Bucket, list[Work]] | None:
        """The bucket for a step, and the step's lists; None if no graph fits.

        Graphs do not support trees, image features or positions by axis.
        """
        if step.ancestors is not None:
            return None
        if (images := step.vision_input) is not None:
            by_axis = images.positions is not None and images.positions.ndim > 1
            if images.rows or by_axis:
                return None
        bucket = choose_bucket(self._buckets, len(step.token_ids), len(step.logits_rows))
        if bucket is None:
            return None
        works = self._padded_work(step, bucket)
        return None if works is None else (bucket, works)

    def _padded_work(self, step: StepArrays, bucket: Bucket) -> list[Work] | None:
        """The lists of a step padded to ``bucket``; None if they are too long."""
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
        if step.vision_input is None or step.vision_input.positions is None:
            return self._compute(device_step)
        positions = self._forward.model_positions(step)
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

    def _empty_step(self) -> StepArrays:
        """An empty step, for padding."""
        slots = (NO_INTS,) * len(self._storage.groups)
        return StepArrays(NO_INTS, NO_INTS, slots, NO_INTS, spans=(), drawn_rows=NO_INTS)

    def _warm_up(self, *, trees: bool = False) -> Tensor:
        """Launch every kernel of a forward pass once, with or without work, to compile it.

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
        empty = self._empty_step()
        buffers = StepBuffers(self._device, layout.end)
        step = buffers.device_step(layout, [[sizes.whole()] for sizes in layout.lists])
        works = self.attention.list_work(empty, range(_WARM_TOKENS))
        buffers.load(layout, empty, works, self.attention.spare_slots)
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

        empty = self._empty_step()
        works = self.attention.list_work(empty, range(bucket.tokens))
        self._buffers.load(layout, empty, works, self.attention.spare_slots)
        return _Captured(layout, step, launch, capture(launch))

    def _check_replays(self) -> None:
        """Raises ``UnsupportedModel`` if a replay differs from the same step without a graph."""
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
        tolerance = TOLERANCE[self._logits.dtype]
        errors = _row_errors(replayed, launched)
        _log.debug("%s: replayed %.2g, without padding %.2g", shape, errors.max(), middle)
        if not max(errors.max(), differing) <= tolerance:  # ``not <=``: NaN fails too
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
                f"self-check failed: {shape} differs from the same step without padding (median "
                f"relative error of rows {middle:.2g}, limit {_PADDING_TOLERANCE:.2g}); set "
                "cuda_graphs to false"
            )

    def _tried(
        self,
        captured: _Captured,
        step: StepArrays,
        works: list[Work],
        start: Callable[[], None],
    ) -> Tensor:
        """Logits [rows, width] of a step, computed after erasing results of earlier runs."""
        self._load(captured, step, works)
        self._forget(step)
        self._logits.fill_(torch.nan)
        start()
        return self._logits[: len(step.logits_rows)].clone()

    def _forget(self, step: StepArrays) -> None:
        """Erase the keys, values and states that earlier runs of this step wrote."""
        for layer, group in self._storage.group_of.items():
            slots = torch.from_numpy(step.slots[group]).to(self._device)
            for kept in self._storage.of_layer(layer):
                kept.view(torch.uint8).index_fill_(0, slots, 0)
        for states, slots in self._states_saved(step):
            states.index_fill_(0, slots, 0)

    def _saved(self, step: StepArrays) -> list[Tensor]:
        """The recurrent states that a step saved, layer by layer."""
        return [states.index_select(0, slots) for states, slots in self._states_saved(step)]

    def _states_saved(self, step: StepArrays) -> list[tuple[Tensor, Tensor]]:
        """Pairs of a state tensor and the slots that a step saves to."""
        if self._states is None:
            return []
        slots = torch.from_numpy(step.state_arrays.save_slots).to(self._device)
        tensors = (*self._states.conv.values(), *self._states.scan.values())
        return [(tensor, slots) for tensor in tensors]


def _differing(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest relative difference between tensors; NaN if one of them contains NaN."""
    pairs = [(a.float(), b.float()) for a, b in zip(found, expected, strict=True) if a.numel()]
    errors = [(a - b).norm() / b.norm().clamp_min(1e-30) for a, b in pairs]
    return float(torch.stack(errors).max()) if errors else 0.0


def _row_errors(logits: Tensor, expected: Tensor) -> NDArray[np.float32]:
    """Relative error of each row, a block of rows at a time; 0 if the expected row has NaN.

    A model in half precision may overflow on noise, which it was not trained on.
    """
    parts = []
    for at in range(0, len(logits), _COMPARED_ROWS):
        wanted = expected[at : at + _COMPARED_ROWS]
        errors = row_errors(logits[at : at + _COMPARED_ROWS], wanted)
        parts.append(errors.masked_fill(wanted.isnan().any(1), 0))
    found: NDArray[np.float32] = torch.cat(parts).cpu().numpy()
    return found
