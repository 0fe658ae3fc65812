"""Packing a step into one array, and unpacking it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from app.core.step import Span
from app.model.inputs import StepArrays, lay_out
from app.model.parallel.message import pack, unpack
from tests.steps import planned

PLANS = {
    "a prompt and a decode": planned(
        spans=[
            Span([5, 6, 7], 2, [[4, 1], [3, 9]]),
            Span([8], 9, [[2, 7, 5], [1, 1, 1]], drawn_by=1, adapter=2, state=3, saves=[(1, 2)]),
        ],
        rows=[(0, 2), (1, 0)],
    ),
    "a tree": planned(
        spans=[
            Span([5, 6, 7], 2, [[4, 1], [3, 9]], tree=[-1, 0, 0]),
            Span([8], 9, [[2, 7, 5], [1, 1, 1]], drawn_by=1),
        ],
        rows=[(0, 2), (1, 0)],
    ),
    "a model without attention": planned(
        spans=[Span([1, 2], 0, [], saves=[(1, 4), (2, 5)]), Span([3], 8, [], state=1)],
        rows=[(0, 1)],
    ),
    "no rows": [Span([1] * 9, 0, [[0, 1, 2]])],
}


def plain(value: Any) -> Any:
    """``value`` with lists in place of arrays, so that two values can be compared."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.tolist())
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value


@pytest.mark.parametrize("name", PLANS)
def test_a_step_comes_out_as_it_went_in(name: str) -> None:
    step = lay_out(PLANS[name], 4)
    data = pack(step, 3).tobytes()
    found, drawn = unpack(np.frombuffer(data, dtype=np.int64))
    assert plain(found) == plain(step)
    assert drawn == 3


def test_every_field_of_a_step_is_sent_but_what_ranks_do_not_share() -> None:
    some = [
        unpack(pack(lay_out(PLANS[name], 4), 0))[0] for name in ("a prompt and a decode", "a tree")
    ]
    for field in fields(StepArrays):
        if field.name == "vision_input":  # with several ranks a model is served as text
            continue
        shown = [plain(getattr(found, field.name)) not in (None, []) for found in some]
        assert any(shown), f"{field.name} is empty in all examples"
