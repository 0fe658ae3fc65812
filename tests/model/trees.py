"""Random trees, and the paths in them."""

from __future__ import annotations

import random
from collections.abc import Sequence


def random_tree(dice: random.Random, size: int) -> list[int]:
    """Parents of the tokens of a tree: deep or wide, with one root (-1) or several."""
    reach = dice.choice([1, 2, 5, size])
    return [dice.randint(max(-1, index - reach), index - 1) for index in range(size)]


def way(parents: Sequence[int], index: int) -> list[int]:
    """The path from a root to a token, by index; the token itself is the last."""
    found = [index]
    while (index := parents[index]) >= 0:
        found.insert(0, index)
    return found
