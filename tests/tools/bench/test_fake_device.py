"""Times of the fake device, on a clock that moves only when a test or a sleep moves it."""

from __future__ import annotations

import numpy as np

from app.core.request import SamplingParams
from app.core.step import Draw, Span
from tests.steps import planned
from tools.bench.fake_device import FakeDevice, VirtualClock

PLAN = planned([Span((7,), 0, ((0,),))], [(0, 0)])
AHEAD = planned([Span((0,), 1, ((0,),), drawn_by=0)], [(0, 0)])


class _Clock(VirtualClock):
    """A clock that moves by ``sleep``, or when a test sets ``now``."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def leave_out(self, seconds: float) -> None:
        pass


def draw(key: int = 1, *allowed: int) -> Draw:
    mask = np.zeros(4, np.uint32)
    for token in allowed:
        mask[token >> 5] |= np.uint32(1 << (token & 31))
    return Draw(SamplingParams(), key, mask if allowed else None)


def test_steps_end_one_after_the_other_and_not_before_their_draws_are_asked_for() -> None:
    clock = _Clock()
    device = FakeDevice(100, 6.0, clock)
    device.launch(PLAN)
    first = device.sample([draw()])
    device.launch(AHEAD)
    clock.now = 2.0
    second = device.sample([draw()])
    first.wait()
    assert (clock.now, device.busy) == (6.0, 6.0)
    second.wait()
    assert (clock.now, device.busy) == (12.0, 12.0)
    clock.now = 15.0  # the device waits for Python
    device.launch(PLAN)
    clock.now = 30.0
    device.sample([draw()]).wait()
    assert (clock.now, device.busy) == (30.0, 18.0)


def test_draws_are_kept_to_their_masks_and_known_to_the_next_step() -> None:
    device = FakeDevice(100, 6.0, _Clock())
    for key in range(50):
        device.launch(PLAN)
        pending = device.sample([draw(key, 3, 64, 99)])
        assert pending.wait().tokens[0].token_id in (3, 64, 99)
    device.launch(PLAN)
    device.sample([draw(5, 42)]).wait()
    drawn = []
    for plan in (AHEAD, planned([Span((42,), 1, ((0,),))], [(0, 0)])):
        device.launch(plan)
        drawn.append(device.sample([draw(9)]).wait().tokens[0].token_id)
        device.launch(PLAN)
        device.sample([draw(5, 42)]).wait()
    assert drawn[0] == drawn[1]


def test_a_row_that_nobody_looks_at_is_not_drawn() -> None:
    device = FakeDevice(100, 6.0, _Clock())
    device.launch(PLAN)
    assert device.sample([None]).wait().tokens[0].token_id == -1


def test_sleep_moves_the_virtual_clock_and_leave_out_moves_it_back() -> None:
    clock = VirtualClock()
    before = clock()
    clock.sleep(0.01)
    assert clock() - before >= 0.0099
    clock.leave_out(5.0)
    assert clock() - before < 0.0
