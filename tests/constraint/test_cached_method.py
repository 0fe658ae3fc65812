"""Methods whose results are cached with their object."""

from __future__ import annotations

from app.constraint.cached_method import cached_method


class _Halves:
    def __init__(self) -> None:
        self.asked: list[int] = []

    @cached_method
    def half(self, number: int, *, up: bool = False) -> int | None:
        self.asked.append(number)
        if number % 2 and not up:
            return None
        return (number + 1) // 2


def test_each_object_is_asked_once_for_the_same_arguments() -> None:
    first, second = _Halves(), _Halves()
    assert [first.half(4), first.half(4), second.half(4)] == [2, 2, 2]
    assert (first.asked, second.asked) == ([4], [4])


def test_none_is_cached_and_keyword_arguments_are_part_of_the_key() -> None:
    halves = _Halves()
    assert [halves.half(5), halves.half(5), halves.half(5, up=True)] == [None, None, 3]
    assert halves.asked == [5, 5]
