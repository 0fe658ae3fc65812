from __future__ import annotations

from typing import Any

import numba
import pytest

from app.core.kernels import reporting_compilations
from app.core.progress import SILENCE, reporting
from tests.progress import Recorded
from tools.progress import reporting_share

jit: Any = numba.njit


def test_items_are_counted_when_they_are_done_with() -> None:
    progress = Recorded()
    seen = [
        (item, [*progress.stages[0].reached])
        for item in reporting(progress, "asking", "abc", unit="letters")
    ]
    assert seen == [("a", []), ("b", [1]), ("c", [1, 2])]
    stage = progress.named("asking")
    assert (stage.of, stage.unit, stage.ended) == (3, "letters", True)


def test_a_share_is_told_in_percent_until_all_is_done() -> None:
    progress = Recorded()
    assert list(reporting_share(progress, "training", lambda step: step / 4)) == [
        0,
        0.25,
        0.5,
        0.75,
    ]
    stage = progress.named("training")
    assert (stage.reached, stage.of, stage.ended) == ([0, 25, 50, 75], 100, True)


def test_work_that_fails_does_not_count_as_done() -> None:
    progress = Recorded()
    with pytest.raises(ValueError, match="no"), progress.stage("asking"):
        raise ValueError("no")
    assert not progress.named("asking").ended
    with SILENCE.stage("asking", 3) as stage:
        stage.reach(1, 4, now="nothing happens")


def test_functions_that_are_compiled_are_counted_once_each_and_those_that_are_there_are_not() -> (
    None
):
    def doubled(number: Any) -> Any:
        return number * 2

    def quadrupled(number: Any) -> Any:
        return twice(twice(number))

    twice, four_times = jit(doubled), jit(quadrupled)

    progress = Recorded()
    with reporting_compilations(progress):
        assert not progress.stages
        assert four_times(1.0) == 4.0
        assert twice(2.0) == 4.0  # was compiled together with the other function
    stage = progress.named("compiling for this processor")
    assert stage.reached == [1, 2]
    assert stage.names == ["quadrupled", "doubled"]
    assert stage.ended
    with reporting_compilations(quiet := Recorded()):
        assert four_times(2.0) == 8.0
    assert not quiet.stages
    four_times(1)  # compiled for integers, without a listener
    assert stage.reached == [1, 2]
