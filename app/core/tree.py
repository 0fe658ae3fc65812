"""Spans that are trees: several ways on from one place of a sequence, computed in one pass.

    index     0    1    2    3    4        parents  -1  0  1  0  -1
    depth     0    1    2    1    0
    sees      0    01   012  03   4        and all that is computed before the span

The attention mask has one integer per token, its *ancestors*: bit j is set if it sees token j of
the span, itself included.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_TOKENS = 64
"""As many as an integer of ancestors has bits."""


def ancestors(parents: Sequence[int]) -> list[int]:
    """By token, the bits of those that it sees: as many as its depth, and one for itself."""
    assert len(parents) <= MOST_TOKENS, "a tree has too many tokens"
    seen: list[int] = []
    for index, parent in enumerate(parents):
        assert -1 <= parent < index, "a parent comes after its child"
        seen.append((1 << index) | (seen[parent] if parent >= 0 else 0))
    return seen
