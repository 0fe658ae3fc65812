"""Plans of steps for tests, with the wanted rows of logits listed apart from the spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.core.step import Span


def planned(spans: Sequence[Span], rows: Sequence[tuple[int, int]]) -> list[Span]:
    """``spans`` with ``rows``: pairs of span number and token index, ordered by span."""
    assert [number for number, _ in rows] == sorted([number for number, _ in rows])
    return [
        replace(span, rows=[at for number, at in rows if number == index])
        for index, span in enumerate(spans)
    ]
