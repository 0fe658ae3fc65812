"""The least-recently-used cache, compared to a list."""

from __future__ import annotations

import random

import pytest

from app.core.lru import Lru


@pytest.mark.parametrize("most", [8, 3])
def test_what_was_used_last_is_kept_within_both_bounds(most: int) -> None:
    dice, lru = random.Random(1), Lru[int, bytes](10, len, most=most)
    used: list[tuple[int, bytes]] = []
    for _ in range(2000):
        key = dice.randrange(8)
        expected = dict(used).get(key)
        assert lru.get(key) == expected
        used = [each for each in used if each[0] != key]
        if expected is None or dice.random() < 0.2:
            expected = bytes(dice.choice([0, 2, 5, 11]))
            lru.keep(key, expected)
        if len(expected) <= 10:
            used.append((key, expected))
        while sum(len(value) for _, value in used) > 10 or len(used) > most:
            used.pop(0)
        assert lru.nbytes == sum(len(value) for _, value in used)
        assert len(lru) == len(used)


def test_a_value_larger_than_the_cache_evicts_nothing() -> None:
    lru = Lru[str, bytes](10, len)
    lru.keep("small", b"1234")
    lru.keep("large", bytes(11))
    assert lru.get("large") is None
    assert lru.get("small") == b"1234"
