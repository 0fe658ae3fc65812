"""State slots: states that sequences keep, checkpoints, and no leaks."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from app.core.cache import LEAST_SLOTS, SLOTS_EACH, StateSlots
from app.kv.manager import BlockManager
from app.kv.prefix import Prefix, PrefixIndex
from app.kv.states import ANCHOR_TOKENS, EMPTY, KeptState, KeptStates, StatePool
from app.kv.table import BlockTable
from tests.fakes import Group
from tests.integrity import check_manager, check_states

SIZE = 2


def make_pool(count: int) -> StatePool:
    return StatePool(StateSlots(count, SIZE), PrefixIndex(0))


def make_manager(blocks: int | None, slots: int) -> tuple[BlockManager, StatePool]:
    """``blocks`` is None for a model without attention."""
    groups = [] if blocks is None else [Group(blocks)]
    manager = BlockManager(groups, SIZE, states=StateSlots(slots, SIZE))
    assert manager.states is not None
    return manager, manager.states


def checkpoint(pool: StatePool, prefix: Prefix) -> int:
    slot = pool.take()
    pool.register(prefix, slot)
    pool.release(slot)
    return slot


def test_too_few_slots_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"2 slots for recurrent states.*needs 3"):
        make_pool(LEAST_SLOTS - 1)
    make_pool(LEAST_SLOTS)


def test_checkpoints_lie_at_block_borders_alone() -> None:
    with pytest.raises(ValueError, match="multiple of the block size"):
        BlockManager([Group(4)], 4, states=StateSlots(8, 6))


def test_a_cache_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="blocks, state slots, or both"):
        BlockManager([], 4)


def test_the_empty_state_is_never_handed_out_to_be_written() -> None:
    pool = make_pool(4)
    assert sorted(pool.take() for _ in range(3)) == [1, 2, 3]
    assert pool.num_free == 0
    assert pool.usage == 1.0
    assert not pool.may_overwrite(EMPTY)


def test_the_checkpoint_that_was_released_first_makes_room_first() -> None:
    index = PrefixIndex(0)
    pool = StatePool(StateSlots(4, SIZE), index)
    first, second = index.extend("", (1, 2)), index.extend("", (3, 4))
    slots = [checkpoint(pool, second), checkpoint(pool, first)]
    never_used = pool.take()
    assert never_used not in slots
    pool.share(second.checkpoint)  # a sequence starts from it, and ends
    pool.release(second.checkpoint)
    assert pool.take() == slots[1]
    assert first.checkpoint == EMPTY
    assert second.checkpoint == slots[0]
    assert index.find("", (1, 2)) is None
    assert index.find("", (3, 4)) is second


def test_a_slot_is_overwritten_by_its_only_owner_and_not_as_a_checkpoint() -> None:
    index = PrefixIndex(0)
    pool = StatePool(StateSlots(4, SIZE), index)
    slot = pool.take()
    assert pool.may_overwrite(slot)
    pool.share(slot)
    assert not pool.may_overwrite(slot)
    pool.release(slot)
    pool.register(index.extend("", (1, 2)), slot)
    assert not pool.may_overwrite(slot)


def test_a_prefix_has_one_checkpoint_the_first() -> None:
    index = PrefixIndex(0)
    pool = StatePool(StateSlots(4, SIZE), index)
    prefix = index.extend("", (1, 2))
    first = checkpoint(pool, prefix)
    checkpoint(pool, prefix)
    assert prefix.checkpoint == first
    assert pool.num_free == 3
    check_states(pool, [])


@pytest.mark.parametrize("blocks", [8, None])
def test_a_match_ends_at_the_longest_prefix_with_a_checkpoint(blocks: int | None) -> None:
    manager, pool = make_manager(blocks, 8)
    tokens = list(range(9))
    table = manager.allocate(9, scope="a")
    manager.advance(table, tokens, 8)
    assert manager.match(tokens, "a") == []
    assert manager.cached(tokens, "a") == 8
    checkpoint(pool, table.chain[1])
    assert len(manager.match(tokens, "a")) == 2
    assert len(manager.match(tokens[:4], "a")) == 0, "one token is left to compute"
    assert manager.match(tokens, "b") == []
    manager.free(table)
    assert len(manager.match(tokens, "a")) == 2
    assert manager.cached(tokens, "a") == (8 if blocks else 4), "checkpoints keep prefixes known"
    check_manager(manager, [])


def test_a_checkpoint_goes_with_the_blocks_of_its_prefix() -> None:
    manager, pool = make_manager(4, 8)
    tokens = list(range(9))
    table = manager.allocate(8)
    manager.advance(table, tokens, 8)
    for prefix in table.chain:
        checkpoint(pool, prefix)
    manager.free(table)
    assert len(pool._checkpoints) == 4
    other = manager.allocate(4)  # it takes the last two blocks
    assert len(pool._checkpoints) == 2
    assert len(manager.match(tokens)) == 2
    assert pool.num_free == 7
    check_states(pool, [])
    check_manager(manager, [other])


def test_a_sequence_keeps_the_state_it_started_from_when_the_checkpoint_is_forgotten() -> None:
    index = PrefixIndex(1)
    pool = StatePool(StateSlots(4, SIZE), index)
    prefix = index.extend("", (1, 2))
    index.register(prefix, 0, 7)
    slot = checkpoint(pool, prefix)
    kept = KeptStates()
    kept.start(pool, prefix, 2)
    assert index.forget(0, 7) is prefix
    pool.forget(prefix)
    assert index.find("", (1, 2)) is None
    assert [state.slot for state in kept.states] == [slot]
    assert pool.may_overwrite(slot)
    kept.free(pool)
    check_states(pool, [])
    assert pool.num_free == 3


def kept_at(pool: StatePool, *positions: int) -> KeptStates:
    return KeptStates([KeptState(position, pool.take()) for position in positions])


def positions(kept: KeptStates) -> list[int]:
    return [state.position for state in kept.states]


@pytest.mark.parametrize("stride", [1, 2, 3, 7, 8, 9, 30])
def test_kept_states_are_few_and_reach_back_as_far_as_leaps_do(stride: int) -> None:
    pool, kept = make_pool(100), KeptStates()
    for computed in range(0, 200, stride):
        kept.states.append(KeptState(computed, pool.take()))
        kept.thin(pool, computed, floor=0)
        found = positions(kept)
        assert len(found) <= SLOTS_EACH
        assert found[-1] == computed
        back = [computed - position for position in found if computed - position >= ANCHOR_TOKENS]
        assert computed < ANCHOR_TOKENS or (back and min(back) < 2 * ANCHOR_TOKENS + stride)
        assert pool.num_free == 99 - len(found)


def test_nothing_is_kept_that_no_leap_can_reach() -> None:
    pool = make_pool(20)
    kept = kept_at(pool, 10, 40, 41, 42)
    kept.thin(pool, 42, floor=41)
    assert positions(kept) == [41, 42]


def test_with_few_slots_free_only_the_last_state_is_kept() -> None:
    pool = make_pool(8)
    kept = kept_at(pool, 10, 20, 30, 31, 32, 40)
    kept.thin(pool, 32, floor=0)
    assert positions(kept) == [32, 40], "states in flight stay"


def test_keep_least_keeps_the_next_state_and_that_of_the_computed_tokens() -> None:
    pool = make_pool(20)
    kept = kept_at(pool, 10, 20, 30, 31)
    kept.keep_least(pool, computed=25)
    assert positions(kept) == [20, 31]
    kept.keep_least(pool, computed=31)
    assert positions(kept) == [31]
    assert pool.num_free == 18


def test_checkpoints_are_due_where_they_are_wanted_and_at_intervals() -> None:
    kept = KeptStates(last=10)
    kept.want(33)
    kept.want(31)
    kept.want(33)
    assert kept.due(10, 19, 10) == []
    assert kept.due(19, 30, 10) == [20, 30]
    assert kept.due(30, 45, 10) == [31, 33, 43]
    assert kept.due(45, 52, 10) == []
    assert kept.due(60, 75, 10) == [63, 73], "states before the span can no longer be saved"


@dataclass(slots=True)
class _Reader:
    tokens: list[int]
    table: BlockTable
    kept: KeptStates = field(default_factory=KeptStates)
    computed: int = 0


class _Memory:
    """Slots with contents: a slot holds all tokens before the position of its state."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        blocks = None if rng.random() < 0.4 else rng.randint(10, 24)
        self.manager, self.pool = make_manager(blocks, rng.choice([3, 4, 6, 12, 30]))
        self.slots: dict[int, tuple[int, ...]] = {EMPTY: ()}
        self.live: list[_Reader] = []

    def add(self) -> None:
        rng, manager = self.rng, self.manager
        tokens = [rng.randint(0, 1) for _ in range(rng.randint(1, 10))]
        if self.live and rng.random() < 0.5:
            begin = rng.choice(self.live).tokens
            tokens = [*begin[: rng.randint(0, len(begin))], *tokens]
        prefix = manager.match(tokens)
        if manager.has_free(manager.needed(len(tokens), prefix)):
            reader = _Reader(tokens, manager.allocate(len(tokens), prefix))
            reader.computed = len(prefix) * SIZE
            reader.kept.start(self.pool, prefix[-1] if prefix else None, reader.computed)
            self.live.append(reader)

    def compute(self, reader: _Reader) -> None:
        """Compute a span that saves some states while slots are free, and always the last one."""
        kept, pool = reader.kept, self.pool
        end = min(len(reader.tokens), reader.computed + self.rng.randint(1, 7))
        if pool.num_free == 0 or end == reader.computed:
            return
        if not self.manager.can_grow(reader.table, end):
            return
        self.manager.grow(reader.table, end)
        last = pool.take()
        for position in range(reader.computed + 1, end + 1):
            slot = last if position == end else EMPTY
            if slot == EMPTY and pool.num_free and self.rng.random() < 0.5:
                slot = pool.take()
            if slot != EMPTY:
                self.slots[slot] = tuple(reader.tokens[:position])
                kept.states.append(KeptState(position, slot))
        reader.computed = end
        self.manager.advance(reader.table, reader.tokens, end)
        for state in kept.states:
            if state.position % SIZE == 0 and self.rng.random() < 0.5:
                prefix = reader.table.chain[state.position // SIZE - 1]
                if not prefix.checkpoint:
                    pool.register(prefix, state.slot)
        kept.thin(pool, end, floor=self.rng.choice([0, 3]))

    def cut(self, reader: _Reader) -> None:
        end = self.rng.randint(0, reader.computed)
        del reader.tokens[max(1, end) :]
        while True:
            reader.kept.cut(self.pool, end)
            end = self.manager.truncate(reader.table, reader.kept.end)
            if end == reader.kept.end:
                break
        reader.computed = end

    def free(self, reader: _Reader) -> None:
        self.manager.free(reader.table)
        reader.kept.free(self.pool)
        self.live.remove(reader)

    def check(self) -> None:
        check_manager(self.manager, [reader.table for reader in self.live])
        check_states(self.pool, [reader.kept for reader in self.live])
        for reader in self.live:
            assert reader.kept.end == reader.computed
            for state in reader.kept.states:
                assert self.slots[state.slot] == tuple(reader.tokens[: state.position])
        for prefix in self.pool._checkpoints.values():
            assert self.slots[prefix.checkpoint] == _tokens_of(prefix)


def _tokens_of(prefix: Prefix) -> tuple[int, ...]:
    parent, tokens = prefix.key
    return (*(_tokens_of(parent) if isinstance(parent, Prefix) else ()), *tokens)


@pytest.mark.parametrize("seed", range(30))
def test_no_sequence_ever_reads_a_state_that_is_not_its_own(seed: int) -> None:
    rng = random.Random(seed)
    memory = _Memory(rng)
    for _ in range(200):
        move = rng.choice(["add", "compute", "compute", "compute", "grow", "cut", "give", "free"])
        if move == "add":
            memory.add()
        elif memory.live:
            reader = rng.choice(memory.live)
            if move == "compute":
                memory.compute(reader)
            elif move == "grow":
                reader.tokens += [rng.randint(0, 1) for _ in range(rng.randint(1, 9))]
            elif move == "cut":
                memory.cut(reader)
            elif move == "give":
                reader.kept.keep_least(memory.pool, rng.randint(0, reader.computed))
            else:
                memory.free(reader)
        memory.check()
    for reader in [*memory.live]:
        memory.free(reader)
    memory.check()
    assert memory.pool.usage == 0.0
