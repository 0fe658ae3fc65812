"""Jobs of a team's threads for a decoder layer of the Llama kind; activations are bfloat16.

T tokens of a step, H hidden, Hq and Hk heads of D, I intermediate::

    hidden [T, H] -RMSNorm-> normed [T, H] -product-> heads [T, Hq + 2 Hk, D] -RoPE-> keys and
    values into the cache -attend-> attended [T, Hq, D] -product, + hidden-> hidden
    -RMSNorm-> normed -SwiGLU-> intermediate [T, I] -product, + hidden-> hidden

Between the first two products there may be a function of another kind (``delta_layer``). Attention
with gates has them as Hq more heads, and multiplies what is attended by their sigmoid.

A job is a record (``records.JOB``) that says what its items are: of a product a panel of 64 outputs
for some of the rows (``products``), of attention a short span and some of its heads, else tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from app.model.cpu.kernels import team
from app.model.cpu.kernels.by_row import rms_norm, sigmoid
from app.model.cpu.kernels.compiled import ONE, ZERO, address_of, compiled, narrow, widen
from app.model.cpu.kernels.llvm import copy
from app.model.cpu.kernels.panels import WIDTH
from app.model.cpu.kernels.products import ROWS, multiply_item, round_item, weight_at
from app.model.cpu.kernels.records import (
    ATTENTION,
    JOB,
    LAYER,
    STEP,
    WEIGHT_BYTES,
    Records,
    at,
    memory,
    run_item,
    tensor,
)

_i64: Any = np.int64  # see ``compiled.ZERO``
PRODUCT, _SWIGLU, ROUND, _NORM, _MLP_NORM, _ROPE, _ATTEND, _GATE = map(_i64, range(8))
_FEW_TOKENS = 8
"""Maximum tokens for which norms, RoPE and rounding run on one thread."""
_TOKENS = 4
"""Tokens of an item of these."""
_FEW_PANELS, _MANY_ROWS = 32, 12
"""Panels below which, and rows from which on, an item of a product has half of the rows: of an odd
number of panels a thread would wait for one with all of them."""
_FEW_SPANS = 4
"""Number of spans below which the heads of a span are shared by threads, too."""
_EVEN_TOKENS = 8
"""Tokens a span above which heads are shared, too: a long prompt would keep threads waiting."""


@compiled()
def _norm(step: Any, layer: Any, mlp: bool, token: int) -> None:
    size = layer.hidden
    weight = layer.mlp_norm if mlp else layer.norm
    rms_norm(
        tensor(step.hidden + 2 * size * token, (size,)),
        tensor(weight, (size,)),
        layer.shifted,
        layer.mlp_eps if mlp else layer.eps,
        tensor(step.normed + 2 * size * token, (size,)),
    )


@compiled(reassociate=True)
def _rope(step: Any, layer: Any, number: int, token: int) -> None:
    """Rotate a token's queries and keys where they lie (RoPE), and cache its keys and values."""
    queries, keys, dim = layer.heads, layer.kv_heads, layer.dim
    heads = tensor(step.heads + 2 * layer.width * token, (layer.width // dim, dim))
    cos = tensor(step.cos + 2 * step.rotary_dim * token, (step.rotary_dim,))
    sin = tensor(step.sin + 2 * step.rotary_dim * token, (step.rotary_dim,))
    half = step.rotary_dim // 2
    for head in range(queries + keys):
        own = heads[head]
        norm = layer.q_norm if head < queries else layer.k_norm
        if norm:
            rms_norm(own, tensor(norm, (dim,)), layer.shifted, layer.head_eps, own)
        for i in range(half):
            a, b = widen(own[i]), widen(own[i + half])
            own[i] = narrow(a * widen(cos[i]) - b * widen(sin[i]), own[i])
            own[i + half] = narrow(b * widen(cos[i + half]) + a * widen(sin[i + half]), own[i])
    slot = memory(at(step.slots), (step.tokens,), np.int64)[token]
    pools = memory(at(step.pools + 16 * number), (2,), np.int64)
    size = 2 * keys * dim
    begin = step.heads + 2 * (layer.width * token + queries * dim)
    copy(begin, pools[0] + slot * size, size)
    copy(begin + size, pools[1] + slot * size, size)


@compiled()
def _describe_attention(step: Any, layer: Any, number: int, chunks: int) -> None:
    call = memory(at(step.attention), (1,), ATTENTION)[0]
    pools = memory(at(step.pools + 16 * number), (2,), np.int64)
    call.query, call.query_pitch = step.heads, 2 * layer.width
    call.heads, call.kv_heads, call.dim = layer.heads, layer.kv_heads, layer.dim
    call.keys, call.values, call.value_dim = pools[0], pools[1], layer.dim
    call.slot_bytes = call.value_slot_bytes = 2 * layer.kv_heads * layer.dim
    call.spans, call.span_count, call.out = step.spans, step.span_count, step.attended
    call.blocks, call.block_size = step.blocks, step.block_size
    call.later, call.later_count = step.later, step.later_count
    call.chunks, call.window, call.scale = chunks, layer.window, layer.scale


@compiled(reassociate=True)
def _gate(step: Any, layer: Any, token: int) -> None:
    """Multiply what a token has attended to by the sigmoid of its gates."""
    size = layer.mixed
    gates = tensor(step.heads + 2 * (layer.width * (token + 1) - size), (size,))
    own = tensor(step.attended + 2 * size * token, (size,))
    for i in range(size):
        gate = narrow(sigmoid(widen(gates[i])), own[i])
        own[i] = narrow(widen(own[i]) * widen(gate), own[i])


def _do_item(job_at: int, item: int) -> None:
    """One item of the job at an address."""
    job = memory(at(job_at), (1,), JOB)[0]
    step = memory(at(job.step), (1,), STEP)[0]
    layer = memory(at(job.layers), (job.layer + 1,), LAYER)[job.layer]
    if job.kind <= _SWIGLU:
        multiply_item(job, job.kind == _SWIGLU, item)
    elif job.kind == _ATTEND:
        run_item(step.attend, step.attention, item)
    else:
        for token in range(_TOKENS * item, min(_TOKENS * (item + 1), job.rows)):
            if job.kind == _NORM or job.kind == _MLP_NORM:
                _norm(step, layer, job.kind == _MLP_NORM, token)
            elif job.kind == _ROPE:
                _rope(step, layer, job.layer, token)
            elif job.kind == _GATE:
                _gate(step, layer, token)
            if job.weight and weight_at(job.weight).rounds:
                round_item(job, token)


def entry() -> int:
    """The address of the function that does an item; goes into ``run`` of a job."""
    return address_of(_do_item, "void(int64, int64)")


@compiled()
def help_out(board: team.Board, jobs: Records) -> None:
    """The loop of a helper thread, until the team is closed."""
    while True:
        left = team.next_item(board)
        if left == 0:
            return
        run_item(jobs[0].run, jobs.ctypes.data, jobs[0].items - left)
        team.done(board)


@compiled()
def _share(board: team.Board, jobs: Records, items: int, alone: bool) -> None:
    """Do the job in ``jobs``, with the helpers unless it is too small."""
    if alone or items < 2:
        for item in range(items):
            run_item(jobs[0].run, jobs.ctypes.data, item)
        return
    jobs[0].items = items
    team.publish(board, items)
    while True:
        left = team.claim(board)
        if left == 0:
            break
        run_item(jobs[0].run, jobs.ctypes.data, items - left)
        team.done(board)
    team.wait_for(board, items)


@compiled()
def _by_token(
    board: team.Board, jobs: Records, kind: int, tokens: int, x: int, weight: int
) -> None:
    """Do a job for each token, and round its row at ``x`` if the ``weight`` (0: none) needs it."""
    job = jobs[0]
    job.kind, job.rows, job.x, job.weight = kind, tokens, x, weight
    _share(board, jobs, (tokens + _TOKENS - 1) // _TOKENS, tokens <= _FEW_TOKENS)


@compiled()
def product(
    board: team.Board, jobs: Records, kind: int, first: int,
    rows: int, x: int, weights: int, parts: int, residual: int, out: int, pitch: int,
) -> None:  # fmt: skip
    """[rows, inputs] at ``x`` times weights side by side -> [rows, pitch] at ``out``.

    ``first`` is a job by token that writes the rows at ``x``, or ``ROUND``: they are there.
    ``weights`` is the address of as many records as there are ``parts``; see
    ``products.multiply_item``. Rows are rounded once for consecutive parts that round alike.
    """
    job = jobs[0]
    job.out, job.pitch = out, pitch
    rounded = 0
    for part in range(parts):
        place = weights + part * WEIGHT_BYTES
        rounds = weight_at(place).rounds
        if first != ROUND or (rounds and rounds != rounded):
            _by_token(board, jobs, first, rows, x, place)
            first, rounded = ROUND, rounds
        job.rows, job.x, job.weight = rows, job.rounded if rounds else x, place
        job.kind, job.blocks, job.residual = kind, (rows + ROWS - 1) // ROWS, residual
        panels = (weight_at(place).outputs + WIDTH - 1) // WIDTH
        if panels < _FEW_PANELS and rows >= _MANY_ROWS:
            job.blocks *= 2
        _share(board, jobs, panels * job.blocks, False)
        job.out += 2 * weight_at(place).outputs


@compiled()
def first_half(board: team.Board, jobs: Records, number: int) -> None:
    """A layer up to its mixer's output; attention only for short spans, and without gates."""
    job = jobs[0]
    job.layer = number
    step = memory(at(job.step), (1,), STEP)[0]
    layer = memory(at(job.layers), (number + 1,), LAYER)[number]
    product(
        board, jobs, PRODUCT, _NORM, step.tokens, step.normed,
        layer.inputs, layer.input_parts, ZERO, step.heads, layer.width,
    )  # fmt: skip
    spans = step.state_spans if layer.mixer else step.span_count
    if layer.mixer == 0:
        _by_token(board, jobs, _ROPE, step.tokens, ZERO, ZERO)
    if spans:
        uneven = step.tokens > _EVEN_TOKENS * spans
        job.kind, job.blocks = _ATTEND, layer.kv_heads if spans < _FEW_SPANS or uneven else 1
        own = job.run
        if layer.mixer:
            job.run = layer.mixer
        else:
            _describe_attention(step, layer, number, job.blocks)
        _share(board, jobs, spans * job.blocks, False)
        job.run = own


@compiled()
def second_half(board: team.Board, jobs: Records, number: int) -> None:
    """The rest of a layer; if torch computes its MLP, only up to the norm before it."""
    step = memory(at(jobs[0].step), (1,), STEP)[0]
    layer = memory(at(jobs[0].layers), (number + 1,), LAYER)[number]
    product(
        board, jobs, PRODUCT, _GATE if layer.gated else ROUND, step.tokens, step.attended,
        layer.out, ONE, step.hidden, step.hidden, layer.hidden,
    )  # fmt: skip
    if layer.gate_up == 0:
        _by_token(board, jobs, _MLP_NORM, step.tokens, ZERO, ZERO)
        return
    product(
        board, jobs, _SWIGLU, _MLP_NORM, step.tokens, step.normed,
        layer.gate_up, ONE, ZERO, step.intermediate, layer.intermediate,
    )  # fmt: skip
    product(
        board, jobs, PRODUCT, ROUND, step.tokens, step.intermediate,
        layer.down, ONE, step.hidden, step.hidden, layer.hidden,
    )  # fmt: skip


@compiled()
def layers(board: team.Board, jobs: Records, first: int, end: int) -> None:
    """Some layers of a step without long spans, whose cache is one group."""
    for number in range(first, end):
        first_half(board, jobs, number)
        second_half(board, jobs, number)


@compiled()
def norm_rows(hidden: Any, rows: Any, weight: Any, shifted: int, eps: float, out: Any) -> None:
    """RMSNorm of some ``rows`` of ``hidden`` [T, H], into ``out`` [R, H]."""
    for i in range(len(rows)):
        rms_norm(hidden[rows[i]], weight, shifted, eps, out[i])
