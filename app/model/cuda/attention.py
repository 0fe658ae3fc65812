"""Attention of a step on CUDA: a fixed number of launches, straight from the paged cache.

A layer stores new keys and values in one launch, and has up to three more for each wave: short
tiles, long tiles, merging partial sums. Their input is the step's lists (``work``), so the launches
are the same for all steps of one wave, and a CUDA graph can hold them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources

from app.core.errors import UnsupportedModel
from app.model.cuda.kernels.attention import (
    merge_chunks,
    paged_attention,
    store_keys_and_values,
)
from app.model.cuda.step_buffers import (
    DeviceStep,
    Layout,
    ListSizes,
    StateSizes,
    StepBuffers,
)
from app.model.cuda.tiles import (
    Device,
    Heads,
    TileShape,
    heads_together,
    long_tile,
    power_of_2,
    short_tile,
    this_device,
)
from app.model.cuda.work import Kind, SpanNumbers, Work, list_work, most_chunks
from app.model.inputs import StepArrays
from app.model.kv_storage import KvStorage, LayerShape
from app.model.layers.attention import AttentionOptions

_SHORT_PROGRAMS = 4
"""Programs for each multiprocessor: at least two fit at a time, the others balance the load."""
_LONG_PROGRAMS = 2
_MERGE_PROGRAMS = 8
_PARTIAL_BYTES = 256 << 20
"""Maximum size of the buffers for partial sums, unless a single tile needs more."""
_MOST_PARTIAL_TOKENS = 16 << 10
_EAGER_INTS = 1 << 18
_ALIGNED_BYTES = 16

Constants = Mapping[str, Any]

_SHORT, _LONG, _MERGES = range(3)
"""Indices into a wave's counts."""


@dataclass(frozen=True, slots=True)
class _LayerLaunches:
    """Launch arguments of a layer that are the same in all steps."""

    kind: int
    q_heads: int
    readers: int
    """Groups of query heads: those of a key head, or some of those that share latents."""
    value_dim: int
    short: Constants
    long: Constants
    merge: Constants
    store: Constants
    short_programs: int
    long_programs: int


class TritonAttention:
    """Writes new keys and values to the cache and attends over it; the steps' ``attend``.

    ``storage`` is public for fused layers, which write keys and values themselves (to ``slots``)
    and call ``attend_stored``.
    """

    def __init__(
        self,
        storage: KvStorage,
        shapes: Mapping[int, LayerShape],
        *,
        max_model_len: int,
        batch_invariant: bool = False,
        has_adapters: bool = False,
        recurrent: bool = False,
        device: Device | None = None,
        partial_tokens: int | None = None,
    ) -> None:
        """Raises ``UnsupportedModel`` if the heads' tiles do not fit into the GPU.

        ``has_adapters``: steps name each token's adapter; ``recurrent``: steps have slots of
        recurrent states. ``device`` None: the properties of the GPU; ``partial_tokens`` None: as
        many as fit in ``_PARTIAL_BYTES``.
        """
        self.storage = storage
        self.has_adapters = has_adapters
        self._recurrent = recurrent
        self._device = storage.device
        limits = device or this_device(self._device)
        self._limits = limits
        kinds: dict[Kind, int] = {}
        self._layers: dict[int, _LayerLaunches] = {}
        for layer, shape in shapes.items():
            heads = heads_of(shape)
            long = long_tile(heads, limits, batch_invariant=batch_invariant)
            short = long if batch_invariant else short_tile(heads, limits)
            kind = Kind(
                cache_group=storage.group_of[layer],
                window=storage.groups[storage.group_of[layer]].window,
                short_tokens=0 if batch_invariant else max(1, short.rows // heads.group),
                long_tokens=max(1, long.rows // heads.group),
            )
            number = kinds.setdefault(kind, len(kinds))
            self._layers[layer] = _launches(
                number, shape, storage.block_size, short, long, limits.multiprocessors
            )
        self.kinds = tuple(kinds)

        layers = self._layers.values()
        floats = max([each.q_heads * each.value_dim for each in layers], default=1)
        q_heads = max([each.q_heads for each in layers], default=1)
        for_a_tile = max(
            [kind.long_tokens * most_chunks(kind, max_model_len) for kind in kinds], default=1
        )
        if partial_tokens is None:
            partial_tokens = min(
                _PARTIAL_BYTES // (4 * (floats + 2 * q_heads)), _MOST_PARTIAL_TOKENS
            )
        self.partial_tokens = max(partial_tokens, for_a_tile)
        """Capacity of the buffers for partial sums: pairs of a token and a chunk of keys."""
        self._partial_out = self._floats(self.partial_tokens * floats)
        self._partial_max = self._floats(self.partial_tokens * q_heads)
        self._partial_sum = self._floats(self.partial_tokens * q_heads)
        self._buffers = StepBuffers(self._device, _EAGER_INTS)
        self._step: DeviceStep | None = None

    @property
    def step(self) -> DeviceStep:
        """The current step."""
        assert self._step is not None, "no step has begun"
        return self._step

    @property
    def adapters(self) -> Tensor:
        """Slots of the adapters of the step's tokens: [T], int32."""
        return self.step.adapters

    @property
    def nbytes(self) -> int:
        """Memory on the device, without the cache."""
        partial = (self._partial_out, self._partial_max, self._partial_sum)
        return sum(part.nbytes for part in partial) + 4 * self._buffers.size

    def begin(self, step: StepArrays) -> None:
        """Copy a step to the device, without padding."""
        works = self.list_work(step, range(0))
        layout = Layout(
            tokens=len(step.token_ids),
            rows=len(step.logits_rows),
            groups=len(step.slots),
            lists=[ListSizes.of(work) for work in works],
            tables=sum(len(table) for span in step.spans for table in span.blocks),
            adapters=self.has_adapters,
            states=self.state_sizes(len(step.spans), len(step.state_arrays.save_rows)),
            trees=step.ancestors is not None,
            later=step.vision_input is not None and step.vision_input.ends is not None,
        )
        device_step = self._buffers.device_step(layout, [work.waves for work in works])
        if step.vision_input is not None:
            device_step = replace(device_step, windows_alone=step.vision_input.windows_alone)
        self._buffers.load(layout, step, works, self.spare_slots)
        self.begin_on_device(device_step)

    def begin_on_device(self, step: DeviceStep) -> None:
        """Begin a step that is already on the device, in a CUDA graph's buffer for example."""
        self._step = step

    def list_work(self, step: StepArrays, padding: range) -> list[Work]:
        """The work of each kind of layer; ``padding`` is a range of rows after the step's."""
        spans = SpanNumbers.of(step)
        return [list_work(kind, spans, padding, self.partial_tokens) for kind in self.kinds]

    def state_sizes(self, spans: int, saves: int) -> StateSizes | None:
        """Sizes of the lists of state slots; None if the model has no recurrent layers."""
        return StateSizes(spans, saves) if self._recurrent else None

    @property
    def spare_slots(self) -> list[int]:
        """For each cache group, the slot that padding writes to: the spare block's first."""
        return [group.num_blocks * self.storage.block_size for group in self.storage.groups]

    def slots(self, layer: int) -> Tensor:
        """Slots for the step's new keys and values of a layer: [T], int64."""
        return self.step.slots[self.storage.group_of[layer]]

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        self._store(layer, key, value)
        if options.latent is None:
            return self.attend_stored(layer, query, options)
        sums = self.attend_stored(layer, options.latent.absorb(query), options)
        return options.latent.results(sums)

    def attend_stored(self, layer: int, query: Tensor, options: AttentionOptions) -> Tensor:
        """Query [Hq, T, D] -> [T, Hq, Dv]; the step's keys and values must be in the cache.

        The results of padding rows are zeros.
        """
        step, launches = self.step, self._layers[layer]
        keys, values, *scales = self.kept(layer)
        query = _aligned(query)
        heads, tokens, _ = query.shape
        out = query.new_empty(tokens, heads, launches.value_dim)
        sinks = query if options.sinks is None else options.sinks
        near = None if options.near is None else _aligned(options.near.contiguous())
        slopes = near if options.slopes is None else options.slopes
        slopes = query if slopes is None else slopes
        flags = {
            "WINDOWED": options.window is not None,
            "CHUNKED": options.chunked,
            "SLOPES": options.slopes is not None,
            "EXTENT": 0 if near is None else near.shape[2],
            "CAPPED": options.softcap is not None,
            "SINKS": options.sinks is not None,
            "TREES": step.ancestors is not None,
            "LATER": step.ends is not None
            and (options.window is not None or not step.windows_alone),
        }
        ancestors = step.positions if step.ancestors is None else step.ancestors
        ends = step.positions if step.ends is None else step.ends
        partial = (self._partial_out, self._partial_max, self._partial_sum)
        for wave in step.waves[launches.kind]:
            for items, number, constants, programs in (
                (wave.short, _SHORT, launches.short, launches.short_programs),
                (wave.long, _LONG, launches.long, launches.long_programs),
            ):
                if items is None:
                    continue
                _launch(
                    paged_attention, (min(len(items), programs), launches.readers),
                    query, keys, values, out, *partial,
                    items, wave.counts, step.tables, sinks, slopes, *scales,
                    step.positions, ancestors, ends,
                    options.scale, options.softcap or 0.0, options.window or 0,
                    _stride(query, 0), _stride(query, 1),
                    LIST=number, **constants, **flags,
                )  # fmt: skip
            if wave.merges is not None:
                programs = _MERGE_PROGRAMS * self._limits.multiprocessors
                _launch(
                    merge_chunks, (min(len(wave.merges) * heads, programs),),
                    *partial, out, wave.merges, wave.counts, sinks,
                    LIST=_MERGES, SINKS=flags["SINKS"], **launches.merge,
                )  # fmt: skip
        return out

    def _store(self, layer: int, key: Tensor, value: Tensor) -> None:
        key, value = _aligned(key), _aligned(value)
        _launch(
            store_keys_and_values, (key.shape[1], key.shape[0]),
            key, value, *self.kept(layer), self.slots(layer),
            _stride(key, 0), _stride(key, 1), _stride(value, 0), _stride(value, 1),
            **self._layers[layer].store,
        )  # fmt: skip

    def kept(self, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A layer's keys, values and their scales; without scales, tensors that kernels ignore."""
        storage = self.storage
        keys, values = storage.keys[layer], storage.values[layer]
        scales, value_scales = storage.key_scales, storage.value_scales
        return keys, values, scales.get(layer, keys), value_scales.get(layer, values)

    def _floats(self, count: int) -> Tensor:
        return torch.empty(count, dtype=torch.float32, device=self._device)


def heads_of(shape: LayerShape) -> Heads:
    value_pad = _pad(shape.value_dim)
    return Heads(
        group=heads_together(shape.group, value_pad) if shape.latent else shape.group,
        key_pad=_pad(shape.key_dim - shape.value_dim if shape.latent else shape.key_dim),
        value_pad=value_pad,
        item_bytes=shape.dtype.itemsize,
        latent=shape.latent,
        near=shape.near,
    )


def _pad(dim: int) -> int:
    return max(16, power_of_2(dim))


def _launches(
    kind: int,
    shape: LayerShape,
    block_size: int,
    short: TileShape,
    long: TileShape,
    multiprocessors: int,
) -> _LayerLaunches:
    heads = heads_of(shape)
    q_heads = shape.kv_heads * shape.group
    readers = q_heads // heads.group
    dims = {
        "KEY_DIM": shape.key_dim,
        "VALUE_DIM": shape.value_dim,
        "VALUE_PAD": heads.value_pad,
        "LATENT": shape.latent,
        "SCALED": shape.fp8,
    }

    def tile(tile: TileShape) -> Constants:
        return dims | {
            "KV_HEADS": readers,
            "KEY_PAD": heads.key_pad,
            "GROUP": heads.group,
            "BLOCK": block_size,
            "UNIT": _unit(shape.key_dim),
            "TILE_ROWS": tile.rows,
            "TILE_KEYS": tile.keys,
            # By default tensor cores round float32 to 10 bits.
            "PRECISION": "ieee" if shape.dtype == torch.float32 else "tf32",
            # A weight times a scale may be too small for float16.
            "WEIGHED": tl.float32 if shape.dtype == torch.float32 else tl.bfloat16,
            "num_warps": tile.warps,
            "num_stages": tile.stages,
        }

    return _LayerLaunches(
        kind=kind,
        q_heads=q_heads,
        readers=readers,
        value_dim=shape.value_dim,
        short=tile(short),
        long=tile(long),
        merge={
            "HEADS": q_heads,
            "VALUE_DIM": shape.value_dim,
            "VALUE_PAD": heads.value_pad,
            "CHUNKS": max(8, min(32, 4096 // heads.value_pad)),
        },
        store=dims
        | {
            "KV_HEADS": shape.kv_heads,
            "KEY_PAD": _pad(shape.key_dim),
            "KEY_UNIT": _unit(shape.key_dim),
            "VALUE_UNIT": _unit(shape.value_dim),
            "num_warps": 1,
        },
        short_programs=max(1, _SHORT_PROGRAMS * multiprocessors // readers),
        long_programs=max(1, _LONG_PROGRAMS * multiprocessors // readers),
    )


def _launch(kernel: Any, grid: Sequence[int], *arguments: Any, **constants: Any) -> None:
    """Raises ``UnsupportedModel`` if a newly compiled kernel needs too much shared memory."""
    try:
        kernel[tuple(grid)](*arguments, **constants)
    except OutOfResources as error:
        raise UnsupportedModel(
            f"this GPU has too little shared memory for this model's attention: {error}"
        ) from error


def _unit(dim: int) -> int:
    """Common divisor of all strides of heads with ``dim`` dimensions; kernels rely on it."""
    return gcd(dim, 16)


def _aligned(heads: Tensor) -> Tensor:
    """Heads [H, T, D] in the layout that the kernels require; copied if they have another one.

    Rows have no gaps and begin at multiples of ``_unit``; the first is aligned to 16 bytes.
    """
    unit = _unit(heads.shape[2])
    odd = heads.stride(2) != 1 or _stride(heads, 0) % unit or _stride(heads, 1) % unit
    if odd or heads.data_ptr() % _ALIGNED_BYTES:
        return heads.clone(memory_format=torch.contiguous_format)
    return heads


def _stride(heads: Tensor, dim: int) -> int:
    """The stride of ``dim``; 0 for a dimension of size 1, whose stride is arbitrary in torch."""
    return heads.stride(dim) if heads.shape[dim] > 1 else 0
