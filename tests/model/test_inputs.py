"""The layout of plans in flat arrays, on input that can be checked by eye."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from app.core.request import SamplingParams
from app.core.step import Span
from app.model.inputs import lay_out
from app.model.parallel.message import pack, unpack
from tests.model.trees import random_tree, way
from tests.steps import planned

GREEDY = SamplingParams(temperature=0.0)


def test_spans_lie_one_after_the_other() -> None:
    plan = planned(
        spans=[
            Span(tokens=[10, 11, 12], start=3, block_tables=[(7, 2)]),
            Span(tokens=(20,), start=8, block_tables=[[1, 0, 5, 9]]),
        ],
        rows=[(0, 1), (0, 1), (1, 0)],
    )
    step = lay_out(plan, block_size=4)
    assert step.token_ids.tolist() == [10, 11, 12, 20]
    assert step.positions.tolist() == [3, 4, 5, 8]
    assert step.slots[0].tolist() == [7 * 4 + 3, 2 * 4 + 0, 2 * 4 + 1, 5 * 4 + 0]
    assert step.logits_rows.tolist() == [1, 1, 3]
    assert step.drawn_rows.tolist() == [-1] * 4
    first, second = step.spans
    assert (first.row, first.length, first.start, first.end) == (0, 3, 3, 6)
    assert (second.row, second.length, second.start, second.end) == (3, 1, 8, 9)
    assert first.blocks[0].tolist() == [7, 2]
    assert second.blocks[0].tolist() == [1, 0, 5]


def test_a_token_that_is_drawn_by_the_step_before_is_named_by_its_row() -> None:
    plan = planned(
        spans=[
            Span(tokens=[10, 11], start=3, block_tables=[(7, 2)]),
            Span(tokens=(0,), start=8, block_tables=[(1, 0, 5)], drawn_by=6),
        ],
        rows=[(1, 0)],
    )
    step = lay_out(plan, block_size=4)
    assert step.drawn_rows.tolist() == [-1, -1, 6]
    assert step.token_ids.tolist() == [10, 11, 0]


def test_each_cache_group_has_tables_of_its_own_as_lists_or_as_arrays() -> None:
    def table(*blocks: int) -> Any:
        return np.array(blocks, dtype=np.int32)

    spans = [
        Span(tokens=[10, 11], start=3, block_tables=[table(7, 2, 9), [1, 0]]),
        Span(tokens=[20], start=0, block_tables=[table(2**27), (3, 4)]),
    ]
    step = lay_out(spans, block_size=32)
    assert [each.tolist() for each in step.slots] == [
        [7 * 32 + 3, 7 * 32 + 4, 2**27 * 32], [1 * 32 + 3, 1 * 32 + 4, 3 * 32],
    ]  # fmt: skip
    blocks = [[each.tolist() for each in span.blocks] for span in step.spans]
    assert blocks == [[[7], [1]], [[2**27], [3]]]
    found = (*step.slots, *(each for span in step.spans for each in span.blocks))
    assert {each.dtype for each in found} == {np.dtype(np.int64)}


def test_a_plan_may_sample_nothing() -> None:
    step = lay_out([Span([1], 0, [[0]])], block_size=16)
    assert step.logits_rows.tolist() == []


def test_a_block_table_must_cover_its_span() -> None:
    with pytest.raises(AssertionError):
        lay_out([Span([1, 2], 3, [[0]])], block_size=4)


def test_states_are_read_and_saved_where_the_spans_say() -> None:
    spans = [
        Span([1, 2, 3], 4, [[0, 1]], state=5, saves=[(1, 6), (3, 5)]),
        Span([4], 0, [[2]]),
        Span([5, 6], 8, [[3, 4, 5]], state=5, saves=[(2, 7)]),
    ]
    states = lay_out(spans, block_size=4).states
    assert states is not None
    assert states.rows.tolist() == [0, 3, 4, 6]
    assert states.reads.tolist() == [5, 0, 5]
    assert states.save_starts.tolist() == [0, 2, 2, 3]
    assert states.save_rows.tolist() == [1, 3, 6]
    assert states.save_slots.tolist() == [6, 5, 7]


def test_a_step_that_keeps_no_state_has_no_arrays_for_them() -> None:
    step = lay_out([Span([1, 2], 0, [[0]]), Span([3], 0, [[1]])], block_size=4)
    assert step.states is None
    assert step.state_arrays.rows.tolist() == [0, 2, 3]
    assert step.state_arrays.reads.tolist() == [0, 0]
    assert step.state_arrays.save_starts.tolist() == [0, 0, 0]


def test_a_model_without_attention_has_no_block_tables() -> None:
    step = lay_out([Span([1, 2], 7, [], state=1)], block_size=4)
    assert step.slots == ()
    assert step.positions.tolist() == [7, 8]
    assert [span.blocks for span in step.spans] == [()]


def test_a_trees_positions_are_depths_and_its_slots_its_own() -> None:
    spans = [
        Span(tokens=[10, 11], start=3, block_tables=[(7, 2)]),
        Span(
            tokens=[20, 21, 22, 23, 24], start=6, block_tables=[(1, 5, 9)], tree=[-1, 0, 1, 0, -1]
        ),
    ]
    step = lay_out(planned(spans, [(1, 3)]), block_size=4)
    assert step.positions.tolist() == [3, 4, 6, 7, 8, 7, 6]
    assert step.slots[0].tolist() == [7 * 4 + 3, 2 * 4, 5 * 4 + 2, 5 * 4 + 3, 36, 37, 38]
    assert step.logits_rows.tolist() == [5]
    assert step.ancestors is not None
    assert step.ancestors.tolist() == [0, 0, 0b1, 0b11, 0b111, 0b1001, 0b10000]
    assert step.ancestors_of(step.spans[0]) is None


@pytest.mark.parametrize("parents", [[0], [-1, 1], [-1, 2, 0], [-1] * 65, [-2]])
def test_invalid_parents_of_a_tree_fail_an_assertion(parents: list[int]) -> None:
    span = Span([1] * len(parents), 0, [range(20)], tree=parents)
    with pytest.raises(AssertionError):
        lay_out([span], block_size=4)


def test_sixty_four_tokens_of_a_tree_have_a_bit_each() -> None:
    span = Span([1] * 64, 5, [range(20)], tree=range(-1, 63))
    step = lay_out([span], block_size=4)
    assert step.positions.tolist() == [*range(5, 69)]


@pytest.mark.parametrize("seed", range(30))
def test_random_plans_are_laid_out_as_one_reads_them(seed: int) -> None:
    dice = random.Random(seed)
    size, groups = dice.choice([1, 3, 16]), dice.choice([1, 2])
    spans = []
    for _ in range(dice.randint(1, 6)):
        length, start = dice.choice([1, 2, 9, 64]), dice.choice([0, 1, 15, 40])
        blocks = -(-(start + length) // size) + dice.randint(0, 2)
        tables = [[dice.randrange(500) for _ in range(blocks)] for _ in range(groups)]
        tree = random_tree(dice, length) if dice.random() < 0.5 else ()
        tokens = [dice.randrange(100) for _ in range(length)]
        spans.append(Span(tokens, start, tables, tree=tree))
    rows = [(i, dice.randrange(len(span.tokens))) for i, span in enumerate(spans)]
    step = lay_out(planned(spans, rows), size)
    at = 0
    for layout, span, wanted in zip(step.spans, spans, step.logits_rows, strict=True):
        assert layout.row == at
        seen = step.ancestors_of(layout)
        assert (seen is None) == (not span.tree)
        for index in range(len(span.tokens)):
            depth = index
            if span.tree:
                own = way(span.tree, index)
                depth = len(own) - 1
                assert seen is not None
                assert [i for i in range(64) if int(seen[index]) >> i & 1] == own
            assert step.positions[at + index] == span.start + depth
            place = span.start + index
            for slots, table in zip(step.slots, span.block_tables, strict=True):
                assert slots[at + index] == table[place // size] * size + place % size
        assert at <= wanted < at + len(span.tokens)
        at += len(span.tokens)
    again, _ = unpack(pack(step, 0))
    np.testing.assert_array_equal(again.positions, step.positions)
    assert (again.ancestors is None) == (step.ancestors is None)
    if step.ancestors is not None and again.ancestors is not None:
        np.testing.assert_array_equal(again.ancestors, step.ancestors)
