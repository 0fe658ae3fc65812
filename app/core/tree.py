"""Spans that are trees: several continuations of a sequence, computed in one pass.

    index     0    1    2    3    4        parents  -1  0  1  0  -1
    depth     0    1    2    1    0
    sees      0    01   012  03   4        and all that is computed before the span

The attention mask has one integer per token, its *ancestors*: bit j is set if it sees token j of
the span, itself included.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_TOKENS = 64
"""Number of bits in an integer of ancestors."""


def ancestors(parents: Sequence[int]) -> list[int]:
    """For each token, the bits of the tokens that it attends to: its ancestors and itself."""
    assert len(parents) <= MOST_TOKENS, "a tree has too many tokens"
    seen: list[int] = []
    for index, parent in enumerate(parents):
        assert -1 <= parent < index, "a parent comes after its child"
        seen.append((1 << index) | (seen[parent] if parent >= 0 else 0))
    return seen
