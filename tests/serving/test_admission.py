from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import Draining, InvalidRequest, QueueFull
from app.core.request import ServiceTier
from app.serving.admission import Admission, Ticket


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def admitted(admission: Admission, size: int = 1, tenant: str = "") -> Ticket:
    """A ticket with places for ``size`` answers."""
    ticket = Ticket(admission, tenant, arrived=0.0)
    ticket.take(size)
    return ticket


def refusal(admission: Admission, size: int = 1, tenant: str = "") -> QueueFull:
    with pytest.raises(QueueFull) as caught:
        admitted(admission, size, tenant)
    return caught.value


def started(admission: Admission, tenant: str = "", tokens: int = 1) -> Ticket:
    """The ticket of one running answer."""
    ticket = admitted(admission, 1, tenant)
    ticket.claim(tokens, 3600)
    ticket.start()
    return ticket


def test_answers_are_admitted_up_to_the_capacity() -> None:
    admission = Admission(3, clock=Clock())
    first = admitted(admission, 2)
    admitted(admission, 1)
    error = refusal(admission)
    assert "3 answers are queued or running and the limit is 3" in str(error)
    assert error.code == "queue_full"
    first.leave()
    admitted(admission, 2)


def test_a_ticket_gives_its_room_back_once() -> None:
    admission = Admission(3, clock=Clock())
    ticket = admitted(admission, 2)
    admitted(admission, 1)
    ticket.leave()
    ticket.leave()
    assert admission.live == 1


def test_entering_takes_nothing() -> None:
    admission = Admission(1, clock=Clock())
    tickets = [admission.enter() for _ in range(100)]
    assert admission.live == 0
    tickets[0].take(1)
    with pytest.raises(QueueFull):
        tickets[1].take(1)
    flex = admission.enter()
    flex.take(1, ServiceTier.FLEX)
    with pytest.raises(QueueFull):
        admission.enter()
    for ticket in tickets:
        ticket.leave()
    admission.enter()


def test_a_request_that_never_queues_enters_a_full_and_a_draining_server() -> None:
    admission = Admission(1, clock=Clock())
    admitted(admission)
    admission.drain()
    with pytest.raises(Draining):
        admission.enter()
    ticket = admission.enter(queues=False)
    with ticket.reading():
        ticket.hold_body(10)
        assert admission.bodies.used == 10
    assert admission.bodies.used == 0


@pytest.mark.parametrize("steps", range(5))
def test_a_ticket_that_leaves_gives_back_whatever_it_holds(steps: int) -> None:
    admission = Admission(2, clock=Clock(), max_queue_tokens=50, max_body_bytes=50)
    ticket = admission.enter()
    with ticket.reading():
        moves: list[Callable[[], object]] = [
            lambda: ticket.hold_body(50),
            lambda: ticket.take(2),
            lambda: ticket.claim(50, 10),
            ticket.start,
        ]
        for move in moves[:steps]:
            move()
        ticket.leave()
        assert admission.live == admission.bodies.used == 0
        ticket.start()
    again = admission.enter()
    with again.reading():
        again.hold_body(50)
    again.take(2)
    again.claim(50, 10)


def test_every_refusal_is_told_once_with_its_code() -> None:
    told: list[str] = []
    admission = Admission(
        3, clock=Clock(), on_rejection=told.append, max_queue_tokens=10, max_body_bytes=5
    )
    ticket = admission.enter()
    with pytest.raises(QueueFull), ticket.reading():
        ticket.hold_body(6)
    ticket.take(1)
    ticket.claim(10, 10)
    other = admitted(admission, 2)
    with pytest.raises(QueueFull):
        other.claim(1, 10)
    with pytest.raises(QueueFull):
        admission.enter().admit(b"{}")
    admission.drain()
    with pytest.raises(Draining):
        admission.enter()
    assert told == ["bodies_full", "queue_tokens_full", "queue_full", "draining"]


async def test_the_deadline_counts_from_the_arrival() -> None:
    clock = Clock()
    ticket = Admission(1, clock=clock, request_seconds=60).enter()
    clock.now = 25.0
    assert ticket.deadline().left == pytest.approx(35, abs=1)
    assert ticket.deadline(30).left == pytest.approx(5, abs=1)
    assert ticket.deadline(20).left < 0
    with pytest.raises(InvalidRequest, match="the limit is 60 s"):
        ticket.deadline(61)


def test_a_tenant_alone_may_use_the_whole_capacity() -> None:
    for capacity in range(1, 70):
        admission = Admission(capacity, clock=Clock(), tenant_share=0.9)
        for _ in range(capacity):
            admitted(admission, 1, "a")
        assert refusal(admission, tenant="a").code == "queue_full"


def test_a_tenant_that_fills_the_queue_leaves_room_for_others() -> None:
    admission = Admission(320, clock=Clock(), tenant_share=0.9)
    for _ in range(320):
        admitted(admission, 1, "a")
    for number in range(20):
        admitted(admission, 1, f"b{number}")
    refusal(admission, tenant="a")


@pytest.mark.parametrize("capacity", range(1, 30))
def test_in_the_smallest_queue_too_there_is_room_for_another_tenant(capacity: int) -> None:
    admission = Admission(capacity, clock=Clock(), tenant_share=0.9)
    for _ in range(capacity):
        admitted(admission, 1, "a")
    refusal(admission, tenant="a")
    admitted(admission, 1, "b")


def test_many_tenants_that_ask_for_all_they_can_get_leave_room_for_one_more() -> None:
    admission = Admission(320, clock=Clock(), tenant_share=0.9)
    held: dict[str, int] = {}
    for turn in range(1000):
        tenant = f"t{turn % 25}"
        try:
            admitted(admission, 1, tenant)
            held[tenant] = held.get(tenant, 0) + 1
        except QueueFull:
            continue
    assert max(held.values()) - min(held.values()) <= 1
    assert min(held.values()) > 10
    admitted(admission, 1, "newcomer")


def test_without_a_share_the_room_is_for_whoever_comes_first() -> None:
    admission = Admission(10, clock=Clock(), tenant_share=1.0)
    for _ in range(10):
        admitted(admission, 1, "a")
    refusal(admission, tenant="b")


def test_tokens_that_wait_are_bounded_and_those_that_run_are_not() -> None:
    admission = Admission(100, clock=Clock(), max_queue_tokens=1000)
    first, second, third = (admitted(admission, 1) for _ in range(3))
    first.claim(600, 10)
    second.claim(400, 10)
    with pytest.raises(QueueFull, match=r"1000 tokens are waiting.*this request adds 1") as caught:
        third.claim(1, 10)
    assert caught.value.code == "queue_tokens_full"
    second.start()
    third.claim(400, 10)
    first.leave()
    admitted(admission, 1).claim(600, 10)


def test_a_request_of_any_length_is_taken_where_none_waits() -> None:
    admission = Admission(100, clock=Clock(), max_queue_tokens=10)
    ticket = admitted(admission, 1)
    ticket.claim(5000, 10)
    with pytest.raises(QueueFull):
        admitted(admission, 1).claim(1, 10)
    ticket.start()
    admitted(admission, 1).claim(5000, 10)


def test_of_several_choices_each_stops_waiting_by_itself() -> None:
    admission = Admission(100, clock=Clock(), max_queue_tokens=90)
    ticket = admitted(admission, 3)
    ticket.claim(90, 10)
    other = admitted(admission, 1)
    ticket.start()
    with pytest.raises(QueueFull):
        other.claim(31, 10)
    other.claim(30, 10)


def test_the_retry_time_follows_the_drain_rate() -> None:
    clock = Clock()
    admission = Admission(10, clock=clock)
    tickets = [started(admission) for _ in range(10)]
    for ticket in tickets[:5]:
        ticket.leave()
        clock.now += 2
    # Five tickets left in ten seconds: one per two seconds.
    assert refusal(admission, 6).retry_after == 2
    assert refusal(admission, 9).retry_after == 20  # in addition to the six


def test_the_retry_time_is_between_1_and_120_seconds() -> None:
    clock = Clock()
    admission = Admission(1000, clock=clock)
    tickets = [started(admission) for _ in range(1000)]
    assert refusal(admission, 1).retry_after == 30
    tickets[0].leave()
    assert refusal(admission, 2).retry_after == 1
    clock.now = 29
    assert refusal(admission, 900).retry_after == 120


def test_time_without_a_queue_does_not_count_for_the_drain_rate() -> None:
    clock = Clock()
    admission = Admission(12, clock=clock, running=2)
    for _ in range(100):  # an idle server: one answer in ten seconds, and no queue
        ticket = started(admission)
        clock.now += 10
        ticket.leave()
    tickets = [started(admission) for _ in range(12)]
    for ticket in tickets[:6]:
        clock.now += 0.5
        ticket.leave()
    assert refusal(admission, 10).retry_after == 2


def test_tickets_that_never_ran_do_not_count_for_the_drain_rate() -> None:
    clock = Clock()
    admission = Admission(10, clock=clock)
    tickets = [started(admission) for _ in range(9)]
    for _ in range(1000):  # its schema was refused, or its client left
        admitted(admission, 1).leave()
        clock.now += 0.01
    tickets[0].leave()
    assert refusal(admission, 8).retry_after > 50


def test_a_refused_burst_gets_rising_retry_times() -> None:
    clock = Clock()
    admission = Admission(100, clock=clock)
    tickets = [started(admission) for _ in range(100)]
    for ticket in tickets[:50]:  # ten per second
        ticket.leave()
        clock.now += 0.1
    for _ in range(50):
        started(admission)
    told = [refusal(admission).retry_after for _ in range(100)]
    assert told == sorted(told)
    assert told[0] == 1
    assert 9 <= told[-1] <= 11
    clock.now += 20
    assert refusal(admission).retry_after <= 1


def test_a_request_that_would_start_too_late_is_refused_at_once() -> None:
    clock = Clock()
    admission = Admission(100, clock=clock, running=10)
    running = [started(admission, tokens=100) for _ in range(10)]
    for _ in range(40):
        admitted(admission, 1).claim(100, 3600)
    for _ in range(10):  # one per second
        clock.now += 1
        running.pop(0).leave()
        running.append(started(admission, tokens=100))
    with pytest.raises(
        QueueFull, match="in about 40 s, and the request's timeout leaves 30 s"
    ) as caught:
        admitted(admission, 1).claim(100, 30)
    assert (caught.value.code, caught.value.retry_after) == ("wait_too_long", 10)
    admitted(admission, 1).claim(100, 50)


def test_a_tenant_that_has_little_waiting_is_expected_to_start_soon() -> None:
    clock = Clock()
    admission = Admission(100, clock=clock, running=10)
    running = [started(admission, "a", tokens=100) for _ in range(10)]
    for _ in range(40):
        admitted(admission, 1, "a").claim(100, 3600)
    for _ in range(10):
        clock.now += 1
        running.pop(0).leave()
        running.append(started(admission, "a", tokens=100))
    admitted(admission, 1, "b").claim(100, 5)


def test_an_unknown_wait_refuses_no_request() -> None:
    clock = Clock()
    admission = Admission(100, clock=clock, running=1)
    for _ in range(50):
        admitted(admission, 1).claim(100, 0.001)


MOVES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5), st.integers(0, 3)))


@settings(max_examples=100)
@given(MOVES, st.sampled_from([0.5, 0.9, 1.0]))
def test_when_all_is_released_nothing_is_held(
    moves: list[tuple[str, int, int]], share: float
) -> None:
    admission = Admission(20, clock=Clock(), running=4, max_queue_tokens=200, tenant_share=share)
    tickets: list[Ticket] = []
    for tenant, size, action in moves:
        if action == 0 and tickets:
            tickets.pop(size % len(tickets)).leave()
        elif action == 1 and tickets:
            tickets[size % len(tickets)].start()
        else:
            try:
                ticket = admitted(admission, size, tenant)
            except QueueFull:
                continue
            tickets.append(ticket)
            try:
                ticket.claim(20 * size, 10)
            except QueueFull:
                tickets.remove(ticket)
                ticket.leave()
        assert admission.live == sum(ticket.answers for ticket in tickets) <= 20 / share + 2
    for ticket in tickets:
        ticket.leave()
    assert admission.live == 0
    whole = admitted(admission, 20, "d")
    whole.claim(200, 10)


@pytest.mark.parametrize("overload", [1.5, 3.0])
def test_under_overload_those_who_come_back_when_told_find_room(overload: float) -> None:
    """An engine runs 8 answers of 2 seconds on average, and a burst overloads it."""
    rng = random.Random(1)
    clock = Clock()
    admission = Admission(40, clock=clock, running=8)
    arrivals = [(number / (4 * overload), 0) for number in range(round(4 * overload * 15))]
    ends: list[tuple[float, int, Ticket]] = []
    waiting: list[Ticket] = []
    served = refused = 0
    while arrivals or ends:
        if ends and (not arrivals or ends[0][0] <= arrivals[0][0]):
            clock.now, _, ticket = heapq.heappop(ends)
            ticket.leave()
            served += 1
        else:
            clock.now, tries = heapq.heappop(arrivals)
            try:
                ticket = admitted(admission, 1)
                ticket.claim(100, 3600)
                waiting.append(ticket)
            except QueueFull as error:
                if tries == 2:  # the SDK gives up after two retries
                    refused += 1
                else:
                    heapq.heappush(arrivals, (clock.now + error.retry_after, tries + 1))
        while waiting and len(ends) < 8:
            ticket = waiting.pop(0)
            ticket.start()
            heapq.heappush(ends, (clock.now + rng.uniform(1, 3), id(ticket), ticket))
    assert served + refused == round(4 * overload * 15)
    assert refused <= served * 0.05, (served, refused)


async def test_draining_refuses_new_requests_and_waits_for_the_rest() -> None:
    admission = Admission(3, clock=Clock())
    ticket = admitted(admission, 1)
    admission.drain()
    with pytest.raises(Draining):
        admitted(admission, 1)
    waiting = asyncio.create_task(admission.wait_idle())
    await asyncio.sleep(0)
    assert not waiting.done()
    ticket.leave()
    await waiting


def test_flex_requests_and_batches_take_no_room_of_others() -> None:
    admission = Admission(2, clock=Clock(), max_queue_tokens=100)
    lines = [admission.enter("a", batch=True) for _ in range(2)]
    for line in lines:
        line.take(1)
        line.claim(50, 3600)
    limit = "2 answers are queued or running and the limit is 2"
    with pytest.raises(QueueFull, match=limit):
        admission.enter("a", batch=True)
    flex = admission.enter("a")
    with pytest.raises(QueueFull, match=limit):
        flex.take(1, ServiceTier.FLEX)
    requests = [admitted(admission, 1, "a") for _ in range(2)]
    requests[0].claim(100, 3600)
    assert admission.live == 4
    with pytest.raises(QueueFull):
        admission.enter("a")
    for ticket in (*lines, *requests):
        ticket.leave()
    assert admission.live == 0


@pytest.mark.parametrize(
    ("batch", "highest", "asked", "granted"),
    [
        (False, ServiceTier.DEFAULT, ServiceTier.PRIORITY, ServiceTier.DEFAULT),
        (False, ServiceTier.PRIORITY, ServiceTier.PRIORITY, ServiceTier.PRIORITY),
        (False, ServiceTier.PRIORITY, ServiceTier.DEFAULT, ServiceTier.DEFAULT),
        (False, ServiceTier.DEFAULT, ServiceTier.FLEX, ServiceTier.FLEX),
        (True, ServiceTier.PRIORITY, ServiceTier.PRIORITY, ServiceTier.BATCH),
    ],
)
def test_a_request_gets_at_most_its_highest_service_tier(
    batch: bool, highest: ServiceTier, asked: ServiceTier, granted: ServiceTier
) -> None:
    ticket = Admission(2, clock=Clock()).enter(batch=batch, highest=highest)
    ticket.take(1, asked)
    assert ticket.tier == granted
