"""Steps as tests write them: spans, and apart from them the rows that are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.core.step import Span


def planned(spans: Sequence[Span], rows: Sequence[tuple[int, int]]) -> list[Span]:
    """``spans`` with ``rows``: a span's number and an index into its tokens, by span."""
    assert [number for number, _ in rows] == sorted([number for number, _ in rows])
    return [
        replace(span, rows=[at for number, at in rows if number == index])
        for index, span in enumerate(spans)
    ]
