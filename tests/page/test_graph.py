"""The graph on the page: outlines, search, camera, and highlights of a walk."""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.explain.drawing import Box, Drawing, Placed, Route, State, Way
from app.explain.graph import ChoiceKind, Edge, Graph, GraphNode
from app.explain.picture import picture_of, with_elements
from tests.page.toolchain import need_packages, node

MARKUP = '<b onload="x">&amp;\\ \x00"'


def way(
    source: int, target: int | None, kind: ChoiceKind, choice: str, leap: str, pointer: str | None
) -> Way:
    return Way(Edge(source, target, kind, choice, 1, leap.encode(), 0, pointer), choice, leap)


def box(x: float, y: float, source: int, target: int | None, *ways: int, more: int = 0) -> Box:
    height = 19.0 * (len(ways) + bool(more)) + 8
    return Box(Placed(x, y), 340.0, height, source, target, ways, more)


def route(number: int, *points: tuple[float, float], into: bool, back: bool = False) -> Route:
    return Route(number, into, [Placed(*each) for each in points], back)


WAYS = [
    way(0, 1, "start", "", '{"a":·"', None),
    way(1, 2, "text", MARKUP, '",·"b":·1', "/properties/a"),
    way(1, 1, "class", "[a-f]", "", None),
    way(1, 1, "byte", "x", "yz", None),
    way(2, None, "fold", "object", "", "/properties/last"),
    way(1, 1, "byte", "q", "", None),
]
NODES = [
    GraphNode(accepting=False),
    GraphNode(accepting=False, repeats="any number of times"),
    GraphNode(accepting=True, pointer="/properties/last"),
]
DRAWING = Drawing(
    Graph(NODES, whole=False),
    WAYS,
    [
        State(Placed(100, 13), "start"),
        State(Placed(100, 150), "any number of times"),
        State(Placed(100, 300), "end"),
    ],
    [
        box(100, 80, 0, 1, 0),
        box(60, 225, 1, 2, 1),
        box(300, 225, 1, 1, 2, 3, more=1),
        box(100, 400, 2, None, 4),
    ],
    [
        route(0, (100, 26), (100, 59), into=True),
        route(0, (100, 94), (100, 130), into=False),
        route(1, (100, 163), (60, 204), into=True),
        route(1, (60, 239), (100, 280), into=False),
        route(2, (100, 163), (300, 185), into=True),
        route(2, (300, 190), (100, 170), into=False, back=True),
        route(3, (100, 313), (100, 379), into=True),
    ],
    400.0,
    500.0,
)
GRAPH = with_elements(picture_of(DRAWING), DRAWING)


def called(*calls: tuple[Any, ...]) -> list[Any]:
    """The results of calls to functions of the page, through graph.mjs."""
    need_packages()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.json"
        path.write_text(json.dumps(calls))
        given: list[Any] = json.loads(node(Path(__file__).parent / "graph.mjs", path, folder))
    return given


def numbers(element: Any) -> tuple[list[float], list[float]]:
    """Horizontal and vertical coordinates of an element and its children, except texts."""
    tag, told, inside = element
    across: list[float] = []
    down: list[float] = []
    for each in inside if isinstance(inside, list) else ():
        for all_of_them, found in zip((across, down), numbers(each), strict=True):
            all_of_them += found
    if tag == "rect":
        across += [told["x"], told["x"] + told["width"]]
        down += [told["y"], told["y"] + told["height"]]
    if tag == "circle":
        across += [told["cx"] - told["r"], told["cx"] + told["r"]]
        down += [told["cy"] - told["r"], told["cy"] + told["r"]]
    if tag == "path" and told["class"] == "line":
        places = [float(each) for each in re.findall(r"-?[\d.]+", told["d"])]
        across += places[::2]
        down += places[1::2]
    return across, down


def test_every_part_stays_inside_its_bounding_rectangle() -> None:
    [layers] = called(("layersOf", GRAPH))
    assert [len(items) for items in layers] == [
        len(GRAPH[name]) for name in ("routes", "boxes", "states")
    ]
    for item in (each for items in layers for each in items):
        across, down = numbers(item["svg"])
        assert item["left"] <= min(across) < max(across) <= item["right"] or len({*across}) == 1
        assert item["top"] <= min(down) < max(down) <= item["bottom"]


def test_an_outline_has_a_rectangle_for_each_box_and_each_run_of_a_line() -> None:
    [paths] = called(("outlinesOf", GRAPH))
    parts = {name: path.count("M") for name, path in paths.items()}
    assert parts == {
        **{"line": 7, "frame": 4, "rim": 3},
        **{"run leap": 3, "run text": 1, "run class": 1, "run byte": 1, "run fold": 1},
    }


def test_a_search_finds_ways_and_states_by_what_is_written_there() -> None:
    expected = {
        '"B": 1': ["w1"],  # a typed space matches a drawn one; case is ignored
        "xy": ["w3"],  # across a choice and its leap
        "q": ["w5"],  # also a way that the picture does not list
        "last": ["s2", "w4"],  # a pointer
        "/properties/": ["w1", "s2", "w4"],  # in order from the top
        "start": ["s0"],
        "  ": [],
        "nowhere": [],
    }
    found = called(*(("search", GRAPH, wanted) for wanted in expected))
    assert dict(zip(expected, found, strict=True)) == expected


def test_each_way_has_the_place_of_its_line() -> None:
    ids = ["w2", "w3", "w5", "s1", "w9"]
    tops = [225 - (19 * 3 + 8) / 2 + 4 + 19 * (line + 0.5) for line in range(3)]
    places = called(*(("place", GRAPH, each) for each in ids))
    assert [place and (place["x"], place["y"]) for place in places] == [
        *((300, top) for top in tops),
        (100, 150),
        None,
    ]


WINDOW = {"width": 600.0, "height": 400.0}
IN_PLACE = {"x": 0, "y": 0, "scale": 1}
MARGIN = 16
READABLE = 0.8


def windows(count: int) -> list[tuple[Any, Any, Any]]:
    """Cameras, drawings and windows of all sizes."""
    draw = random.Random(5)
    return [
        (
            {
                "x": draw.uniform(-9e3, 9e3),
                "y": draw.uniform(-9e3, 9e3),
                "scale": 2 ** draw.uniform(-5, 2),
            },
            {"width": draw.uniform(20, 9000), "height": draw.uniform(20, 90_000)},
            {"width": draw.uniform(200, 1500), "height": draw.uniform(150, 900)},
        )
        for _ in range(count)
    ]


def seen(camera: Any, x: float, y: float) -> tuple[float, float]:
    return x * camera["scale"] + camera["x"], y * camera["scale"] + camera["y"]


def test_zooming_keeps_the_point_under_the_pointer() -> None:
    cases = windows(50)
    draw = random.Random(6)
    points = [(draw.uniform(0, 800), draw.uniform(0, 600)) for _ in cases]
    factors = [2 ** draw.uniform(-3, 3) for _ in cases]
    given = zip(cases, points, factors, strict=True)
    after = called(*(("zoomed", each[0], factor, *at) for each, at, factor in given))
    for (before, _, _), (x, y), now, factor in zip(cases, points, after, factors, strict=True):
        under = ((x - before["x"]) / before["scale"], (y - before["y"]) / before["scale"])
        assert seen(now, *under) == pytest.approx((x, y), abs=1e-6)
        assert 0.0005 <= now["scale"] <= 4
        if 0.0005 < now["scale"] < 4:
            assert now["scale"] == pytest.approx(before["scale"] * factor)


def test_all_of_a_drawing_fits_into_the_window_and_is_not_blown_up() -> None:
    cases = windows(50)
    fits = called(*(("fit", drawing, window) for _, drawing, window in cases))
    for camera, (_, drawing, window) in zip(fits, cases, strict=True):
        left, top = seen(camera, 0, 0)
        right, bottom = seen(camera, drawing["width"], drawing["height"])
        assert camera["scale"] <= 1
        if camera["scale"] > 0.0005:
            assert min(left, top) >= MARGIN - 1e-6
            assert right <= window["width"] - MARGIN + 1e-6
            assert bottom <= window["height"] - MARGIN + 1e-6


def test_a_place_is_shown_in_the_window_and_large_enough_to_be_read() -> None:
    cases = windows(50)
    shown = called(
        *(("showing", at, d, w, d["width"] / 3, d["height"] / 2) for at, d, w in cases),
        ("showing", IN_PLACE, WINDOW, WINDOW, 300, 200),
    )
    for camera, (_, drawing, window) in zip(shown, cases, strict=False):
        x, y = seen(camera, drawing["width"] / 3, drawing["height"] / 2)
        assert 0 < x < window["width"]
        assert 0 < y < window["height"]
        assert camera["scale"] >= READABLE
    assert shown[-1] == IN_PLACE  # it was already in view


def test_the_first_look_is_at_the_start_and_can_be_read() -> None:
    cases = [(drawing, window) for _, drawing, window in windows(50)]
    looks = called(*(("opening", d, w, {"x": d["width"] / 2, "y": 13}) for d, w in cases))
    for camera, (drawing, window) in zip(looks, cases, strict=True):
        x, y = seen(camera, drawing["width"] / 2, 13)
        assert 0 < x < window["width"]
        assert 0 < y < window["height"]
        assert camera["scale"] >= READABLE


def test_a_drawing_cannot_be_lost_from_the_window() -> None:
    cases = windows(50)
    kept = called(*(("kept", *case) for case in cases))
    for camera, (before, drawing, window) in zip(kept, cases, strict=True):
        left, top = seen(camera, 0, 0)
        right, bottom = seen(camera, drawing["width"], drawing["height"])
        assert camera["scale"] == before["scale"]
        assert right >= 40
        assert bottom >= 40
        assert left <= window["width"] - 40
        assert top <= window["height"] - 40


def test_a_walk_counts_its_ways_and_says_only_what_changed_since_the_last_one() -> None:
    taken = ["w0", "w2", "w3", "w3", "w2", "w1"]

    def walk(kept: int, count: int) -> dict[str, Any]:
        steps = [
            {"way": way, "start": 5 * at, "leap": None if at % 2 else 5 * at + 2, "end": 5 * at + 5}
            for at, way in enumerate(taken[:count])
        ]
        last = {"at": "s2" if count == len(taken) else "s1", "complete": count == len(taken)}
        return {"steps": steps[kept:], "kept": kept, "accepted": 5 * count} | last

    told = called(("walks", GRAPH, [walk(0, 1), walk(1, 4), walk(3, 6), walk(0, 1)], 30))[0]
    sources = {"w0": "s0", "w1": "s1", "w2": "s1", "w3": "s1"}
    for passed, count in zip(told, [1, 4, 6, 1], strict=True):
        ways = taken[:count]
        assert passed["visits"] == Counter(ways) + Counter(sources[each] for each in ways)
        assert passed["fresh"] == list(dict.fromkeys(reversed(ways[-3:])))
        assert passed["walked"] == 5 * count
        assert passed["leapt"] == 3 * len(ways[::2])
        assert passed["left"] == (5 * count if count < 6 else None)
        assert passed["complete"] == (count == 6)
    assert set(told[0]["changed"]) == {"s0", "w0", "s1"}
    assert set(told[1]["changed"]) == {"w0", "w2", "w3", "s1"}
    assert set(told[2]["changed"]) == {"w1", "w2", "w3", "s1", "s2"}
    assert set(told[3]["changed"]) == {"w0", "w1", "w2", "w3", "s1", "s2"}


def test_a_step_on_a_way_that_is_not_drawn_is_left_out() -> None:
    step = {"way": "w77", "start": 0, "leap": 1, "end": 5}
    walk = {"steps": [step], "kept": 0, "at": "s1", "complete": False, "accepted": 5}
    [[passed]] = called(("walks", GRAPH, [walk], 5))
    assert (passed["visits"], passed["leapt"], passed["at"]) == ({}, 0, "s1")


def test_a_place_that_the_server_names_is_found_in_the_text_field() -> None:
    expected: list[tuple[str, dict[str, Any], int]] = [
        ("abc", {"position": 2}, 2),
        ("\U0001f600bc", {"position": 1}, 2),
        ("start: x\n  y \U0001f600 z", {"line": 2, "column": 7}, 16),
        ("start: x\ny", {"line": 2, "column": None}, 9),
        ("a", {"line": 9, "column": 9}, 1),
        ("a", {}, 0),
    ]
    found = called(*(("offsetOf", text, place) for text, place, _ in expected))
    assert found == [offset for *_, offset in expected]


def test_a_fold_is_kept_open_only_where_its_pointer_leads_somewhere() -> None:
    pointers = ["", "/a~1b/0/~0", "/a~1b/1", "/a~1b/0/~0/x", "/toString"]
    found = called(*(("resolves", {"a/b": [{"~": 1}]}, pointer) for pointer in pointers))
    assert found == [True, True, False, False, False]
