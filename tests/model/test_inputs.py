"""Plans laid out flat, on input that can be checked by eye."""

from __future__ import annotations

import pytest

from app.core.request import SamplingParams
from app.core.step import LogitsRow, Span, StepPlan
from app.model.inputs import lay_out

GREEDY = SamplingParams(temperature=0.0)


def test_spans_lie_one_after_the_other() -> None:
    plan = StepPlan(
        spans=[
            Span(tokens=[10, 11, 12], start=3, block_tables=[(7, 2)]),
            Span(tokens=(20,), start=8, block_tables=[[1, 0, 5, 9]]),
        ],
        rows=[LogitsRow(1, 0), LogitsRow(0, 1), LogitsRow(0, 1)],
    )
    step = lay_out(plan, block_size=4)
    assert step.token_ids.tolist() == [10, 11, 12, 20]
    assert step.positions.tolist() == [3, 4, 5, 8]
    assert step.slots[0].tolist() == [7 * 4 + 3, 2 * 4 + 0, 2 * 4 + 1, 5 * 4 + 0]
    assert step.logits_rows.tolist() == [3, 1, 1]
    first, second = step.spans
    assert (first.row, first.length, first.start, first.end) == (0, 3, 3, 6)
    assert (second.row, second.length, second.start, second.end) == (3, 1, 8, 9)
    assert first.blocks[0].tolist() == [7, 2]
    assert second.blocks[0].tolist() == [1, 0, 5]


def test_a_plan_may_sample_nothing() -> None:
    step = lay_out(StepPlan([Span([1], 0, [[0]])], []), block_size=16)
    assert step.logits_rows.tolist() == []


def test_a_block_table_must_cover_its_span() -> None:
    with pytest.raises(AssertionError):
        lay_out(StepPlan([Span([1, 2], 3, [[0]])], []), block_size=4)
