"""Cache blocks: invariants under random use, and prefixes that can never be mistaken."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.kv.manager import BlockManager, BlockTable
from app.kv.pool import BlockPool
from app.kv.prefix import PrefixIndex


def test_empty_blocks_are_taken_before_cached_ones_and_those_in_order_of_release() -> None:
    pool = BlockPool(3)
    first, second, third = pool.take(), pool.take(), pool.take()
    pool.release(second, keep=True)
    pool.release(first, keep=True)
    pool.release(third, keep=False)
    assert [pool.take(), pool.take(), pool.take()] == [third, second, first]


def test_a_shared_block_is_free_after_its_last_owner() -> None:
    pool = BlockPool(1)
    block = pool.take()
    pool.share(block)
    pool.release(block, keep=True)
    assert pool.num_free == 0
    pool.release(block, keep=True)
    assert pool.num_free == 1
    pool.share(block)
    assert pool.num_free == 0
    pool.check_integrity()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60))
def test_the_pool_keeps_its_invariants(moves: list[tuple[int, int]]) -> None:
    pool = BlockPool(6)
    held: list[int] = []
    for kind, choice in moves:
        if kind == 0 and pool.num_free:
            held.append(pool.take())
        elif kind == 1 and held:
            block = held[choice % len(held)]
            pool.share(block)
            held.append(block)
        elif kind >= 2 and held:
            pool.release(held.pop(choice % len(held)), keep=kind == 2)
        pool.check_integrity()
        assert pool.num_free == 6 - len(set(held))


def test_a_prefix_is_found_by_all_of_its_tokens_only() -> None:
    index = PrefixIndex()
    one = index.register("", (1, 2), block=0)
    other = index.register("", (3, 4), block=1)
    index.register(one, (5, 6), block=2)
    found = index.find(one, (5, 6))
    assert found is not None
    assert found.block == 2
    assert index.find(other, (5, 6)) is None
    assert index.find("", (5, 6)) is None


def test_a_prefix_is_found_within_its_scope_only() -> None:
    manager = BlockManager(8, 2)
    tokens = [1, 2, 3, 4, 5]
    table = manager.allocate(5, scope="a")
    manager.register(table, tokens, 4)
    assert len(manager.match(tokens, "a")) == 2
    assert manager.match(tokens, "b") == []
    assert manager.match(tokens) == []
    other = manager.allocate(5, scope="b")
    manager.register(other, tokens, 4)
    assert {each.block for each in manager.match(tokens, "b")} == set(other.blocks[:2])
    manager.check_integrity([table, other])


def test_tokens_whose_hashes_collide_are_told_apart() -> None:
    assert hash(-1) == hash(-2)
    index = PrefixIndex()
    index.register("", (-1,), block=0)
    assert index.find("", (-2,)) is None


def test_what_continues_an_evicted_prefix_is_not_found_under_its_successor() -> None:
    index = PrefixIndex()
    old = index.register("", (1,), block=0)
    index.register(old, (2,), block=1)
    index.forget(0)
    new = index.register("", (1,), block=2)
    assert index.find(new, (2,)) is None


def test_a_match_leaves_one_token_to_compute() -> None:
    manager = BlockManager(8, 2)
    tokens = [1, 2, 3, 4]
    table = manager.allocate(4)
    manager.register(table, tokens, 4)
    assert len(manager.match(tokens)) == 1
    assert len(manager.match([*tokens, 5])) == 2
    assert len(manager.match([1, 2, 9, 4, 5])) == 1


def test_a_cut_inside_a_shared_block_falls_back_to_its_start() -> None:
    manager = BlockManager(8, 4)
    tokens = list(range(8))
    table = manager.allocate(9)
    manager.register(table, tokens, 8)
    other = manager.allocate(9, manager.match([*tokens, 8]))
    assert manager.truncate(table, 6) == 4
    manager.grow(table, 8)
    assert table.blocks[0] == other.blocks[0]
    assert table.blocks[1] != other.blocks[1]
    manager.check_integrity([table, other])
    assert len(manager.match([*tokens, 8])) == 2


def test_a_cut_inside_a_block_of_ones_own_keeps_what_was_computed() -> None:
    manager = BlockManager(8, 4)
    table = manager.allocate(9)
    manager.register(table, list(range(8)), 8)
    assert manager.truncate(table, 6) == 6
    assert len(table.blocks) == 2
    assert len(manager.match(list(range(9)))) == 1
    manager.check_integrity([table])


def test_what_is_free_but_cached_counts_when_it_is_pinned() -> None:
    manager = BlockManager(3, 2)
    table = manager.allocate(4)
    manager.register(table, [1, 2, 3, 4], 4)
    manager.free(table)
    prefix = manager.match([1, 2, 3, 4, 5])
    assert manager.needed(5, prefix) == manager.num_free == 3
    assert manager.needed(7, prefix) == 4


def test_a_prefix_outlives_its_sequence_and_its_last_block_goes_first() -> None:
    manager = BlockManager(4, 2)
    table = manager.allocate(8)
    manager.register(table, list(range(8)), 8)
    manager.free(table)
    manager.allocate(2)
    assert len(manager.match(list(range(9)))) == 3


@dataclass(slots=True)
class _Reader:
    tokens: list[int]
    table: BlockTable
    computed: int
    slots: list[tuple[int, int]] = field(default_factory=list)


@pytest.mark.parametrize("seed", range(40))
def test_no_sequence_ever_reads_what_another_wrote(seed: int) -> None:
    """Random life against a memory that is really written: every computed token reads back."""
    rng = random.Random(seed)
    size = rng.choice([1, 2, 4])
    manager = BlockManager(rng.randint(6, 14), size, share_prefixes=rng.random() < 0.9)
    memory: dict[tuple[int, int], tuple[int, ...]] = {}
    live: list[_Reader] = []

    def compute(reader: _Reader, end: int) -> None:
        for position in range(reader.computed, end):
            slot = (reader.table.blocks[position // size], position % size)
            memory[slot] = tuple(reader.tokens[: position + 1])
        reader.computed = end
        manager.register(reader.table, reader.tokens, end)

    for _ in range(150):
        move = rng.choice(["add", "compute", "compute", "grow", "cut", "free"])
        if move == "add":
            tokens = [rng.randint(0, 1) for _ in range(rng.randint(1, 10))]
            prefix = manager.match(tokens)
            if manager.needed(len(tokens), prefix) <= manager.num_free:
                table = manager.allocate(len(tokens), prefix)
                live.append(_Reader(tokens, table, len(prefix) * size))
        elif live:
            reader = rng.choice(live)
            if move == "compute":
                compute(reader, rng.randint(reader.computed, len(reader.tokens)))
            elif move == "grow" and manager.can_grow(reader.table, len(reader.tokens) + 2):
                reader.tokens += [rng.randint(0, 1), rng.randint(0, 1)]
                manager.grow(reader.table, len(reader.tokens))
            elif move == "cut" and reader.computed > 1:
                end = rng.randint(1, reader.computed)
                reader.computed = manager.truncate(reader.table, end)
                del reader.tokens[end:]
                if manager.can_grow(reader.table, end):
                    manager.grow(reader.table, end)
                else:
                    manager.free(reader.table)
                    live.remove(reader)
            elif move == "free":
                manager.free(reader.table)
                live.remove(reader)
        manager.check_integrity([reader.table for reader in live])
        for reader in live:
            for position in range(reader.computed):
                slot = (reader.table.blocks[position // size], position % size)
                assert memory[slot] == tuple(reader.tokens[: position + 1])
    for reader in live:
        manager.free(reader.table)
    assert manager.usage == 0.0
    manager.check_integrity([])
