"""Choosing a bucket and padding a step to it: all of it that needs no GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from app.core.step import LogitsRow, Span, StepPlan
from app.model.attention import AttentionOptions, AttentionRoute, probe_layers
from app.model.cpu.attention import CpuAttention
from app.model.cuda.attention import attend_paged, upload
from app.model.cuda.graphs import Bucket, GraphInputs, choose_bucket, make_buckets, pad
from app.model.forward import RaggedForward
from app.model.inputs import StepArrays, lay_out
from app.model.kv_storage import allocate
from tests.model.tiny import eager_model, save_config

CPU = torch.device("cpu")
BLOCK_SIZE = 4
SPARE_SLOT = 1000


def step_of(*lengths: int) -> StepArrays:
    """Spans of these lengths, each at position 5 and with every row sampled."""
    spans = [
        Span(range(10 * i, 10 * i + length), start=5, block_tables=[range(4 * i, 4 * i + 4)])
        for i, length in enumerate(lengths, start=1)
    ]
    rows = [LogitsRow(i, at) for i, length in enumerate(lengths) for at in range(length)]
    return lay_out(StepPlan(spans, rows), BLOCK_SIZE)


def test_buckets_are_powers_of_two_by_a_few_tokens() -> None:
    buckets = make_buckets(4)
    assert {(b.sequences, b.tokens) for b in buckets} == {
        (s, t) for s in (1, 2, 4) for t in (1, 4, 8)
    }
    assert [b.rows for b in buckets] == sorted(b.rows for b in buckets)


def test_no_bucket_is_larger_than_pays() -> None:
    assert max(b.rows for b in make_buckets(1024)) == 256


@pytest.mark.parametrize(
    ("lengths", "bucket"),
    [
        ([1], Bucket(1, 1)),
        ([1, 1, 1], Bucket(4, 1)),
        ([2, 1], Bucket(2, 4)),
        ([5], Bucket(1, 8)),
        ([9], None),
        ([1] * 5, None),
    ],
)
def test_a_step_goes_to_the_cheapest_bucket_it_fits_in(
    lengths: list[int], bucket: Bucket | None
) -> None:
    assert choose_bucket(make_buckets(4), step_of(*lengths)) == bucket


def test_padding_moves_spans_apart_and_sends_the_rest_to_the_spare_slot() -> None:
    padded = pad(step_of(2, 1), Bucket(4, 4), SPARE_SLOT)
    assert padded.token_ids.tolist() == [10, 11, 0, 0, 20] + [0] * 11
    assert padded.positions.tolist() == [5, 6, 0, 0, 5] + [0] * 11
    slots = [5 * BLOCK_SIZE + 1, 5 * BLOCK_SIZE + 2, *[SPARE_SLOT] * 2, 9 * BLOCK_SIZE + 1]
    assert padded.slots[0].tolist() == slots + [SPARE_SLOT] * 11
    assert padded.logits_rows.tolist() == [0, 1, 4]
    assert [(span.row, span.length, span.start) for span in padded.spans] == [(0, 2, 5), (4, 1, 5)]


def test_a_padded_step_gives_the_logits_of_the_step(tmp_path: Path) -> None:
    model = eager_model(save_config(tmp_path, "llama"))
    route = AttentionRoute()
    shapes = probe_layers(model, route)
    storage = allocate(shapes, num_blocks=30, block_size=BLOCK_SIZE, device=CPU)
    forward = RaggedForward(model, route, CpuAttention(storage))
    prompts = [Span(range(20, 25), 0, [[4, 5]]), Span(range(30, 35), 0, [[8, 9]])]
    forward.run(lay_out(StepPlan(prompts, []), BLOCK_SIZE))
    step = step_of(3, 1)
    expected = forward.run(step)
    padded = pad(step, Bucket(4, 4), storage.groups[0].spare_block * BLOCK_SIZE)
    torch.testing.assert_close(forward.run(padded), expected, atol=1e-4, rtol=1e-4)


def test_a_graphs_buffer_tells_the_kernel_the_same_as_a_fresh_step() -> None:
    torch.manual_seed(0)
    bucket = Bucket(4, 4)
    inputs = GraphInputs(bucket, blocks_per_sequence=4, device=CPU)
    inputs.load(pad(step_of(4, 4, 4, 4), bucket, SPARE_SLOT))
    padded = pad(step_of(2, 1), bucket, SPARE_SLOT)
    inputs.load(padded)
    np.testing.assert_array_equal(inputs.token_ids[0].numpy(), padded.token_ids)
    np.testing.assert_array_equal(inputs.positions[0].numpy(), padded.positions)
    assert inputs.logits_rows[:3].tolist() == [0, 1, 4]

    query = torch.randn(2, bucket.rows, 8)
    keys, values = torch.randn(100, 1, 8), torch.randn(100, 1, 8)
    options = AttentionOptions(0.3, None, None, None)
    found, expected = (
        attend_paged(query, keys, values, step, options, block_size=BLOCK_SIZE, splits=1)
        for step in (inputs.device_step(tile=4), upload(padded, 4, CPU))
    )
    torch.testing.assert_close(found, expected)
    real = [0, 1, 4]
    assert found[real].abs().sum(dim=(1, 2)).min() > 0
    assert found[[row for row in range(16) if row not in real]].abs().max() == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="replaying a graph needs a GPU")
def test_replayed_steps_give_the_logits_of_plain_steps(tmp_path: Path) -> None:
    from app.model.cuda.attention import TritonAttention
    from app.model.cuda.graphs import CudaGraphs

    device = torch.device("cuda")
    model = eager_model(save_config(tmp_path, "llama")).to(device)  # type: ignore[arg-type]
    route = AttentionRoute()
    shapes = probe_layers(model, route)
    storage = allocate(shapes, num_blocks=30, block_size=BLOCK_SIZE, device=device)
    attention = TritonAttention(storage, group=2)
    forward = RaggedForward(model, route, attention)
    graphs = CudaGraphs(forward, attention, storage, max_sequences=4, max_model_len=32)
    graphs.capture()
    assert graphs.count == len(make_buckets(4))
    for lengths in ((1,), (3, 1), (1, 1, 1)):
        step = step_of(*lengths)
        expected = forward.run(step)
        found = graphs.run(step)
        assert found is not None
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
