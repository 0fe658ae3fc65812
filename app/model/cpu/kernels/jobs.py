"""What the threads of a team do for a decoder layer of the Llama kind; activations are bfloat16.

T tokens of a step, H hidden, Hq and Hk heads of D, I intermediate::

    hidden [T, H] -RMSNorm-> normed [T, H] -product-> heads [T, Hq + 2 Hk, D] -RoPE-> keys and
    values into the cache -attend-> attended [T, Hq, D] -product, + hidden-> hidden
    -RMSNorm-> normed -SwiGLU-> intermediate [T, I] -product, + hidden-> hidden

A job is a record of numbers and addresses, since the threads that do it run no Python. An item of
a product is one panel of 64 outputs for some of the rows; other items are a token, or a short span
and some of its heads.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numpy.typing import NDArray

from app.model.cpu.kernels import team
from app.model.cpu.kernels.attention import LOG2_E, attend_item, exp2
from app.model.cpu.kernels.compiled import address_of, compiled, narrow, widen
from app.model.cpu.kernels.llvm import I8, I64, VOID, of_integers, pointer
from app.model.cpu.kernels.panels import MOST_ROWS, WIDTH
from app.model.cpu.kernels.rounded_rows import round_row

Records = NDArray[Any]


def _record(*names: str, floats: tuple[str, ...] = ()) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in names] + [(name, np.float64) for name in floats])


JOB = _record(
    "run", "layers", "step", "rounded", "kind", "items", "layer", "rows", "blocks",
    "x", "weight", "residual", "out", "pitch",
)  # fmt: skip
"""The function that does an item, the addresses of all layers, of the step and of memory for
rounded rows, and the job: ``pitch`` is from row to row of ``out`` and ``residual``, in numbers."""
WEIGHT = _record(
    "multiply", "panels", "bias", "inputs", "outputs",
    "units", "unit_bytes", "input_bytes", "units_at_once", "rounds",
)  # fmt: skip
"""A weight in panels: the address of its product (``panels.MULTIPLY``), its units in a panel, their
bytes there and in a row of inputs, and whether that row is a rounded one (``rounded_rows``)."""
_WEIGHT_BYTES = WEIGHT.itemsize
LAYER = _record(
    "hidden", "intermediate", "heads", "kv_heads", "dim", "window",
    "norm", "qkv", "qkv_parts", "q_norm", "k_norm", "out", "mlp_norm", "gate_up", "down",
    floats=("eps", "mlp_eps", "head_eps", "scale"),
)  # fmt: skip
"""Sizes, and the addresses of norms and of weights' records; 0 for one that is not there. Of
queries, keys and values there are as many records as kinds of panels, one behind the other."""
STEP = _record(
    "tokens", "hidden", "normed", "heads", "attended", "intermediate",
    "cos", "sin", "rotary_dim", "slots", "spans", "span_count", "blocks", "block_size",
    "pools", "pool_slots",
)  # fmt: skip
"""Sizes, and the addresses of what a step is computed with. ``rotary_dim`` is the width of ``cos``;
``pools`` has the addresses of keys and values of each layer."""

PRODUCT, _SWIGLU, _ROUND, _NORM, _MLP_NORM, _ROPE, _ATTEND = range(7)
_ROWS = 96
"""Rows of an item: their sums stay in the first cache, their inputs in the second."""
INPUTS_AT_ONCE = 4096
"""Inputs of a panel multiplied at a time: they stay in the second cache for the next rows."""
_FEW_TOKENS = 8
"""Up to so many, norms, rotations and rounding are not shared out."""

_f32: Any = np.float32
_NO_SINKS = np.empty(0, dtype=np.float32)
_numba: Any = numba
_memory: Any = _numba.carray


@of_integers(types.voidptr)
def _at(builder: Any, address: Any) -> Any:
    return pointer(builder, address, I8)


@of_integers(types.void)
def _run(builder: Any, function: Any, job: Any, item: Any) -> None:
    kind = ir.FunctionType(VOID, [I64, I64])
    builder.call(pointer(builder, function, kind), [job, item])


@of_integers(types.void)
def _multiply(
    builder: Any, function: Any, rows: Any, x: Any, stride: Any, panel: Any, units: Any, sums: Any
) -> None:
    kind = ir.FunctionType(VOID, [I64] * 6)
    builder.call(pointer(builder, function, kind), [rows, x, stride, panel, units, sums])


@compiled()
def _tensor(address: int, shape: Any) -> Any:
    """The one at an address, its numbers as ``compiled.as_numpy`` has them."""
    return _memory(_at(address), shape, np.uint16)


@compiled()
def _panel_sums(job: Any, weight: Any, panel: int, first: int, rows: int, width: int) -> Any:
    """Rows of ``x`` times one panel, plus the bias: [rows, 64], of which ``width`` count."""
    sums = np.zeros((rows, WIDTH), dtype=np.float32)
    stride = weight.units * weight.input_bytes
    x = job.x + first * stride
    begin = weight.panels + panel * weight.units * weight.unit_bytes
    groups = (rows + MOST_ROWS - 1) // MOST_ROWS
    for unit in range(0, weight.units, weight.units_at_once):
        units = min(weight.units_at_once, weight.units - unit)
        for group in range(groups):
            a, b = rows * group // groups, rows * (group + 1) // groups
            _multiply(
                weight.multiply, b - a, x + a * stride + unit * weight.input_bytes, stride,
                begin + unit * weight.unit_bytes, units, sums.ctypes.data + a * 4 * WIDTH,
            )  # fmt: skip
    if weight.bias:
        bias = _tensor(weight.bias + 2 * panel * WIDTH, (width,))
        for row in range(rows):
            for i in range(width):
                sums[row, i] += widen(bias[i])
    return sums


@compiled(reassociate=True)
def _silu(x: Any) -> Any:
    power = exp2(-abs(x) * LOG2_E)
    share = _f32(1.0) / (_f32(1.0) + power)
    return x * (share if x >= _f32(0.0) else power * share)


@compiled()
def _weight(address: int) -> Any:
    return _memory(_at(address), (1,), WEIGHT)[0]


@compiled()
def _product(job: Any, item: int) -> None:
    """``out = x weight + bias + residual`` for one item; ``residual`` may be ``out``.

    For SwiGLU, ``out = silu(x gate) * (x up)``: the weight has a panel of the gate's before each
    one of the up projection's.
    """
    weight = _weight(job.weight)
    panel, block = item // job.blocks, item % job.blocks
    first = job.rows * block // job.blocks
    rows = job.rows * (block + 1) // job.blocks - first
    begin = panel * WIDTH
    width = min(WIDTH, weight.outputs - begin)
    if job.kind == _SWIGLU:
        sums = _panel_sums(job, weight, 2 * panel, first, rows, width)
        ups = _panel_sums(job, weight, 2 * panel + 1, first, rows, width)
        for row in range(rows):
            for i in range(width):
                sums[row, i] = _silu(sums[row, i]) * ups[row, i]
    else:
        sums = _panel_sums(job, weight, panel, first, rows, width)
    for row in range(rows):
        offset = 2 * ((first + row) * job.pitch + begin)
        own = sums[row]
        if job.residual:
            more = _tensor(job.residual + offset, (width,))
            for i in range(width):
                # The sum is rounded before it is added, as a linear layer rounds what it gives.
                own[i] = widen(narrow(own[i], more[i])) + widen(more[i])
        out = _tensor(job.out + offset, (width,))
        for i in range(width):
            out[i] = narrow(own[i], out[i])


@compiled()
def _round(job: Any, row: int) -> None:
    weight = _weight(job.weight)
    stride = weight.units * weight.input_bytes
    round_row(job.x + 2 * weight.inputs * row, job.rounded + stride * row, weight.units)


@compiled(reassociate=True)
def _rms_norm(row: Any, weight: Any, eps: float, out: Any) -> None:
    """RMSNorm of one row; ``out`` may be ``row``."""
    total = _f32(0.0)
    for i in range(len(row)):
        value = widen(row[i])
        total += value * value
    factor = _f32(1.0) / np.sqrt(total / _f32(len(row)) + _f32(eps))
    for i in range(len(row)):
        value = widen(narrow(widen(row[i]) * factor, row[i]))
        out[i] = narrow(value * widen(weight[i]), out[i])


@compiled()
def _norm(step: Any, layer: Any, mlp: bool, token: int) -> None:
    size = layer.hidden
    weight = layer.mlp_norm if mlp else layer.norm
    _rms_norm(
        _tensor(step.hidden + 2 * size * token, (size,)),
        _tensor(weight, (size,)),
        layer.mlp_eps if mlp else layer.eps,
        _tensor(step.normed + 2 * size * token, (size,)),
    )


@compiled(reassociate=True)
def _rope(step: Any, layer: Any, number: int, token: int) -> None:
    """Rotate a token's queries and keys where they lie (RoPE), and cache its keys and values."""
    queries, keys, dim = layer.heads, layer.kv_heads, layer.dim
    total = queries + 2 * keys
    heads = _tensor(step.heads + 2 * total * dim * token, (total, dim))
    cos = _tensor(step.cos + 2 * step.rotary_dim * token, (step.rotary_dim,))
    sin = _tensor(step.sin + 2 * step.rotary_dim * token, (step.rotary_dim,))
    half = step.rotary_dim // 2
    for head in range(queries + keys):
        own = heads[head]
        norm = layer.q_norm if head < queries else layer.k_norm
        if norm:
            _rms_norm(own, _tensor(norm, (dim,)), layer.head_eps, own)
        for i in range(half):
            a, b = widen(own[i]), widen(own[i + half])
            own[i] = narrow(a * widen(cos[i]) - b * widen(sin[i]), own[i])
            own[i + half] = narrow(b * widen(cos[i + half]) + a * widen(sin[i + half]), own[i])
    slot = _memory(_at(step.slots), (step.tokens,), np.int64)[token]
    pools = _memory(_at(step.pools + 16 * number), (2,), np.int64)
    key_pool = _tensor(pools[0] + 2 * slot * keys * dim, (keys, dim))
    value_pool = _tensor(pools[1] + 2 * slot * keys * dim, (keys, dim))
    key_pool[:] = heads[queries : queries + keys]
    value_pool[:] = heads[queries + keys :]


@compiled()
def _attend(step: Any, layer: Any, number: int, chunks: int, item: int) -> None:
    """One short span and some of its key heads."""
    chunk, place = item % chunks, item // chunks
    queries, keys, dim = layer.heads, layer.kv_heads, layer.dim
    shape = (step.tokens, queries + 2 * keys, dim)
    asked = _tensor(step.heads, shape)[:, :queries]
    pools = _memory(_at(step.pools + 16 * number), (2,), np.int64)
    pool = (step.pool_slots, keys, dim)
    spans = _memory(_at(step.spans), (step.span_count, 4), np.int64)
    row, length, start, begin = spans[place]
    count = (start + length + step.block_size - 1) // step.block_size
    head = keys * chunk // chunks
    attend_item(
        asked,
        _tensor(pools[0], pool),
        _tensor(pools[1], pool),
        _memory(_at(step.blocks + 8 * begin), (count,), np.int64),
        step.block_size, row, length, start, head, keys * (chunk + 1) // chunks - head,
        layer.scale, layer.window, 0.0, _NO_SINKS,
        _tensor(step.attended, (step.tokens, queries, dim)),
    )  # fmt: skip


def _do_item(job_at: int, item: int) -> None:
    """One item of the job at an address."""
    job = _memory(_at(job_at), (1,), JOB)[0]
    step = _memory(_at(job.step), (1,), STEP)[0]
    layer = _memory(_at(job.layers), (job.layer + 1,), LAYER)[job.layer]
    if job.kind <= _SWIGLU:
        _product(job, item)
    elif job.kind == _ROUND:
        _round(job, item)
    elif job.kind == _NORM:
        _norm(step, layer, False, item)
    elif job.kind == _MLP_NORM:
        _norm(step, layer, True, item)
    elif job.kind == _ROPE:
        _rope(step, layer, job.layer, item)
    else:
        _attend(step, layer, job.layer, job.blocks, item)


def entry() -> int:
    """The address of the function that does an item; goes into ``run`` of a job."""
    return address_of(_do_item, "void(int64, int64)")


@compiled()
def help_out(board: team.Board, jobs: Records) -> None:
    """What a helper does until the team is closed."""
    while True:
        left = team.next_item(board)
        if left == 0:
            return
        _run(jobs[0].run, jobs.ctypes.data, jobs[0].items - left)
        team.done(board)


@compiled()
def _share(board: team.Board, jobs: Records, items: int, alone: bool) -> None:
    """Do the job that lies in ``jobs``, with the helpers unless it is too little to share."""
    if alone or items < 2:
        for item in range(items):
            _run(jobs[0].run, jobs.ctypes.data, item)
        return
    jobs[0].items = items
    team.publish(board, items)
    while True:
        left = team.claim(board)
        if left == 0:
            break
        _run(jobs[0].run, jobs.ctypes.data, items - left)
        team.done(board)
    team.wait_for(board, items)


@compiled()
def _by_token(board: team.Board, jobs: Records, kind: int, tokens: int) -> None:
    jobs[0].kind = kind
    _share(board, jobs, tokens, tokens <= _FEW_TOKENS)


@compiled()
def product(
    board: team.Board, jobs: Records, kind: int,
    rows: int, x: int, weights: int, parts: int, residual: int, out: int, pitch: int,
) -> None:  # fmt: skip
    """[rows, inputs] at ``x`` times weights side by side -> [rows, pitch] at ``out``.

    ``weights`` is the address of as many records as there are ``parts``, all of which take rounded
    rows or none; see ``_product``.
    """
    job = jobs[0]
    job.rows, job.x, job.weight = rows, x, weights
    if _weight(weights).rounds:
        _by_token(board, jobs, _ROUND, rows)
        job.x = job.rounded
    job.kind, job.blocks = kind, (rows + _ROWS - 1) // _ROWS
    job.residual, job.out, job.pitch = residual, out, pitch
    for part in range(parts):
        job.weight = weights + part * _WEIGHT_BYTES
        outputs = _weight(job.weight).outputs
        _share(board, jobs, (outputs + WIDTH - 1) // WIDTH * job.blocks, False)
        job.out += 2 * outputs


@compiled()
def first_half(board: team.Board, jobs: Records, number: int) -> None:
    """A layer up to its attention, which it does for the short spans."""
    job = jobs[0]
    job.layer = number
    step = _memory(_at(job.step), (1,), STEP)[0]
    layer = _memory(_at(job.layers), (number + 1,), LAYER)[number]
    _by_token(board, jobs, _NORM, step.tokens)
    width = (layer.heads + 2 * layer.kv_heads) * layer.dim
    product(
        board, jobs, PRODUCT, step.tokens, step.normed,
        layer.qkv, layer.qkv_parts, 0, step.heads, width,
    )  # fmt: skip
    _by_token(board, jobs, _ROPE, step.tokens)
    if step.span_count:
        job.kind, job.blocks = _ATTEND, layer.kv_heads if step.span_count < 4 else 1
        _share(board, jobs, step.span_count * job.blocks, False)


@compiled()
def second_half(board: team.Board, jobs: Records, number: int) -> None:
    """What follows the attention of the layer that ``first_half`` began."""
    step = _memory(_at(jobs[0].step), (1,), STEP)[0]
    layer = _memory(_at(jobs[0].layers), (number + 1,), LAYER)[number]
    product(
        board, jobs, PRODUCT, step.tokens, step.attended,
        layer.out, 1, step.hidden, step.hidden, layer.hidden,
    )  # fmt: skip
    _by_token(board, jobs, _MLP_NORM, step.tokens)
    product(
        board, jobs, _SWIGLU, step.tokens, step.normed,
        layer.gate_up, 1, 0, step.intermediate, layer.intermediate,
    )  # fmt: skip
    product(
        board, jobs, PRODUCT, step.tokens, step.intermediate,
        layer.down, 1, step.hidden, step.hidden, layer.hidden,
    )  # fmt: skip
