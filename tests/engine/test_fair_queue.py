"""Turns of tenants: no item is lost, no tenant starves, and items of a tenant keep order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.fair_queue import MOST_IDLE, FairQueue
from tests.integrity import check_queue, items_of
from tests.wide import many

MAX_COST = 9


@dataclass(frozen=True)
class Item:
    tenant: str
    number: int
    cost: int = 1


def queue(*tenants: str, cost: int = 1) -> FairQueue[Item]:
    """A queue with one item for each of ``tenants``, in this order."""
    found: FairQueue[Item] = FairQueue(lambda item: item.tenant)
    for number, tenant in enumerate(tenants):
        found.push(Item(tenant, number, cost))
    return found


def turn(found: FairQueue[Item]) -> Item:
    item = found.next()
    assert item is not None
    found.take(item)
    found.charge(item.tenant, item.cost)
    check_queue(found)
    return item


def order_of_turns(found: FairQueue[Item]) -> str:
    return "".join(turn(found).tenant for _ in range(len(found)))


@pytest.mark.parametrize(
    ("arrivals", "order"),
    [
        ("aaaa", "aaaa"),
        ("aaaab", "abaaa"),
        ("aaaabbbb", "abababab"),
        ("aaabbc", "abcaba"),
        ("abcabc", "abcabc"),
    ],
)
def test_tenants_take_turns(arrivals: str, order: str) -> None:
    assert order_of_turns(queue(*arrivals)) == order


def test_one_request_comes_before_what_is_left_of_a_thousand() -> None:
    found = queue(*"a" * 1000)
    turn(found)
    found.push(Item("b", 1000))
    assert turn(found).tenant == "b"
    assert len(found) == 999


def test_turns_are_counted_in_tokens() -> None:
    found: FairQueue[Item] = FairQueue(lambda item: item.tenant)
    for number in range(4):
        found.push(Item("dear", number, cost=300))
    for number in range(12):
        found.push(Item("cheap", number, cost=100))
    assert order_of_turns(found).replace("dear", "D").replace("cheap", "c") == "Dccc" * 4


def test_charges_for_running_items_count() -> None:
    found = queue(*"abab")
    assert turn(found).tenant == "a"
    found.charge("a", 1)
    assert (turn(found).tenant, turn(found).tenant, turn(found).tenant) == ("b", "b", "a")


def test_a_tenant_that_was_away_gets_nothing_back() -> None:
    found = queue(*"aaaaaaaa")
    for _ in range(5):
        turn(found)
    for number in range(8, 12):
        found.push(Item("b", number))
    assert order_of_turns(found) == "bababab"


def test_an_empty_queue_forgets_earlier_charges() -> None:
    found = queue("a")
    turn(found)
    found.charge("a", 1000)
    assert turns_of(found, "aabb") == "abab"


def turns_of(found: FairQueue[Item], arrivals: str) -> str:
    for number, tenant in enumerate(arrivals):
        found.push(Item(tenant, 100 + number))
    return order_of_turns(found)


def test_items_that_are_put_back_come_first() -> None:
    found = queue(*"aab")
    first, second = turn(found), turn(found)
    found.put_back(second)
    found.put_back(first)
    assert [turn(found), turn(found)] == [first, second]
    assert order_of_turns(found) == "a"


def test_other_tenants_come_before_a_second_item_that_is_passed_over() -> None:
    found = queue(*"aaab")
    passed: list[Item] = []
    while (item := found.next(passed)) is not None:
        passed.append(item)
    assert [item.number for item in passed] == [0, 3, 1, 2]
    assert len(found) == 4


def test_the_number_of_remembered_idle_tenants_is_bounded() -> None:
    found = queue("stays")
    for number in range(3 * MOST_IDLE):
        found.charge(f"t{number}", number)
    check_queue(found)


Move = tuple[str, int]
"""A tenant with the cost of its new item, or with 0 for a turn or another change."""
MOVES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, MAX_COST)), min_size=20, max_size=200
)


@settings(max_examples=many(200, 4))
@given(MOVES, st.randoms(use_true_random=False))
def test_no_item_is_lost_and_each_tenant_has_its_order(moves: list[Move], rng: object) -> None:
    choose = rng.choice  # type: ignore[attr-defined]
    found: FairQueue[Item] = FairQueue(lambda item: item.tenant)
    waiting: dict[str, list[Item]] = defaultdict(list)
    running: list[Item] = []
    pushed: set[Item] = set()
    gone: list[Item] = []
    for number, (tenant, cost) in enumerate(moves):
        everything = [item for line in waiting.values() for item in line]
        if cost:
            item = Item(tenant, number, cost)
            found.push(item)
            pushed.add(item)
            waiting[tenant].append(item)
        elif tenant == "d" and everything:
            item = choose(everything)
            found.remove(item)
            waiting[item.tenant].remove(item)
            gone.append(item)
        elif tenant == "c" and running:
            item = running.pop()
            found.put_back(item)
            assert found.next() is item
            found.take(item)
            running.append(item)
        elif everything:
            item = turn(found)
            assert item is waiting[item.tenant].pop(0), "not first come, first served"
            running.append(item)
        check_queue(found)
        left = {item for line in waiting.values() for item in line}
        assert set(items_of(found)) == left
        assert pushed == left | set(running) | set(gone)
        assert len(pushed) == len(found) + len(running) + len(gone)


@settings(max_examples=many(200, 4))
@given(MOVES)
def test_tenants_that_wait_all_the_time_are_served_the_same_up_to_two_requests(
    moves: list[Move],
) -> None:
    found: FairQueue[Item] = FairQueue(lambda item: item.tenant)
    waiting: dict[str, int] = defaultdict(int)
    served: dict[str, int] = defaultdict(int)
    since: dict[tuple[str, str], int] = {}
    for number, (tenant, cost) in enumerate(moves):
        if cost:
            found.push(Item(tenant, number, cost))
            waiting[tenant] += 1
        elif len(found):
            item = turn(found)
            waiting[item.tenant] -= 1
            served[item.tenant] += item.cost
        for one in "abcd":
            for other in "abcd":
                ahead = served[one] - served[other]
                if waiting[one] and waiting[other]:
                    gained = ahead - since.setdefault((one, other), ahead)
                    assert abs(gained) <= 2 * MAX_COST
                else:
                    since.pop((one, other), None)


@settings(max_examples=many(200, 4))
@given(MOVES)
def test_who_comes_to_the_queue_waits_for_one_turn_of_each_other_at_most(moves: list[Move]) -> None:
    found: FairQueue[Item] = FairQueue(lambda item: item.tenant)
    for number, (tenant, cost) in enumerate(moves):
        if cost:
            found.push(Item(tenant, number, cost))
        elif len(found):
            turn(found)
    newcomer = Item("new", len(moves))
    found.push(newcomer)
    before = []
    while (item := turn(found)) is not newcomer:
        before.append(item.tenant)
    assert len(before) == len(set(before))
