"""Stop strings, compared to a search byte by byte."""

from __future__ import annotations

import random

from app.engine.stop_tokens import StopFinder


def read(stops: tuple[bytes, ...], pieces: list[bytes]) -> tuple[int | None, list[int]]:
    finder = StopFinder(stops)
    held: list[int] = []
    for piece in pieces:
        cut = finder.feed(piece)
        if cut is not None:
            return cut, held
        held.append(finder.held_back)
    return None, held


def test_a_stop_string_across_pieces_is_found() -> None:
    assert read((b"END",), [b"text E", b"N", b"D more"])[0] == 5


def test_what_could_begin_a_stop_string_is_held_back_until_it_cannot() -> None:
    assert read((b"abac",), [b"xa", b"b", b"a", b"b", b"x"])[1] == [1, 2, 3, 2, 0]


def test_the_first_to_end_wins_over_the_first_to_begin() -> None:
    assert read((b"abcd", b"c"), [b"abcd"])[0] == 2


def test_the_longest_of_those_that_end_together_wins() -> None:
    assert read((b"c", b"abc"), [b"xabc"])[0] == 1


def test_the_cut_does_not_depend_on_how_the_text_was_split() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        stops = tuple(
            bytes(rng.choices(b"ab", k=rng.randint(1, 4))) for _ in range(rng.randint(1, 3))
        )
        text = bytes(rng.choices(b"abc", k=rng.randint(0, 12)))
        pieces: list[bytes] = []
        rest = text
        while rest:
            size = rng.randint(1, 5)
            pieces.append(rest[:size])
            rest = rest[size:]
        one_by_one = read(stops, [bytes([byte]) for byte in text])
        whole = read(stops, pieces)
        assert whole[0] == one_by_one[0]
        if whole[0] is None and pieces:
            assert whole[1][-1] == one_by_one[1][-1]
        elif whole[0] is not None:
            told = sum(map(len, pieces[: len(whole[1])])) - (whole[1][-1] if whole[1] else 0)
            assert told <= whole[0], "part of the stop string was emitted"
