"""Trees at random, and the ways in them."""

from __future__ import annotations

import random
from collections.abc import Sequence


def random_tree(dice: random.Random, size: int) -> list[int]:
    """Ways of any form: long ones, wide ones, several from the beginning."""
    reach = dice.choice([1, 2, 5, size])
    return [dice.randint(max(-1, index - reach), index - 1) for index in range(size)]


def way(parents: Sequence[int], index: int) -> list[int]:
    """The tokens that one sees in its tree, itself the last."""
    found = [index]
    while (index := parents[index]) >= 0:
        found.insert(0, index)
    return found
