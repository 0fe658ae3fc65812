"""The division of memory between recurrent states and keys and values."""

from __future__ import annotations

import pytest
import torch

from app.core.cache import StateSlots
from app.core.errors import UnsupportedModel
from app.model.kv_storage import LayerShape
from app.model.state_storage import StateShape, allocate_states, slots_within

SIZE = 16
STATES = dict.fromkeys(range(3), StateShape((3, 1024), torch.bfloat16, (4, 64, 64)))
"""Recurrent layers with states of 70 KiB each."""
KEYS = {3: LayerShape(4, 64, 64, 2, torch.bfloat16)}
"""A layer with keys and values of 1 KiB a token."""
SLOT = 3 * 70 * 1024


def test_a_slot_is_convolution_and_scan_of_all_layers() -> None:
    assert sum(each.nbytes for each in STATES.values()) == SLOT
    short = {0: StateShape((2, 2048), torch.bfloat16, None)}
    assert sum(each.nbytes for each in short.values()) == 8192


def test_running_sequences_first_then_a_quarter_for_checkpoints() -> None:
    running = (4 * 8 + 2) * SLOT
    slots = slots_within(running + 400 * SLOT, STATES, KEYS, SIZE, running=8)
    assert slots == StateSlots(count=1 + 4 * 8 + 100, interval=224)  # a slot: 210 tokens, 14 blocks


def test_where_memory_is_short_fewer_run_and_half_is_left_for_blocks() -> None:
    slots = slots_within(100 * SLOT, STATES, KEYS, SIZE, running=64)
    assert slots.count == 1 + 48 + 50 // 4


def test_there_are_no_more_checkpoints_than_blocks() -> None:
    cheap = {0: StateShape((2, 16), torch.bfloat16, None)}  # 64 bytes
    budget = (4 + 2) * 64 + 30 * SIZE * 1024
    slots = slots_within(budget, cheap, KEYS, SIZE, running=1)
    assert slots == StateSlots(count=1 + 4 + 30, interval=SIZE)


def test_too_little_for_one_sequence_is_refused_with_what_is_needed() -> None:
    needed = 2 * (4 + 2) * SLOT
    assert slots_within(needed, STATES, KEYS, SIZE, running=8).count >= 5
    with pytest.raises(UnsupportedModel, match=f"set it to at least {needed}"):
        slots_within(needed - 1, STATES, KEYS, SIZE, running=8)


def test_without_attention_checkpoints_have_no_keys_to_cost_as_much_as() -> None:
    slots = slots_within(1000 * SLOT, STATES, {}, SIZE, running=8)
    assert slots.interval == 2048
    assert slots.count > 4 * 8


def test_a_slot_more_than_the_engine_hands_out_is_there_for_padding() -> None:
    storage = allocate_states(STATES, StateSlots(5, SIZE), torch.device("cpu"))
    assert {len(part) for part in (*storage.conv.values(), *storage.scan.values())} == {6}
    assert storage.nbytes == 6 * SLOT
    assert {part.dtype for part in storage.scan.values()} == {torch.float32}
