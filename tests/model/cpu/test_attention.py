"""The CPU attention against a naive one that computes one query at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from app.core.step import Span
from app.model.cpu.attention import CpuAttention
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import KvStorage, LayerShape, allocate
from app.model.layers.attention import AttentionOptions

BLOCK_SIZE, BLOCKS = 4, 80
SINKS = torch.tensor([1.0, -1.0, 0.5, 2.0])
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])

OPTIONS = {
    "plain": AttentionOptions(0.3, None, None, None),
    "window": AttentionOptions(0.3, 6, None, None),
    "softcap": AttentionOptions(0.3, None, 2.0, None),
    "sinks": AttentionOptions(0.3, None, None, SINKS),
    "everything": AttentionOptions(0.3, 6, 2.0, SINKS),
    "chunked": AttentionOptions(0.3, 6, None, None, chunked=True),
    "slopes": AttentionOptions(0.3, None, None, None, slopes=SLOPES),
    "slopes in a window": AttentionOptions(0.3, 6, None, SINKS, slopes=SLOPES),
}

NEAR = torch.randn(60, 4, 9, generator=torch.Generator().manual_seed(2))
OPTIONS |= {
    "near": AttentionOptions(0.3, None, None, None, near=NEAR),
    "near in a window, with sinks": AttentionOptions(0.3, 6, None, SINKS, near=NEAR),
}

BATCH = [(1, 0), (1, 30), (1, 7), (1, 8), (5, 3), (5, 12), (2, 0), (20, 9), (20, 0), (1, 31)]
"""Length and start of each span: decodes, short spans, and two long ones."""

TOLERANCES = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def naive(
    query: torch.Tensor, storage: KvStorage, step: StepArrays, options: AttentionOptions
) -> torch.Tensor:
    out = torch.empty(query.shape[1], query.shape[0], storage.values[0].shape[2])
    group = query.shape[0] // storage.keys[0].shape[1]
    for span in step.spans:
        for offset in range(span.length):
            position = int(step.positions[span.row + offset])
            first = 0 if options.window is None else max(0, position - options.window + 1)
            if options.chunked:
                assert options.window is not None
                first = position // options.window * options.window
            later = step.ends(windowed=storage.groups[0].window is not None)
            end = 0 if later is None else int(later[span.row + offset])
            seen = range(first, max(position + 1, end))
            ancestors = step.ancestors_of(span)
            places = [*range(span.end)]
            if ancestors is not None:
                own = [i for i in range(span.length) if int(ancestors[offset]) >> i & 1]
                places = [*range(span.start), *(span.start + i for i in own)]
            slots = [
                int(span.blocks[0][p // BLOCK_SIZE]) * BLOCK_SIZE + p % BLOCK_SIZE
                for p in (places[each] for each in seen)
            ]
            for head in range(query.shape[0]):
                keys = storage.keys[0][slots, head // group].double()
                scores = keys @ query[head, span.row + offset].double() * options.scale
                if options.softcap is not None:
                    scores = torch.tanh(scores / options.softcap) * options.softcap
                if options.slopes is not None:
                    scores -= options.slopes[head] * torch.tensor([position - p for p in seen])
                if options.near is not None:
                    for place, p in enumerate(seen):
                        if position - p < options.near.shape[2]:
                            scores[place] += options.near[span.row + offset, head, position - p]
                if options.sinks is not None:
                    scores = torch.cat([scores, options.sinks[head : head + 1].double()])
                weights = scores.softmax(0)[: len(slots)]
                values = storage.values[0][slots, head // group].double()
                out[span.row + offset, head] = (weights @ values).float()
    return out


def scattered(batch: Sequence[tuple[int, int]], dice: random.Random) -> list[Span]:
    """Spans of these lengths and starts, in blocks that ``dice`` picks."""
    pool = list(range(BLOCKS))
    dice.shuffle(pool)
    return [
        Span([0] * length, start, [[pool.pop() for _ in range(-(-(start + length) // BLOCK_SIZE))]])
        for length, start in batch
    ]


def assert_naive_attention(
    spans: Sequence[Span], shape: LayerShape, options: AttentionOptions
) -> None:
    """Assert that random queries of ``spans`` get naive attention over random keys and values."""
    step = lay_out(spans, BLOCK_SIZE)
    cpu = torch.device("cpu")
    storage = allocate({0: shape}, num_blocks=BLOCKS, block_size=BLOCK_SIZE, device=cpu)
    storage.keys[0][:-BLOCK_SIZE].normal_()
    storage.values[0][:-BLOCK_SIZE].normal_()
    query, key, value = (
        torch.randn(heads, len(step.token_ids), dim, dtype=shape.dtype)
        for heads, dim in (
            (shape.kv_heads * shape.group, shape.key_dim),
            (shape.kv_heads, shape.key_dim),
            (shape.kv_heads, shape.value_dim),
        )
    )
    attention = CpuAttention(storage)
    attention.begin(step)
    found = attention.attend(0, query, key, value, options)
    tolerance = TOLERANCES[shape.dtype]
    expected = naive(query, storage, step, options)
    torch.testing.assert_close(found.float(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("spread_work", [0, 1 << 60], ids=["spread", "alone"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_short_and_long_spans_get_plain_attention(
    name: str,
    spread_work: int,
    kv_heads: int,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.model.cpu.attention._SPREAD_WORK", spread_work)
    torch.manual_seed(0)
    shape = LayerShape(kv_heads, 8, 6, 4 // kv_heads, dtype)
    assert_naive_attention(scattered(BATCH, random.Random(0)), shape, OPTIONS[name])


WIDTHS = [(8, 6), (64, 64), (96, 32)]
"""Widths of a key and of a value: some do not fill vectors, others are read without a copy."""


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_token_has_the_same_bits_in_any_span_and_any_company(
    name: str, widths: tuple[int, int], kv_heads: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    dice = random.Random(0)
    dim, out_dim = widths
    tokens, size = 150, 16
    shape = LayerShape(kv_heads, dim, out_dim, 4 // kv_heads, dtype)
    options, near = OPTIONS[name], torch.randn(tokens, 4, 3)
    parts = [torch.randn(4, tokens, dim, dtype=dtype)]
    parts += [torch.randn(kv_heads, tokens, width, dtype=dtype) for width in widths]
    found = []
    for longest in (tokens, 1, 3, 20, 70):
        storage = allocate({0: shape}, num_blocks=40, block_size=size, device=torch.device("cpu"))
        for pool in (storage.keys[0], storage.values[0]):
            pool.fill_(torch.nan)  # unwritten slots must not be read
        attention = CpuAttention(storage)
        table, other = list(range(0, 20, 2)), list(range(1, 20, 2))
        out = torch.empty(tokens, 4, out_dim, dtype=dtype)
        start = 0
        while start < tokens:
            length = min(dice.randint(1, longest) if longest < tokens else tokens, tokens - start)
            spans = [Span([0] * length, start, [table])]
            own = slice(0, length)
            if dice.random() < 0.5:  # a second sequence with the same text, before this one
                spans, own = [Span([0] * length, start, [other]), *spans], slice(length, 2 * length)
            attention.begin(lay_out(spans, size))
            rows = [*range(start, start + length)] * len(spans)
            if start and len(spans) > 1:
                for pool in (storage.keys[0], storage.values[0]):
                    by_block = pool.view(-1, size, *pool.shape[1:])
                    by_block[other] = by_block[table]
            query, key, value = (part[:, rows].contiguous() for part in parts)
            if options.near is not None:
                options = replace(options, near=near[rows])
            out[start : start + length] = attention.attend(0, query, key, value, options)[own]
            start += length
        found.append(out)
    assert not found[0].isnan().any()
    for out in found[1:]:
        assert torch.equal(out, found[0])
