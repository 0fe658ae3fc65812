from __future__ import annotations

import asyncio

import pytest

from app.core.errors import Draining, QueueFull
from app.serving.admission import Admission


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_answers_are_admitted_up_to_the_capacity() -> None:
    admission = Admission(3, clock=Clock())
    first = admission.admit(2)
    admission.admit(1)
    with pytest.raises(QueueFull, match="3 answers are queued or running and the limit is 3"):
        admission.admit(1)
    first.release()
    admission.admit(2)


def test_a_ticket_gives_its_room_back_once() -> None:
    admission = Admission(3, clock=Clock())
    ticket = admission.admit(2)
    admission.admit(1)
    ticket.release()
    ticket.release()
    assert admission.live == 1


def retry_after(admission: Admission, size: int) -> int:
    with pytest.raises(QueueFull) as caught:
        admission.admit(size)
    return caught.value.retry_after


def test_the_retry_time_follows_the_recent_drain_rate() -> None:
    clock = Clock()
    admission = Admission(10, clock=clock)
    tickets = [admission.admit(1) for _ in range(10)]
    for ticket in tickets[:5]:
        ticket.release()
        clock.now += 2
    # Five left in ten seconds: one each two seconds.
    assert retry_after(admission, 6) == 2
    assert retry_after(admission, 9) == 8


def test_the_retry_time_is_between_1_and_120_seconds() -> None:
    clock = Clock()
    admission = Admission(1000, clock=clock)
    tickets = [admission.admit(1) for _ in range(1000)]
    assert retry_after(admission, 1) == 30
    tickets[0].release()
    assert retry_after(admission, 2) == 1
    clock.now = 29
    assert retry_after(admission, 900) == 120


async def test_draining_refuses_new_requests_and_waits_for_the_rest() -> None:
    admission = Admission(3, clock=Clock())
    ticket = admission.admit(1)
    admission.drain()
    with pytest.raises(Draining):
        admission.admit(1)
    waiting = asyncio.create_task(admission.wait_idle())
    await asyncio.sleep(0)
    assert not waiting.done()
    ticket.release()
    await waiting
