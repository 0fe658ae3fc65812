"""The division of the cache's memory among layers with and without a window."""

from __future__ import annotations

import pytest
import torch

from app.core.cache import window_blocks
from app.core.errors import UnsupportedModel
from app.model.kv_storage import (
    CacheGroup,
    CacheUse,
    LayerShape,
    allocate_groups,
    groups_within,
    zeros,
)

SIZE = 16
WINDOW = 1024


def shapes_of(*windows: int | None) -> dict[int, LayerShape]:
    """Layers whose keys and values take 1 KiB a token."""
    return {i: LayerShape(4, 64, 64, 2, torch.bfloat16, window) for i, window in enumerate(windows)}


def use_of(
    *, required: int | None = None, limit: int | None = 131_072, running: int = 64
) -> CacheUse:
    return CacheUse(required=required, limit=limit, running=running, step_tokens=512)


def blocks_of(groups: tuple[CacheGroup, ...]) -> list[int]:
    return [group.num_blocks for group in groups]


GEMMA = shapes_of(*([WINDOW] * 5 + [None]) * 2)
BLOCK = SIZE * 1024
NEEDED = 64 * (window_blocks(WINDOW, SIZE) + 2) + 2 * 512 // SIZE
"""Blocks that 64 running sequences hold in a layer with a window."""


def test_without_windows_all_memory_is_one_group() -> None:
    [group] = groups_within(7 * 3 * BLOCK + 5, shapes_of(None, None, None), SIZE, use_of())
    assert group == CacheGroup((0, 1, 2), 6)


def test_a_window_that_hides_nothing_is_none() -> None:
    shapes = shapes_of(4096, None, 4095)
    groups = groups_within(1 << 30, shapes, SIZE, use_of(limit=4096))
    assert [(group.layers, group.window) for group in groups] == [((0, 1), None), ((2,), 4095)]
    [group] = groups_within(1 << 30, shapes, SIZE, use_of(required=4095, limit=4096))
    assert (group.layers, group.window) == ((0, 1, 2), None)


def test_windows_get_what_sequences_that_run_hold_and_full_attention_the_rest() -> None:
    budget = 10 * (NEEDED + 1) * BLOCK + 2 * 50_000 * BLOCK
    full, window = groups_within(budget, GEMMA, SIZE, use_of())
    assert (full.layers, full.window) == ((5, 11), None)
    assert (window.layers, window.window) == ((0, 1, 2, 3, 4, 6, 7, 8, 9, 10), WINDOW)
    assert blocks_of((full, window)) == [49_999, NEEDED]


@pytest.mark.parametrize("windows", [(None, 100, 200, 100), (None, None, 50)])
@pytest.mark.parametrize("budget", [3_000_000, 50_000_000, 400_000_000])
def test_memory_is_used_up_and_nobody_has_less_than_without_windows(
    budget: int, windows: tuple[int | None, ...]
) -> None:
    shapes = shapes_of(*windows)
    groups = groups_within(budget, shapes, SIZE, use_of())
    even = budget // (BLOCK * len(windows)) - 1
    costs = [BLOCK * len(group.layers) for group in groups]
    used = sum(c * (group.num_blocks + 1) for c, group in zip(costs, groups, strict=True))
    assert used <= budget < used + BLOCK * len(windows)
    assert groups[0].window is None
    assert groups[0].num_blocks >= even
    for group in groups[1:]:
        assert group.window is not None
        held = 64 * (window_blocks(group.window, SIZE) + 2) + 64
        assert group.num_blocks == min(held, groups[0].num_blocks)


def test_where_memory_is_short_a_context_that_was_asked_for_goes_before_windows() -> None:
    budget = 1000 * 12 * BLOCK
    assert blocks_of(groups_within(budget, GEMMA, SIZE, use_of())) == [999, 999]
    assert blocks_of(groups_within(budget, GEMMA, SIZE, use_of(required=999 * SIZE))) == [999, 999]
    full, window = blocks_of(groups_within(budget, GEMMA, SIZE, use_of(required=50_000)))
    assert full * SIZE >= 50_000
    running = (window - 64) // (window_blocks(WINDOW, SIZE) + 2)
    assert window == running * (window_blocks(WINDOW, SIZE) + 2) + 64
    assert running == 7  # (12,000 - 2 x 3,126) / 10: 574 blocks for each layer with a window
    # The caller refuses impossible contexts; here windows keep enough blocks for one sequence.
    full, window = blocks_of(groups_within(budget, GEMMA, SIZE, use_of(required=10**6)))
    assert window == window_blocks(WINDOW, SIZE) + 2 + 64
    assert full * SIZE < 10**6


def test_where_every_layer_has_a_window_all_have_as_many_blocks() -> None:
    groups = groups_within(100 * 3 * BLOCK, shapes_of(8, 64, 8), SIZE, use_of())
    assert groups == (CacheGroup((1,), 99, 64), CacheGroup((0, 2), 99, 8))


def test_no_room_for_a_block_is_refused_with_what_is_needed() -> None:
    with pytest.raises(UnsupportedModel, match=f"set it to at least {24 * BLOCK}"):
        groups_within(24 * BLOCK - 1, GEMMA, SIZE, use_of())


def test_layers_of_a_group_have_its_blocks_and_a_spare_one() -> None:
    shapes = shapes_of(None, 8, None)
    groups = (CacheGroup((0, 2), 5), CacheGroup((1,), 3, 8))
    storage = allocate_groups(shapes, groups, block_size=SIZE, device=torch.device("cpu"))
    assert {layer: len(keys) for layer, keys in storage.keys.items()} == {0: 96, 1: 64, 2: 96}
    assert storage.group_of == {0: 0, 1: 1, 2: 0}


def test_a_cache_that_the_system_refuses_is_an_error_that_names_the_setting() -> None:
    with pytest.raises(UnsupportedModel, match="lower kv_cache_bytes"):
        zeros((1 << 50,), torch.uint8, torch.device("cpu"))


@pytest.mark.parametrize("shape", [(3, 0, 8), (3, 5, 7)])
def test_a_cache_begins_with_zeros_that_can_be_written(shape: tuple[int, ...]) -> None:
    memory = zeros(shape, torch.bfloat16, torch.device("cpu"))
    assert memory.shape == shape
    assert memory.dtype == torch.bfloat16
    assert not memory.any()
    memory += 1
    assert memory.all()
