"""The invariants of the engine and of what it holds, asserted between two steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, TypeVar

from app.engine import Engine
from app.engine.fair_queue import MOST_IDLE, FairQueue
from app.engine.scheduler import Scheduler
from app.engine.sequence import Sequence as Answer
from app.engine.state_keeping import StateKeeper
from app.kv.manager import BlockManager
from app.kv.pool import BlockPool
from app.kv.prefix import NO_BLOCK, Prefix, PrefixIndex
from app.kv.states import EMPTY, KeptStates, StatePool
from app.kv.table import BlockTable

T = TypeVar("T")


def check_engine(engine: Engine) -> None:
    """Costs O(blocks + known tokens)."""
    scheduler = engine._scheduler
    check_scheduler(scheduler)
    live = {id(sequence) for sequence in engine._sequences.values()}
    waiting = items_of(scheduler.waiting)
    queued = (*scheduler.running, *waiting, *engine._unopened, *engine._opened)
    held = {id(sequence) for sequence in queued}
    assert live == held, "a request is lost, or runs after its end"


def check_scheduler(scheduler: Scheduler) -> None:
    blocks, running = scheduler.blocks, scheduler.running
    check_manager(blocks, [sequence.blocks for sequence in running])
    check_queue(scheduler.waiting)
    waiting = items_of(scheduler.waiting)
    for sequence in waiting:
        assert sequence.computed == 0
        assert not sequence.blocks.in_use, "a waiting sequence holds blocks"
        assert not sequence.states.states, "a waiting sequence holds states"
        assert sequence.launched == 0
    assert len(running) <= scheduler._config.max_running
    tiers = [sequence.tier for sequence in running]
    assert tiers == sorted(tiers, reverse=True), "a lower class runs before a higher one"
    for sequence in running:
        _check_answer(sequence)
        table = sequence.blocks
        assert table.least <= sequence.computed <= table.covered * blocks.block_size
        assert len(table.chain) * blocks.block_size <= sequence.computed
    if scheduler._states is not None:
        _check_kept_states(scheduler._states, running)
    assert scheduler._needed.keys() <= set(waiting), "what does not wait needs blocks"


def _check_answer(answer: Answer) -> None:
    assert answer.computed < len(answer.tokens), "no token left to draw from"
    assert answer.computed <= answer.launched <= answer.num_known + 1
    sources = answer.sources
    assert len(sources._codes) == answer.length
    assert sources.counts == [sources._codes.count(each) for each in range(4)]
    assert answer.length <= answer.request.max_tokens
    if answer.state is not None and answer.budget.finishes:
        room = answer.budget.limit - answer.length
        assert answer.state.shortest_tokens() <= room, "the budget cannot be met"


def _check_kept_states(keeper: StateKeeper, running: Sequence[Answer]) -> None:
    check_states(keeper._pool, [sequence.states for sequence in running])
    for sequence in running:
        positions = [state.position for state in sequence.states.states]
        assert positions == sorted(set(positions))
        assert sequence.states.end == sequence.launched, "the next span could not go on"
        if sequence.state is not None and sequence.computed >= sequence.answer_start:
            assert sequence.computed in positions, "it could not go back to what is computed"


def check_queue(queue: FairQueue[Any]) -> None:
    assert queue._num_back == sum([len(found.back) for found in queue._classes.values()])
    in_lines = 0
    for level, found in queue._classes.items():
        assert not found.lines.keys() & found.idle.keys()
        assert len(found.idle) <= MOST_IDLE
        assert all(queue._class_of(item) == level for item in found.back)
        for tenant, line in found.lines.items():
            assert line.waiting, "an empty line is kept"
            in_lines += len(line.waiting)
            serials = [queue._serials[item] for item in line.waiting]
            assert serials == sorted(serials), "not first come, first served"
            assert all(queue._tenant_of(item) == tenant for item in line.waiting)
            assert all(queue._class_of(item) == level for item in line.waiting)
    assert in_lines == len(queue._serials)


def items_of(queue: FairQueue[T]) -> list[T]:
    """What came back, and what waits."""
    return [*chain.from_iterable(each.back for each in queue._classes.values()), *queue._serials]


def check_manager(manager: BlockManager, tables: Iterable[BlockTable]) -> None:
    """``tables``: all that are live. Costs O(blocks)."""
    tables = list(tables)
    held = [table.chain[-1] for table in tables if table.chain]
    if manager.states is not None:
        held += manager.states._checkpoints.values()
    check_prefixes(manager._prefixes, held)
    for table in tables:
        assert table.in_use
        assert len(table.columns) == len(manager._groups)
        lengths = [column.length for column in table.columns]
        assert table.covered == min(lengths, default=table.covered)
    for index, group in enumerate(manager._groups):
        check_pool(group.pool)
        _check_group(manager, index, tables)


def _check_group(manager: BlockManager, index: int, tables: Iterable[BlockTable]) -> None:
    group = manager._groups[index]
    references = [0] * group.pool.num_blocks
    for table in tables:
        column, held = table.columns[index], table.columns[index].held
        assert len(table.chain) <= column.length
        assert len(set(held)) == len(held), "a block twice in one table"
        assert not column.ids[: column.first].any(), "a block is given back and still named"
        assert group.most is None or len(held) <= group.most, "more is held than is counted on"
        if column.first and group.window is not None:
            assert column.first * manager.block_size <= group.first_read(table.least)
        for place, block in enumerate(held, column.first):
            references[block] += 1
            if place >= len(table.chain):
                assert group.pool.references(block) == 1, "a shared block would be written"
                registered = manager._prefixes.is_registered(index, block)
                assert not registered, "a registered block would be written"
    assert group.pool._references == references, "a reference is lost or invented"
    for block in group.pool._cached:
        kept = manager._prefixes.is_registered(index, block)
        assert kept, "a block is kept for a prefix that nobody can find"


def check_pool(pool: BlockPool) -> None:
    empty, cached = set(pool._empty), set(pool._cached)
    assert len(empty) == len(pool._empty), "a block is free twice"
    assert not empty & cached, "a block is both empty and cached"
    assert min(pool._references) >= 0
    assert {block for block, held in enumerate(pool._references) if not held} == empty | cached


def check_prefixes(index: PrefixIndex, held: Iterable[Prefix]) -> None:
    """Tables and counts agree; ``held``: what sequences hold."""
    holders = Counter(held)
    for group, registered in enumerate(index._registered):
        for block, prefix in registered.items():
            assert prefix.blocks[group] == block
            holders[prefix] += 1
    for key, prefix in index._found.items():
        assert prefix.key == key
        for group, block in enumerate(prefix.blocks):
            assert block == NO_BLOCK or index._registered[group][block] is prefix
        if isinstance(key[0], Prefix):
            holders[key[0]] += 1
    known = {prefix: prefix.holders for prefix in index._found.values()}
    assert known == dict(holders), "a prefix is kept for nobody, or lost"


def check_states(pool: StatePool, sequences: Iterable[KeptStates]) -> None:
    """``sequences``: what all running ones keep."""
    check_pool(pool._slots)
    held = Counter(state.slot for kept in sequences for state in kept.states)
    assert EMPTY not in held, "the empty state is no one's"
    held[EMPTY] = 1
    found = {slot: pool._slots.references(slot) for slot in range(pool.count)}
    assert +held == +Counter(found), "a reference to a slot is lost or invented"
    for slot, prefix in pool._checkpoints.items():
        assert prefix.checkpoint == slot
    for slot in pool._slots._cached:
        assert slot in pool._checkpoints, "a slot is kept for a prefix that nobody can find"
