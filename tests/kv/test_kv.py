"""Cache blocks: invariants under random use, and prefixes that are never confused."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.cache import FALL_BACK, window_blocks
from app.kv.manager import BlockManager
from app.kv.pool import BlockPool
from app.kv.prefix import Parent, Prefix, PrefixIndex
from app.kv.table import BlockTable, Column
from tests.fakes import Group
from tests.integrity import check_manager, check_pool, check_prefixes


def make_manager(num_blocks: int, size: int) -> BlockManager:
    return BlockManager([Group(num_blocks)], size)


def blocks_of(table: BlockTable, group: int = 0) -> list[int]:
    blocks: list[int] = table.views()[group].tolist()
    return blocks


def num_free(manager: BlockManager, group: int = 0) -> int:
    return manager._groups[group].pool.num_free


def registered(index: PrefixIndex, parent: Parent, tokens: tuple[int, ...], block: int) -> Prefix:
    prefix = index.extend(parent, tokens)
    index.register(prefix, 0, block)
    return prefix


def test_empty_blocks_are_taken_before_cached_ones_and_those_in_order_of_release() -> None:
    pool = BlockPool(4)
    first, second, third = pool.take(), pool.take(), pool.take()
    pool.release(second, keep=True)
    pool.release(first, keep=True)
    pool.release(third, keep=False)
    fresh = ({*range(4)} - {first, second, third}).pop()
    assert [pool.take() for _ in range(4)] == [third, fresh, second, first]


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
    check_pool(pool)


@settings(max_examples=60)
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
        check_pool(pool)
        assert pool.num_free == 6 - len(set(held))


def test_a_prefix_is_found_by_all_of_its_tokens_only() -> None:
    index = PrefixIndex()
    one = registered(index, "", (1, 2), block=0)
    other = registered(index, "", (3, 4), block=1)
    longer = registered(index, one, (5, 6), block=2)
    assert index.find(one, (5, 6)) is longer
    assert longer.blocks == [2]
    assert index.find(other, (5, 6)) is None
    assert index.find("", (5, 6)) is None
    check_prefixes(index, [])


def test_a_prefix_is_found_within_its_scope_only() -> None:
    manager = make_manager(8, 2)
    tokens = [1, 2, 3, 4, 5]
    table = manager.allocate(5, scope="a")
    manager.advance(table, tokens, 4)
    assert len(manager.match(tokens, "a")) == 2
    assert manager.match(tokens, "b") == []
    assert manager.match(tokens) == []
    other = manager.allocate(5, scope="b")
    manager.advance(other, tokens, 4)
    found = [prefix.blocks[0] for prefix in manager.match(tokens, "b")]
    assert found == blocks_of(other)[:2]
    check_manager(manager, [table, other])


def test_tokens_whose_hashes_collide_are_told_apart() -> None:
    assert hash(-1) == hash(-2)
    index = PrefixIndex()
    registered(index, "", (-1,), block=0)
    assert index.find("", (-2,)) is None


def test_a_prefix_is_known_as_long_as_anything_continues_it() -> None:
    index = PrefixIndex()
    first = registered(index, "", (1,), block=0)
    second = registered(index, first, (2,), block=1)
    index.forget(0, 0)
    assert index.find("", (1,)) is first
    index.hold(second)
    index.forget(0, 1)
    assert index.find(first, (2,)) is second
    check_prefixes(index, [second])
    index.release(second)
    assert index.find("", (1,)) is None
    assert index.find(first, (2,)) is None
    check_prefixes(index, [])


def test_a_match_leaves_one_token_to_compute() -> None:
    manager = make_manager(8, 2)
    tokens = [1, 2, 3, 4]
    table = manager.allocate(4)
    manager.advance(table, tokens, 4)
    assert len(manager.match(tokens)) == 1
    assert len(manager.match([*tokens, 5])) == 2
    assert len(manager.match([1, 2, 9, 4, 5])) == 1


def test_a_cut_inside_a_shared_block_falls_back_to_its_start() -> None:
    manager = make_manager(8, 4)
    tokens = list(range(8))
    table = manager.allocate(9)
    manager.advance(table, tokens, 8)
    other = manager.allocate(9, manager.match([*tokens, 8]))
    assert manager.truncate(table, 6) == 4
    manager.grow(table, 8)
    assert blocks_of(table)[0] == blocks_of(other)[0]
    assert blocks_of(table)[1] != blocks_of(other)[1]
    check_manager(manager, [table, other])
    assert len(manager.match([*tokens, 8])) == 2


def test_a_cut_inside_a_block_of_ones_own_keeps_what_was_computed() -> None:
    manager = make_manager(8, 4)
    table = manager.allocate(9)
    manager.advance(table, list(range(8)), 8)
    assert manager.truncate(table, 6) == 6
    assert table.covered == 2
    assert len(manager.match(list(range(9)))) == 1
    check_manager(manager, [table])


def test_free_cached_blocks_of_a_prefix_count_as_needed() -> None:
    manager = make_manager(3, 2)
    table = manager.allocate(4)
    manager.advance(table, [1, 2, 3, 4], 4)
    manager.free(table)
    prefix = manager.match([1, 2, 3, 4, 5])
    assert manager.needed(5, prefix) == [3]
    assert manager.has_free([3])
    assert not manager.has_free([3], beside=1)
    assert manager.needed(7, prefix) == [4]


def test_a_prefix_outlives_its_sequence_and_its_last_block_goes_first() -> None:
    manager = make_manager(4, 2)
    table = manager.allocate(8)
    manager.advance(table, list(range(8)), 8)
    manager.free(table)
    manager.allocate(2)
    assert len(manager.match(list(range(9)))) == 3


def test_a_view_shows_what_was_there_when_its_array_has_no_more_room() -> None:
    column = Column.of(0, 1)
    for block in range(1, 18):
        column.append(block)
    view = column.ids[: column.length]
    column.append(18)
    column.drop_before(5)
    assert view.tolist() == list(range(1, 18))
    assert column.ids[: column.length].tolist() == [0] * 5 + list(range(6, 19))


def test_blocks_out_of_every_window_are_given_back_and_used_by_others() -> None:
    """The window is 4, a block 2 tokens; 16 tokens more are kept for rollbacks of leaps."""
    manager = BlockManager([Group(50), Group(20, 4)], 2, step_tokens=2)
    tokens = list(range(60))
    table = manager.allocate(60)
    assert blocks_of(table, 0) == list(range(30))
    assert len(blocks_of(table, 1)) == window_blocks(4, 2) + 1 == 13
    for computed in range(2, 61, 2):
        manager.grow(table, computed)
        manager.advance(table, tokens, computed)
        check_manager(manager, [table])
    first = (60 - FALL_BACK - 4 + 1) // 2
    assert blocks_of(table, 1)[:first] == [0] * first
    assert len(table.columns[1].held) == 30 - first
    assert table.least == 2 * first + 4 - 1 <= 60 - FALL_BACK
    assert manager.needed(60) == [30, 13]
    assert num_free(manager, 1) == 20 - (30 - first)
    manager.free(table)
    assert manager.usage == 0.0


def test_a_prefix_is_of_use_if_what_its_windows_read_is_there() -> None:
    manager = BlockManager([Group(40), Group(18, 4)], 2, step_tokens=2)
    tokens = list(range(50))
    table = manager.allocate(50)
    for computed in range(2, 51, 2):
        manager.grow(table, computed)
        manager.advance(table, tokens, computed)
    # Blocks that were given back stay cached until they are reused: 25 are needed, 18 exist.
    assert num_free(manager, 1) == 18 - len(table.columns[1].held)
    assert len(manager.match([*tokens, 99])) == 25
    held = table.columns[1].first
    taken = manager.allocate(2 * num_free(manager, 1))
    assert len(manager.match(tokens[: 2 * held + 1])) == 0
    assert len(manager.match(tokens[: 2 * held + 3])) == 0
    # Token 2 * held + 4 reads three positions back: the first held block, and the next one.
    resumed = manager.match(tokens[: 2 * held + 5])
    assert len(resumed) == held + 2
    manager.free(taken)
    other = manager.allocate(2 * held + 5, resumed)
    assert blocks_of(other, 1)[: held + 2] == [0] * held + blocks_of(table, 1)[held : held + 2]
    assert other.least <= 2 * held + 4
    check_manager(manager, [table, other])


def test_a_long_sequence_has_room_where_its_windows_have() -> None:
    most = window_blocks(8, 4) + 16 // 4
    assert BlockManager([Group(most, 8)], 4, step_tokens=16).longest(1000) == 1000
    assert BlockManager([Group(most - 1, 8)], 4, step_tokens=16).longest(1000) == 4 * (most - 1)
    groups = [Group(100), Group(most, 8)]
    assert BlockManager(groups, 4, step_tokens=16).longest(1000) == 400


STEP = 7
"""Maximum tokens that a reader computes before it calls ``advance``."""


@dataclass(slots=True)
class _Reader:
    tokens: list[int]
    table: BlockTable
    computed: int


class _Memory:
    """A cache with contents: a slot holds all tokens up to its position."""

    def __init__(self, groups: list[Group], size: int, *, share_prefixes: bool) -> None:
        self.groups, self.size = groups, size
        self.manager = BlockManager(groups, size, step_tokens=STEP, share_prefixes=share_prefixes)
        self._slots: dict[tuple[int, int, int], tuple[int, ...]] = {}

    def compute(self, reader: _Reader, end: int) -> None:
        self.manager.grow(reader.table, end)
        for position in range(reader.computed, end):
            self.check(reader, position)
            for group, table in enumerate(reader.table.views()):
                slot = (group, int(table[position // self.size]), position % self.size)
                self._slots[slot] = tuple(reader.tokens[: position + 1])
        reader.computed = end
        self.manager.advance(reader.table, reader.tokens, end)

    def check(self, reader: _Reader, computed: int) -> None:
        """Assert the contents of all slots that the token after ``computed`` others reads."""
        for number, (group, table) in enumerate(
            zip(self.groups, reader.table.views(), strict=True)
        ):
            for position in range(first_read(group, computed), computed):
                slot = (number, int(table[position // self.size]), position % self.size)
                assert self._slots[slot] == tuple(reader.tokens[: position + 1])

    def longest_match(self, tokens: list[int]) -> int:
        """Blocks of the longest usable prefix, found by a search of all registered blocks."""
        full: list[set[tuple[int, ...]]] = [set() for _ in self.groups]
        for (group, block, offset), text in self._slots.items():
            known = self.manager._prefixes.is_registered(group, block)
            if known and offset == self.size - 1:
                full[group].add(text)
        for length in range((len(tokens) - 1) // self.size, 0, -1):
            if all(
                tuple(tokens[: (index + 1) * self.size]) in texts
                for group, texts in zip(self.groups, full, strict=True)
                for index in range(first_read(group, length * self.size) // self.size, length)
            ):
                return length
        return 0


def first_read(group: Group, computed: int) -> int:
    return 0 if group.window is None else max(0, computed - group.window + 1)


CACHES: dict[str, tuple[int | None, ...]] = {
    "full": (None,),
    "full and a window": (None, 3),
    "two windows beside": (None, 9, 2),
    "a window alone": (5,),
    "windows alone": (7, 2),
}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", CACHES)
def test_no_sequence_ever_reads_what_another_wrote(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random operations: tokens read what their own sequence wrote; matches are the longest."""
    rng = random.Random(f"{name} {seed}")
    fall_back = rng.choice([0, 1, 4, FALL_BACK])
    monkeypatch.setattr("app.kv.manager.FALL_BACK", fall_back)
    size = rng.choice([1, 2, 4])
    groups = [Group(rng.randint(10, 24), window) for window in CACHES[name]]
    memory = _Memory(groups, size, share_prefixes=rng.random() < 0.9)
    manager, live = memory.manager, list[_Reader]()
    given_back = 0
    for _ in range(200):
        move = rng.choice(["add", "compute", "compute", "compute", "grow", "cut", "free"])
        if move == "add":
            tokens = [rng.randint(0, 1) for _ in range(rng.randint(1, 10))]
            if live and rng.random() < 0.5:
                begin = rng.choice(live).tokens
                tokens = [*begin[: rng.randint(0, len(begin))], *tokens]
            prefix = manager.match(tokens)
            if manager.share_prefixes:
                assert len(prefix) == memory.longest_match(tokens)
            if manager.has_free(manager.needed(len(tokens), prefix)):
                table = manager.allocate(len(tokens), prefix)
                live.append(_Reader(tokens, table, len(prefix) * size))
        elif live:
            reader = rng.choice(live)
            if move == "compute":
                end = min(len(reader.tokens), reader.computed + rng.randint(1, STEP))
                if manager.can_grow(reader.table, end):
                    memory.compute(reader, end)
            elif move == "grow":
                reader.tokens += [rng.randint(0, 1) for _ in range(rng.randint(1, 9))]
            elif move == "cut" and reader.computed > 1:
                end = rng.randint(max(1, reader.computed - 9), reader.computed)
                reader.computed = manager.truncate(reader.table, end)
                assert reader.computed in (end, end // size * size)
                del reader.tokens[end:]
                if reader.computed < reader.table.least:
                    manager.free(reader.table)
                    live.remove(reader)
            elif move == "free":
                manager.free(reader.table)
                live.remove(reader)
        check_manager(manager, [reader.table for reader in live])
        for reader in live:
            given_back += sum(column.first > 0 for column in reader.table.columns)
            memory.check(reader, reader.computed)
            memory.check(reader, max(reader.table.least, reader.computed - 3))
    assert given_back or CACHES[name] == (None,) or fall_back == FALL_BACK
    for reader in live:
        manager.free(reader.table)
    assert manager.usage == 0.0
    check_manager(manager, [])
