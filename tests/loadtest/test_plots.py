"""Drawings keep what they draw within their frame."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loadtest.plots import HEIGHT, WIDTH, Axis, cumulative, legend, lines

POINTS = st.lists(st.tuples(st.floats(0.01, 1e5), st.floats(0, 1e5)), min_size=1, max_size=20)
NAMES = st.text('<&"ab', min_size=1, max_size=4)


def positions(drawing: str) -> list[tuple[float, float]]:
    found = []
    for element in ElementTree.fromstring(drawing).iter():
        if element.tag == "circle":
            found.append((float(element.attrib["cx"]), float(element.attrib["cy"])))
        for pair in element.attrib.get("points", "").split():
            x, y = pair.split(",")
            found.append((float(x), float(y)))
    return found


@given(st.dictionaries(NAMES, POINTS, min_size=1, max_size=10))
@example({"next to nothing": [(1.0, 5e-324)]})
def test_lines_stay_within_the_frame(series: dict[str, list[tuple[float, float]]]) -> None:
    found = positions(lines(series, "x", "<y>"))
    assert len(found) == 2 * sum(map(len, series.values()))
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in found)


@given(st.dictionaries(NAMES, st.lists(st.floats(0, 1e4), max_size=400), min_size=1, max_size=4))
def test_distributions_rise_from_the_left_to_all_of_their_values(
    series: dict[str, list[float]],
) -> None:
    drawing = cumulative(series, "seconds")
    if not drawing:
        assert not any(value >= 1e-6 for values in series.values() for value in values)
        return
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in positions(drawing))
    for line, values in zip(re.findall(r'points="([^"]*)"', drawing), series.values(), strict=True):
        pairs = [tuple(map(float, pair.split(","))) for pair in line.split()]
        assert pairs == sorted(pairs, key=lambda pair: (pair[0], -pair[1]))
        assert bool(pairs) == bool(values)


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0, 10, 0, 100), [0, 2, 4, 6, 8, 10]),
        (Axis(0, 0.33, 0, 100), [0, 0.1, 0.2, 0.3]),
        (Axis(0.5, 2000, 0, 100, logarithmic=True), [1, 10, 100, 1000]),
        (Axis(0.3, 6, 0, 100, logarithmic=True), [0.5, 1, 2, 5]),
    ],
)
def test_ticks_are_round_and_within_the_axis(axis: Axis, ticks: list[float]) -> None:
    assert axis.ticks() == pytest.approx(ticks)


def test_names_are_text_and_no_markup() -> None:
    assert "<b>" not in legend(["<b>"]) + lines({"<b>": [(1, 1)]}, "x", "y")
