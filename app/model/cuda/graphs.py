"""Small steps replayed from CUDA graphs: one launch instead of Python for every layer.

A graph is fixed in shape, so a step is padded to a bucket of so many sequences with so many
tokens each. Its inputs lie in one buffer, filled on the host and copied once::

    token_ids | positions | slots | span_length | span_start | table_start | logits_rows | tables
        N           N         N         S             S             S             N         ...

with S sequences, N = S * tokens of the bucket; of ``tables``, the last part, only what is in use
is copied. Padded tokens write to the spare block and nothing reads them. Sampling and masks stay
outside. Choosing and padding run anywhere; only ``CudaGraphs`` needs a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.model.cuda.attention import DeviceStep, TritonAttention, span_numbers
from app.model.forward import RaggedForward
from app.model.inputs import Ints, StepArrays
from app.model.kv_storage import KvStorage

_TOKEN_BUCKETS = (1, 4, 8)
_MOST_ROWS = 256
"""Beyond this many tokens a step computes for longer than Python takes to launch it."""

_EMPTY = np.empty(0, dtype=np.int64)
_NOTHING = StepArrays(_EMPTY, _EMPTY, (_EMPTY,), _EMPTY, spans=(), drawn_rows=_EMPTY)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The shape of one captured step."""

    sequences: int
    tokens: int
    """Tokens of each sequence."""

    @property
    def rows(self) -> int:
        return self.sequences * self.tokens


def make_buckets(max_sequences: int) -> tuple[Bucket, ...]:
    """Powers of two of sequences by 1, 4 and 8 tokens; the cheapest first."""
    powers = [1 << i for i in range(max_sequences.bit_length())]
    found = [Bucket(s, t) for t in _TOKEN_BUCKETS for s in powers if s * t <= _MOST_ROWS]
    return tuple(sorted(found, key=lambda bucket: (bucket.rows, bucket.tokens)))


def choose_bucket(buckets: Sequence[Bucket], step: StepArrays) -> Bucket | None:
    """The cheapest bucket the step fits in; None where it fits in none."""
    sequences = len(step.spans)
    longest = max(span.length for span in step.spans)
    fitting = (b for b in buckets if b.sequences >= sequences and b.tokens >= longest)
    return next(fitting, None)


def pad(step: StepArrays, bucket: Bucket, spare_slot: int) -> StepArrays:
    """The same step with every span moved to a row of its own in the bucket.

    Rows that no span fills hold token 0 at position 0 and write to ``spare_slot``.
    """
    lengths = np.array([span.length for span in step.spans], dtype=np.int64)
    firsts = np.arange(len(lengths)) * bucket.tokens
    moved = np.arange(int(lengths.sum())) + np.repeat(
        firsts - np.cumsum(lengths) + lengths, lengths
    )
    token_ids = np.zeros(bucket.rows, dtype=np.int64)
    positions = np.zeros(bucket.rows, dtype=np.int64)
    slots = np.full(bucket.rows, spare_slot, dtype=np.int64)
    token_ids[moved] = step.token_ids
    positions[moved] = step.positions
    slots[moved] = step.slots[0]
    return StepArrays(
        token_ids=token_ids,
        positions=positions,
        slots=(slots,),
        logits_rows=moved[step.logits_rows],
        spans=tuple(
            replace(span, row=first)
            for span, first in zip(step.spans, firsts.tolist(), strict=True)
        ),
        drawn_rows=step.drawn_rows,
    )


class GraphInputs:
    """The buffer of one bucket on the host and on the device, and its parts."""

    def __init__(self, bucket: Bucket, blocks_per_sequence: int, device: torch.device) -> None:
        self.bucket = bucket
        s, n = bucket.sequences, bucket.rows
        self._lengths = (n, n, n, s, s, s, n, s * blocks_per_sequence)
        self._head = sum(self._lengths[:-1])
        host = torch.zeros(sum(self._lengths), dtype=torch.long)
        self._host = host.pin_memory() if device.type == "cuda" else host
        self._parts: list[Ints] = np.split(self._host.numpy(), np.cumsum(self._lengths)[:-1])
        self._device = torch.zeros(sum(self._lengths), dtype=torch.long, device=device)
        parts = torch.split_with_sizes(self._device, list(self._lengths))
        self.token_ids, self.positions = parts[0].unsqueeze(0), parts[1].unsqueeze(0)
        self.logits_rows = parts[6]
        self._step_parts = parts
        self._copied: Any = None
        if device.type == "cuda":
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def device_step(self, tile: int) -> DeviceStep:
        """What the kernel reads: views of the buffer, and the parts that never change."""
        s, tokens = self.bucket.sequences, self.bucket.tokens
        device = self._device.device
        tiles = [(i, at) for i in range(s) for at in range(0, tokens, tile)]
        tile_span, tile_first = torch.tensor(tiles, device=device).T.contiguous()
        return DeviceStep(
            slots=self._step_parts[2],
            span_row=torch.arange(0, s * tokens, tokens, device=device),
            span_length=self._step_parts[3],
            span_start=self._step_parts[4],
            table_start=self._step_parts[5],
            tables=self._step_parts[7],
            tile_span=tile_span,
            tile_first=tile_first,
            tile=tile,
        )

    def load(self, padded: StepArrays) -> None:
        """Fill the buffer with a step padded to this bucket, and start copying it over."""
        if self._copied is not None:
            # The device may still be reading what the step before left here.
            self._copied.synchronize()
        length, start, table_start, tables = span_numbers(padded.spans)
        arrays = (padded.token_ids, padded.positions, padded.slots[0], length, start, table_start)
        self._host[: self._head] = 0
        for part, values in zip(self._parts, (*arrays, padded.logits_rows, tables), strict=True):
            part[: len(values)] = values
        end = self._head + len(tables)
        self._device[:end].copy_(self._host[:end], non_blocking=True)
        if self._copied is not None:
            self._copied.record()


@dataclass(frozen=True, slots=True)
class _Captured:
    inputs: GraphInputs
    graph: torch.cuda.CUDAGraph
    logits: Tensor
    """Shape [rows of the bucket, width]: overwritten by every replay."""


class CudaGraphs:
    """Captured forward passes of one model, by bucket."""

    def __init__(
        self,
        forward: RaggedForward,
        attention: TritonAttention,
        storage: KvStorage,
        *,
        max_sequences: int,
        max_model_len: int,
    ) -> None:
        self._forward = forward
        self._attention = attention
        self._storage = storage
        self._buckets = make_buckets(max_sequences)
        self._blocks_per_sequence = -(-max_model_len // storage.block_size)
        self._captured: dict[Bucket, _Captured] = {}

    @property
    def count(self) -> int:
        """Step shapes captured."""
        return len(self._captured)

    def capture(self) -> None:
        """Capture every bucket, the largest first.

        A model that waits for the device inside its forward pass cannot be captured: none of
        its steps is then, and they run as they are.
        """
        pool = torch.cuda.graph_pool_handle()
        try:
            for bucket in reversed(self._buckets):
                self._captured[bucket] = self._capture(bucket, pool)
        except RuntimeError as error:
            self._captured.clear()
            self._buckets = ()
            _log.warning("decode steps run without CUDA graphs: %s", error)

    def run(self, step: StepArrays) -> Tensor | None:
        """Logits of the step's rows as ``RaggedForward.run`` gives; None where no graph fits."""
        bucket = choose_bucket(self._buckets, step)
        if bucket is None:
            return None
        captured = self._captured[bucket]
        captured.inputs.load(pad(step, bucket, self._spare_slot))
        captured.graph.replay()
        rows = captured.inputs.logits_rows[: len(step.logits_rows)]
        return captured.logits.index_select(0, rows)

    @property
    def _spare_slot(self) -> int:
        return self._storage.groups[0].spare_block * self._storage.block_size

    @torch.inference_mode()
    def _capture(self, bucket: Bucket, pool: Any) -> _Captured:
        device = next(iter(self._storage.keys.values())).device
        inputs = GraphInputs(bucket, self._blocks_per_sequence, device)
        inputs.load(pad(_NOTHING, bucket, self._spare_slot))
        self._attention.begin_on_device(inputs.device_step(self._attention.tile(bucket.tokens)))
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):  # compiles the kernels, and lets libraries allocate
                self._forward.compute(inputs.token_ids, inputs.positions, 0)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            logits = self._forward.compute(inputs.token_ids, inputs.positions, 0)
        return _Captured(inputs=inputs, graph=graph, logits=logits)
