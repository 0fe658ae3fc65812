"""Records of numbers and addresses for the threads of a team, which run no Python."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numpy.typing import NDArray

from app.model.cpu.kernels.compiled import compiled
from app.model.cpu.kernels.llvm import I8, I64, VOID, of_integers, pointer

Records = NDArray[Any]


def record(*names: str, floats: tuple[str, ...] = ()) -> np.dtype[Any]:
    """The type of a record: integers and addresses, then floats."""
    return np.dtype([(name, np.int64) for name in names] + [(name, np.float64) for name in floats])


JOB = record(
    "run", "layers", "step", "rounded", "kind", "items", "layer", "rows", "blocks",
    "x", "weight", "residual", "out", "pitch", "tiles_from", "rounded_tiles_from",
)  # fmt: skip
"""The function that does an item, the addresses of all layers, of the step and of memory for
rounded rows, and the job: ``pitch`` is from row to row of ``out`` and ``residual``, in numbers.
``tiles_from`` and, for rounded rows, ``rounded_tiles_from`` are the numbers of rows from which
products are by tiles (``amx``); 0: never."""
WEIGHT = record(
    "multiply", "by_tiles", "panels", "bias", "inputs", "outputs",
    "units", "unit_bytes", "input_bytes", "units_at_once", "rounds",
)  # fmt: skip
"""A weight in panels: the addresses of its product (``panels.MULTIPLY``) and of that by AMX's
tiles, its units in a panel, their bytes there and in a row of inputs, and how often that row is
rounded (``rounded_rows``): not at all, to 8 bits, or to 16, which are two rows of 8; or
``WIDENED``."""
WIDENED = -1
"""For ``rounds``: a row is copied as float32."""
WEIGHT_BYTES = WEIGHT.itemsize
LAYER = record(
    "hidden", "intermediate", "shifted", "norm", "mlp_norm", "gate_up", "down",
    "inputs", "input_parts", "width", "out", "mixed", "mixer",
    "heads", "kv_heads", "dim", "window", "q_norm", "k_norm", "gated",
    "value_dim", "taps", "filters", "offsets", "rates", "steps", "head_norm",
    floats=("eps", "mlp_eps", "head_eps", "scale"),
)  # fmt: skip
"""Sizes, and the addresses of norms and of weights' records; 0 for one that is not there.

``inputs`` are the weights of the products that a mixer begins with, ``width`` numbers of a token in
all; as many records as kinds of panels, one behind the other. ``mixed`` numbers go into ``out``.
``shifted``: norms multiply by 1 + their weight. ``mixer``: the address of a function that does an
item of what lies between; 0: attention, with ``gated`` its queries' gates behind the values. From
``value_dim`` on they are the gated delta rule's, see ``delta_layer``."""
STEP = record(
    "tokens", "hidden", "normed", "heads", "attended", "intermediate",
    "cos", "sin", "rotary_dim", "slots", "spans", "span_count", "blocks", "block_size",
    "later", "later_count",
    "pools", "attend", "attention",
    "state_spans", "rows", "reads", "save_starts", "save_rows", "save_slots",
    "state_pools", "state_slots", "convolved", "gates",
)  # fmt: skip
"""Sizes, and the addresses of what a step is computed with. ``heads`` has what a mixer begins with,
``attended`` what it gives. ``rotary_dim`` is the width of ``cos``; ``later`` is
``StepImages.ends``, if there are any. ``pools`` has the addresses of keys and values of each
layer, ``attend`` and ``attention`` are those of ``attention.entry`` and of a record for it,
``state_pools`` those of a layer's convolution's and its scan's states. From ``rows`` to
``save_slots`` are ``inputs.StateArrays``."""

ATTENTION = record(
    "tiles", "float_tiles", "size", "query_size",
    "query", "query_pitch", "heads", "kv_heads", "dim",
    "keys", "values", "slot_bytes", "value_slot_bytes", "value_dim", "out",
    "spans", "span_count", "blocks", "block_size", "later", "later_count", "chunks",
    "window", "chunked", "sinks", "slopes", "slope_count", "extent",
    floats=("scale", "softcap"),
)  # fmt: skip
"""Attention of some short spans, see ``attention``: addresses, bytes, counts and options.

``tiles.entry`` of the cache's type and of float32; bytes of its numbers, and of those that queries
are multiplied as. ``query`` [T, Hq, D], ``query_pitch`` bytes between tokens; pools of ``keys`` and
``values`` [slots, Hk, D or more]; ``out`` [T, Hq, ``value_dim``]. ``spans`` [n, 4]: row, tokens,
first position, and where their ``blocks`` begin. ``later`` are ``StepImages.ends``. The key heads
are cut into ``chunks``. With ``extent`` E, ``slopes`` are ``AttentionOptions.near``
[T * Hq * E]: numbers that are added to a token's scores by distance. 0 stands for none."""

_numba: Any = numba
memory: Any = _numba.carray
"""numba's array over memory: ``memory(at(address), shape, dtype)``."""


@of_integers(types.voidptr)
def at(builder: Any, address: Any) -> Any:
    return pointer(builder, address, I8)


@of_integers(types.void)
def run_item(builder: Any, function: Any, call: Any, item: Any) -> None:
    """Call the function at one address, which does an item of the record at another."""
    kind = ir.FunctionType(VOID, [I64, I64])
    builder.call(pointer(builder, function, kind), [call, item])


@compiled(parallel=True)
def share(function: int, call: int, items: int, parallel: bool) -> None:
    """Do all items of the record at an address, see ``run_item``; ``parallel``: by numba's threads.

    This loop takes numba seconds to compile, and is compiled once.
    """
    if parallel:
        for item in numba.prange(items):
            run_item(function, call, item)
    else:
        for item in range(items):
            run_item(function, call, item)


@compiled()
def tensor(address: int, shape: Any) -> Any:
    """The bfloat16 tensor at an address, with numbers as in ``compiled.as_numpy``."""
    return memory(at(address), shape, np.uint16)
