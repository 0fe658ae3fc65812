"""The table of masks against plainly stacked masks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from app.constraint import Compiler, JsonSchema
from app.core.constraint import Mask
from app.model.cuda.mask_table import MASK_TABLE_BYTES, MaskTable
from app.text import Vocabulary
from tests.wide import many

CPU = torch.device("cpu")
WORDS = 3


def table_of(slots: int) -> MaskTable:
    return MaskTable(WORDS, CPU, max_bytes=slots * WORDS * 4)


def written(value: int) -> Mask:
    """A writable mask, like one that a budget narrows for a single step."""
    return np.array([value, 0xFFFFFFFF, 0x80000000 | value], dtype=np.uint32)


def memoised(value: int) -> Mask:
    mask = written(value)
    mask.flags.writeable = False
    return mask


def gathered(table: MaskTable, masks: list[Mask]) -> list[list[int]]:
    words, rows = table.place(masks)
    assert words.dtype == torch.int32
    assert words.shape[1] == WORDS
    assert len(rows) == len(masks)
    return [[int(word) for word in row] for row in words[rows].numpy().view(np.uint32)]


def sent_for(table: MaskTable, masks: list[Mask]) -> int:
    """Number of masks that the step sends; also checks the masks that it gathers."""
    before = table.masks_sent
    assert gathered(table, masks) == np.stack(masks).tolist()
    return table.masks_sent - before


@dataclass
class NaiveTable:
    """A naive model of the masks in a table with ``slots`` slots."""

    slots: int
    kept: list[int] = field(default_factory=list)
    """Masks that need not be sent again, the least recently used first."""

    def sends(self, step: list[tuple[int, bool]]) -> int:
        distinct = list(dict.fromkeys(step))
        if len(distinct) > self.slots:
            return len(step)
        seen = [value for value, keep in distinct if keep and value in self.kept]
        fresh = [each for each in distinct if each[0] not in seen]
        others = [value for value in self.kept if value not in seen]
        room = self.slots - len(seen) - len(fresh)
        self.kept = others[max(0, len(others) - room) :] + seen
        self.kept += [value for value, keep in fresh if keep]
        return len(fresh)


STEPS = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=8),
    min_size=1,
    max_size=30,
)


@given(steps=STEPS, slots=st.integers(0, 7))
@settings(max_examples=many(300, 4))
def test_any_steps_gather_their_masks_and_send_those_not_kept(
    steps: list[list[tuple[int, bool]]], slots: int
) -> None:
    table, oracle = table_of(slots), NaiveTable(slots)
    pool = {value: memoised(value) for value in range(10)}
    for step in steps:
        # A writable mask counts as a different mask in each of its rows.
        step = [(v, True) if keep else (100 + i, False) for i, (v, keep) in enumerate(step)]
        masks = [pool[value] if keep else written(value) for value, keep in step]
        assert sent_for(table, masks) == oracle.sends(step)
        assert len(table._kept) == len(oracle.kept) <= slots
        assert table.nbytes <= slots * WORDS * 4


def test_masks_that_are_gone_are_never_taken_for_new_ones_at_their_place() -> None:
    table = table_of(4)
    for value in range(200):
        step = [memoised(value), written(value + 1000), memoised(value + 2000)]
        assert sent_for(table, step) == 3
        del step


def test_a_step_sends_each_new_mask_once_and_known_ones_not_at_all() -> None:
    table = table_of(8)
    a, b = memoised(1), memoised(2)
    assert sent_for(table, [a, b, a, a]) == 2
    assert sent_for(table, [b, a]) == 0
    assert len(table._kept) == 2


def test_masks_of_a_step_stay_and_the_least_recently_used_is_evicted() -> None:
    table = table_of(3)
    a, b, c, d = (memoised(value) for value in range(4))
    assert sent_for(table, [a, b, c]) == 3
    assert sent_for(table, [d, a]) == 1  # evicts b
    assert sent_for(table, [c, a, d]) == 0
    assert sent_for(table, [b]) == 1  # evicts c
    assert sent_for(table, [a, d, b]) == 0


def test_a_mask_that_may_be_written_is_sent_every_time_and_gives_its_slot_back() -> None:
    table = table_of(2)
    kept, narrowed = memoised(1), written(2)
    assert sent_for(table, [kept, narrowed]) == 2
    narrowed[0] = 77
    assert sent_for(table, [narrowed, kept]) == 1
    assert sent_for(table, [kept, written(3)]) == 1
    assert len(table._kept) == 1


def test_a_read_only_view_of_what_may_be_written_is_sent_every_time() -> None:
    table = table_of(4)
    below = written(1)
    view = below[:]
    view.flags.writeable = False
    assert sent_for(table, [view]) == 1
    below[0] = 5
    assert sent_for(table, [view]) == 1
    assert len(table._kept) == 0


def test_a_step_of_more_masks_than_slots_goes_past_the_table() -> None:
    table = table_of(2)
    a, b = memoised(1), memoised(2)
    assert sent_for(table, [a, b]) == 2
    many = [memoised(value) for value in range(5)]
    assert sent_for(table, [a, *many, a]) == 7
    assert sent_for(table, [a, b]) == 0


def test_a_step_of_as_many_masks_as_slots_fits() -> None:
    table = table_of(3)
    for first in range(0, 30, 3):
        masks = [memoised(first + i) for i in range(3)]
        assert sent_for(table, masks) == 3
        assert sent_for(table, masks[::-1]) == 0


@pytest.mark.parametrize("words", [1, 2, 1571, 4008, 8192, 1 << 24, 1 << 25])
def test_the_table_stays_within_its_bytes(words: int) -> None:
    table = MaskTable(words, CPU)
    assert table.nbytes == table.slots * words * 4 <= MASK_TABLE_BYTES
    assert (table.slots == 0) == (words * 4 > MASK_TABLE_BYTES)


@pytest.mark.parametrize("wrong", [WORDS - 1, WORDS + 1])
def test_a_mask_of_another_length_is_an_error_and_leaves_the_table_right(wrong: int) -> None:
    table = table_of(3)
    a, b, c = (memoised(value) for value in range(3))
    assert sent_for(table, [a, b, c]) == 3
    with pytest.raises(ValueError, match="shape"):
        table.place([a, memoised(9), np.zeros(wrong, dtype=np.uint32)])
    assert sent_for(table, [a, b, c]) == 2
    assert sent_for(table, [c, b, a]) == 0


def test_no_masks_have_no_rows() -> None:
    assert table_of(2).place([])[1] == []
    assert table_of(0).place([])[1] == []


def test_rows_stay_valid_for_work_queued_before_the_next_step() -> None:
    table = table_of(2)
    words, rows = table.place([memoised(1), written(2)])
    queued = words[rows].clone()  # on a device: a kernel still pending when the next step sends
    later, others = table.place([memoised(3), memoised(4)])
    assert later is words
    assert queued.numpy().view(np.uint32)[:, 0].tolist() == [1, 2]
    assert words[others].numpy().view(np.uint32)[:, 0].tolist() == [3, 4]


def test_an_answer_written_twice_sends_its_masks_once() -> None:
    singles = [bytes([byte]) for byte in range(256)]
    vocabulary = Vocabulary([*singles, b"name", b'", "', None], eos_ids=[258])
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 200}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }
    constraint = Compiler(vocabulary).compile(JsonSchema(schema))
    table = MaskTable(-(-vocabulary.size // 32), CPU)
    sent = []
    for _ in range(2):
        state = constraint.start()
        for byte in json.dumps({"name": "Ada", "age": 36}).encode():
            mask = state.mask(budget=1000)
            words, rows = table.place([mask])
            assert np.array_equal(words[rows].numpy().view(np.uint32), [mask])
            state.accept(byte)
        sent.append(table.masks_sent)
    assert 0 < sent[0] == sent[1]
