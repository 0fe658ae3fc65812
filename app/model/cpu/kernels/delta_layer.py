"""The part of a gated delta rule's layer between its products, for one span and some heads.

Hk heads of keys and queries of K numbers, H of values of V; a token's row, as products leave it::

    [query Hk K | key Hk K | value H V | z H V | b H | a H]
    query, key, value -convolution, SiLU-> -delta rule, rate sigmoid(b), decay
    rates * softplus(a + steps)-> [H, V] -RMSNorm of each head, * SiLU(z)-> attended

Values are rounded to bfloat16 where transformers' layers round them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from app.model.cpu.kernels.by_row import gated_rms_norm, sigmoid
from app.model.cpu.kernels.compiled import address_of, compiled, narrow, widen
from app.model.cpu.kernels.records import JOB, LAYER, STEP, at, memory, tensor
from app.model.cpu.kernels.scans import convolve_item, delta_item

_f32: Any = np.float32
_i64: Any = np.int64
_LINEAR = _f32(20.0)
"""Threshold above which softplus returns its argument, as in torch."""


@compiled()
def _softplus(x: Any) -> Any:
    return x if x > _LINEAR else np.log1p(np.exp(x))


@compiled()
def _floats(address: int, shape: Any) -> Any:
    return memory(at(address), shape, _f32)


@compiled()
def _ints(address: int, count: int) -> Any:
    return memory(at(address), (count,), _i64)


def _do_item(job_at: int, item: int) -> None:
    """One item of the job at an address: a span, and some of its ``kv_heads``."""
    job = memory(at(job_at), (1,), JOB)[0]
    step = memory(at(job.step), (1,), STEP)[0]
    layer = memory(at(job.layers), (job.layer + 1,), LAYER)[job.layer]
    chunk, span = item % job.blocks, item // job.blocks
    tokens, slots = step.tokens, step.state_slots
    keys, heads, size, width = layer.kv_heads, layer.heads, layer.dim, layer.value_dim
    group = heads // keys
    first_key, end_key = keys * chunk // job.blocks, keys * (chunk + 1) // job.blocks
    head, end_head = first_key * group, end_key * group

    rows = _ints(step.rows, step.state_spans + 1)
    starts = _ints(step.save_starts, step.state_spans + 1)
    saves = starts[step.state_spans]
    save_rows, save_slots = _ints(step.save_rows, saves), _ints(step.save_slots, saves)
    row, end, save, last = rows[span], rows[span + 1], starts[span], starts[span + 1]
    read = _ints(step.reads, step.state_spans)[span]

    channels = 2 * keys * size + heads * width
    x = tensor(step.heads, (tokens, layer.width))
    filters = _floats(layer.filters, (layer.taps, channels))
    offsets = _floats(layer.offsets, (channels,))
    pools = memory(at(step.state_pools + 16 * job.layer), (2,), _i64)
    before = tensor(pools[0], (slots, layer.taps - 1, channels))
    places = (step.convolved, tokens * keys * size)
    for part in range(3):
        value = part == 2
        begin, stop = first_key * size, end_key * size
        count = keys * size
        if value:
            begin, stop, count = head * width, end_head * width, heads * width
        shift = part * keys * size
        convolve_item(
            x, filters, offsets, True, before, row, end, read, save_rows, save_slots, save, last,
            shift + begin, shift + stop,
            tensor(places[0] + 2 * part * places[1], (tokens, count)), begin,
        )  # fmt: skip

    decay = _floats(step.gates, (tokens, heads, 1))
    rate = _floats(step.gates + 4 * tokens * heads, (tokens, heads))
    rates, steps = _floats(layer.rates, (heads,)), _floats(layer.steps, (heads,))
    b = channels + heads * width
    for t in range(row, end):
        for h in range(head, end_head):
            own = x[t, b + h]
            rate[t, h] = widen(narrow(sigmoid(widen(own)), own))
            decay[t, h, 0] = rates[h] * _softplus(widen(x[t, b + heads + h]) + steps[h])

    out = tensor(step.attended, (tokens, heads, width))
    delta_item(
        tensor(places[0], (tokens, keys, size)),
        tensor(places[0] + 2 * places[1], (tokens, keys, size)),
        tensor(places[0] + 4 * places[1], (tokens, heads, width)),
        decay, rate, True, _floats(pools[1], (slots, heads, width, size)),
        row, end, read, save_rows, save_slots, save, last, head, end_head, out,
    )  # fmt: skip
    weight = tensor(layer.head_norm, (width,))
    for t in range(row, end):
        for h in range(head, end_head):
            place = channels + h * width
            gated_rms_norm(out[t, h], weight, x[t, place : place + width], layer.head_eps)


def entry() -> int:
    """The address of the function that does an item; goes into ``mixer`` of a layer's record."""
    return address_of(_do_item, "void(int64, int64)")
