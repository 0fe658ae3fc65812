"""A step laid out flat: every span's tokens one after the other, as the model sees them.

rows      0          n0               n0+n1            T
          | span 0   | span 1         | span 2 ...     |
position  s0 ..      s1 ..            s2 ..
slot      block_table[position // block_size] * block_size + position % block_size

In a span that is a tree (see ``step.ancestors``) slots are consecutive, as here, and a token's
position is the span's start plus its depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from app.core.images import Features
from app.core.step import Span, ancestors

Ints = NDArray[np.int64]
NO_INTS: Ints = np.empty(0, dtype=np.int64)


@dataclass(slots=True)  # not frozen: a step makes hundreds, which would take three times as long
class SpanLayout:
    """Location of one span in the batch and in the cache."""

    row: int
    """Row of its first token."""
    length: int
    """Tokens in it."""
    start: int
    """Position of its first token."""
    blocks: tuple[Ints, ...]
    """By cache group, blocks of positions 0 to ``end - 1``, in order."""

    @property
    def end(self) -> int:
        """Number of positions computed after this step; for a tree, the end of its keys."""
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class StateArrays:
    """Slots for reading and saving the recurrent states of a step's S spans; N saves in all."""

    rows: Ints
    """Shape [S + 1]: each span's first row, and the row after the last span."""
    reads: Ints
    """Shape [S]: slot of the states before each span."""
    save_starts: Ints
    """Shape [S + 1]: span s has the saves from ``save_starts[s]`` to ``save_starts[s + 1]``."""
    save_rows: Ints
    """Shape [N], ascending within a span: the row after the last token that the saved states
    include."""
    save_slots: Ints
    """Shape [N]: slot that the states are saved to."""


STATE_ARRAYS = tuple([field.name for field in fields(StateArrays)])


@dataclass(frozen=True, slots=True)
class ImageRows:
    """Consecutive rows of a step whose embeddings are features of an image."""

    features: Features | None
    first: int
    """Index of the first row's features within the image."""
    row: int
    length: int


@dataclass(frozen=True, slots=True)
class StepImages:
    """Image features in a step, and their effect on positions and attention."""

    rows: tuple[ImageRows, ...]
    positions: Ints | None
    """Positions of the tokens for the model, [T] or [axes, T]; None: those of ``StepArrays``."""
    ends: Ints | None = None
    """Shape [T]: end (exclusive) of the positions that a row attends to, if they include later ones
    than its own; else 0. Ends never decrease within a span. None: 0 for all rows."""
    windows_alone: bool = False
    """Whether ``ends`` apply to layers with a sliding window only."""


@dataclass(frozen=True, slots=True)
class StepArrays:
    """One ragged batch in host memory; T tokens, R rows that need logits."""

    token_ids: Ints
    """Shape [T]."""
    positions: Ints
    """Shape [T]."""
    slots: tuple[Ints, ...]
    """By cache group, shape [T]: where in the cache each token's key and value go."""
    logits_rows: Ints
    """Shape [R]: rows of T to compute logits for, in the order of the spans'."""
    spans: tuple[SpanLayout, ...]
    drawn_rows: Ints
    """Shape [T]: index of the previous step's draw that is this token; -1: it is known."""
    adapters: Ints | None = None
    """Shape [T]: the slot of each token's adapter, 0 for the base model; None: all are 0."""
    states: StateArrays | None = None
    """None: no span reads or saves a state."""
    ancestors: Ints | None = None
    """Shape [T]: bit j of a tree's token: it attends to token j of the span. None: no trees."""
    vision_input: StepImages | None = None
    """None: no span has images."""

    def ancestors_of(self, span: SpanLayout) -> Ints | None:
        """``ancestors`` of the tokens of ``span``; None if it is no tree."""
        if self.ancestors is None or not self.ancestors[span.row]:
            return None
        return self.ancestors[span.row : span.row + span.length]

    def ends(self, *, windowed: bool) -> Ints | None:
        """``StepImages.ends`` for layers with a window, or without."""
        vision_input = self.vision_input
        if vision_input is None or (vision_input.windows_alone and not windowed):
            return None
        return vision_input.ends

    @property
    def state_arrays(self) -> StateArrays:
        """``states``, or the arrays for spans that begin a sequence and save nothing."""
        if self.states is not None:
            return self.states
        none = np.zeros(len(self.spans) + 1, dtype=np.int64)
        rows = np.array([*(span.row for span in self.spans), len(self.token_ids)], dtype=np.int64)
        return StateArrays(rows, none[:-1], none, none[:0], none[:0])


def lay_out(spans: Sequence[Span], block_size: int) -> StepArrays:
    """Flatten a step. Costs about 2 us a span, and 20 ns a token and a block."""
    lengths = np.array([len(span.tokens) for span in spans], dtype=np.int64)
    starts = np.array([span.start for span in spans], dtype=np.int64)
    rows = np.cumsum(lengths) - lengths
    used = -((starts + lengths) // -block_size)
    table_ends = np.cumsum(used)
    table_starts = table_ends - used
    tables = [_tables(spans, group, used.tolist()) for group in range(len(spans[0].block_tables))]

    total = int(lengths.sum())
    positions = np.arange(total) + np.repeat(starts - rows, lengths)
    places = np.repeat(table_starts, lengths) + positions // block_size
    within = positions % block_size
    seen = _ancestors(spans, total, rows)
    if seen is not None:
        positions = np.where(seen, np.repeat(starts, lengths) + depths_of(seen), positions)
    first_rows = rows.tolist()
    drawn_rows = np.full(total, -1, dtype=np.int64)
    drawn_rows[rows] = [-1 if span.drawn_by is None else span.drawn_by for span in spans]
    adapters = [span.adapter for span in spans]
    parts = list(map(slice, table_starts.tolist(), table_ends.tolist()))
    blocks = zip(*[[table[part] for part in parts] for table in tables], strict=True)
    own_blocks = blocks if tables else [()] * len(spans)
    return StepArrays(
        token_ids=np.array([*chain.from_iterable([s.tokens for s in spans])], dtype=np.int64),
        positions=positions,
        slots=tuple([table[places] * block_size + within for table in tables]),
        logits_rows=np.array(
            [row + at for row, span in zip(first_rows, spans, strict=True) for at in span.rows],
            dtype=np.int64,
        ),
        spans=tuple(map(SpanLayout, first_rows, lengths.tolist(), starts.tolist(), own_blocks)),
        drawn_rows=drawn_rows,
        adapters=np.repeat(np.array(adapters), lengths) if any(adapters) else None,
        states=_states(spans, np.append(rows, total)),
        ancestors=seen,
        vision_input=_step_images(spans, first_rows, positions),
    )


def _step_images(spans: Sequence[Span], rows: Sequence[int], positions: Ints) -> StepImages | None:
    if not any(span.vision_input for span in spans):
        return None
    shifted, image_rows, ends = positions.copy(), list[ImageRows](), np.zeros_like(positions)
    windows_alone = False
    for span, row in zip(spans, rows, strict=True):
        vision_input, start, end = span.vision_input, span.start, span.start + len(span.tokens)
        if vision_input is None:
            continue
        shifted[..., row : row + len(span.tokens)] += vision_input.shift
        if vision_input.axes is not None:
            if shifted.ndim == 1:
                shifted = np.repeat(shifted[None], len(vision_input.axes), axis=0)
            shifted[:, row : row + vision_input.axes.shape[1]] = vision_input.axes
        for image in vision_input.images:
            windows_alone |= image.two_way == "windows"
            before = 0
            for place, length in image.places:
                low, high = max(start, place), min(end, place + length)
                if low < high:
                    first, at = before + low - place, row + low - start
                    image_rows.append(ImageRows(image.features, first, at, high - low))
                    if image.two_way is not None:
                        assert high == place + length, (
                            "a step ends in an image with two-way attention"
                        )
                        ends[at : at + high - low] = high
                before += length
    return StepImages(
        tuple(image_rows),
        shifted if shifted.ndim > 1 or not np.array_equal(shifted, positions) else None,
        ends if ends.any() else None,
        windows_alone,
    )


def depths_of(ancestors: Ints) -> Ints:
    """Depth of each token of a tree: the number of its ancestors."""
    return np.bitwise_count(ancestors.view(np.uint64)).astype(np.int64) - 1


def _ancestors(spans: Sequence[Span], total: int, rows: Ints) -> Ints | None:
    if not any(span.tree for span in spans):
        return None
    seen = np.zeros(total, dtype=np.uint64)
    for span, row in zip(spans, rows, strict=True):
        if not span.tree:
            continue
        assert len(span.tree) == len(span.tokens), "each token of a tree has a parent"
        assert span.state == len(span.saves) == 0, "a tree reads and leaves no state"
        seen[row : row + len(span.tree)] = ancestors(span.tree)
    return seen.view(np.int64)


def _states(spans: Sequence[Span], rows: Ints) -> StateArrays | None:
    if not any(span.state or span.saves for span in spans):
        return None
    starts = np.zeros(len(spans) + 1, dtype=np.int64)
    np.cumsum([len(span.saves) for span in spans], out=starts[1:])
    saves = np.array([*chain.from_iterable([span.saves for span in spans])], dtype=np.int64)
    done, slots = saves.reshape(-1, 2).T
    return StateArrays(
        rows=rows,
        reads=np.array([span.state for span in spans], dtype=np.int64),
        save_starts=starts,
        save_rows=done + np.repeat(rows[:-1], np.diff(starts)),
        save_slots=np.ascontiguousarray(slots),
    )


def _tables(spans: Sequence[Span], group: int, used: Sequence[int]) -> Ints:
    """Block tables of the spans in a cache group, cut to the blocks in use and concatenated."""
    tables = [
        np.asarray(span.block_tables[group][:count])
        for span, count in zip(spans, used, strict=True)
    ]
    joined = np.concatenate(tables, dtype=np.int64)
    assert len(joined) == sum(used), "a table does not cover its span"
    return joined
