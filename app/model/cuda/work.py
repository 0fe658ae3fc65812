"""The attention of a step as lists of work: tiles of queries, chunks of keys, rows to merge.

A span's queries are split into tiles: short ones for a decode, a leap or a draft, long ones for a
prompt chunk. A tile's keys are split into chunks at absolute multiples of a size that depends on
its span alone, so the order of a row's sums does not depend on other sequences.
``kernels.attention`` describes an item. A tile whose keys are one chunk writes to the output, other
tiles write partial sums that are merged.

The buffer for partial sums is bounded: a step that needs more is processed in waves, each with its
own lists. The results are the same.

In batch-invariant mode all spans have tiles of one shape and chunks of one size: a row's result is
the same in a decode, a leap or a prompt chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.model.cuda.kernels.attention import COUNTS, ITEM, MERGE
from app.model.inputs import Ints, StepArrays

Int32s = NDArray[np.int32]

_MOST_CHUNKS = 16
"""Maximum chunks of the keys that a span sees; one more if a window begins inside a chunk."""
_SHORT_CHUNK = 256
_LONG_CHUNK = 1024
_INVARIANT_CHUNK = 1024
_ROWS_ENOUGH = 1024
"""Tokens of a long span that keep a device busy with one chunk of keys for each tile."""
_ONE_CHUNK = 1 << 30

_TREE = 7
"""Index of this field in an item."""

_NO_ITEMS = np.zeros((0, ITEM), dtype=np.int32)
_NO_MERGES = np.zeros((0, MERGE), dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of layers: their attention has the same lists of work in every step."""

    cache_group: int
    window: int | None
    """Sliding window of these layers; None: they read all keys."""
    short_tokens: int
    """Query tokens in a short tile; 0: all tiles are long (batch-invariant)."""
    long_tokens: int

    @property
    def short_most(self) -> int:
        """Maximum tokens of a span with short tiles: a third tile would read its keys again."""
        return 2 * self.short_tokens


@dataclass(frozen=True, slots=True)
class Wave:
    """Work done before the buffer for partial sums is reused."""

    short: slice
    long: slice
    merges: slice


@dataclass(frozen=True, slots=True)
class Work:
    """One kind's lists for one step; see ``kernels.attention``."""

    short: Int32s
    """Shape [n, ITEM]."""
    long: Int32s
    merges: Int32s
    """Shape [n, MERGE]."""
    counts: Int32s
    """Shape [waves, COUNTS]."""
    waves: Sequence[Wave]


@dataclass(frozen=True, slots=True)
class SpanNumbers:
    """A step's spans as arrays, with one element a span."""

    row: Ints
    length: Ints
    start: Ints
    tables: Sequence[Ints]
    """By cache group: offset of each span's blocks in the step's tables."""
    trees: Ints | None = None
    """Each tree's first row, -1 for other spans; None: no trees."""
    ends: Ints | None = None
    """``StepImages.ends``, by row; None: no row attends to later ones."""
    windows_alone: bool = False

    @staticmethod
    def of(step: StepArrays) -> SpanNumbers:
        spans, trees = step.spans, None
        if step.ancestors is not None:
            rows = [-1 if step.ancestors_of(span) is None else span.row for span in spans]
            trees = np.array(rows, dtype=np.int64)
        tables, end = [], 0
        for group in range(len(step.slots)):
            blocks = np.array([len(span.blocks[group]) for span in spans], dtype=np.int64)
            ends = end + np.cumsum(blocks)
            tables.append(ends - blocks)
            end = int(ends[-1]) if len(ends) else end
        return SpanNumbers(
            row=np.array([span.row for span in spans], dtype=np.int64),
            length=np.array([span.length for span in spans], dtype=np.int64),
            start=np.array([span.start for span in spans], dtype=np.int64),
            tables=tables,
            trees=trees,
            ends=None if step.vision_input is None else step.vision_input.ends,
            windows_alone=step.vision_input is not None and step.vision_input.windows_alone,
        )


def most_chunks(kind: Kind, max_model_len: int) -> int:
    """Maximum number of chunks of keys of one tile."""
    if kind.short_tokens:
        return _MOST_CHUNKS + 1
    reach = min(max_model_len, (kind.window or max_model_len) + kind.long_tokens)
    return -(reach // -_INVARIANT_CHUNK) + 1


def list_work(kind: Kind, spans: SpanNumbers, padding: range, partial_rows: int) -> Work:
    """The lists of one kind; takes about 0.1 ms, and 30 ns for each item.

    Rows in ``padding`` belong to no span: their output becomes zero. ``partial_rows`` is the
    capacity for partial sums, in tokens; at least the maximum of one tile.
    """
    is_long = spans.length > kind.short_most
    short = _tiles(kind, spans, np.flatnonzero(~is_long), is_short=True)
    long = _tiles(kind, spans, np.flatnonzero(is_long), is_short=False)
    needs = np.concatenate([short.needs, long.needs])
    total = np.cumsum(needs)
    before = total - needs
    ends = _wave_ends(needs, total, partial_rows)
    if len(ends) > 1:
        first_of_wave = np.repeat([0, *ends[:-1]], np.diff([0, *ends]))
        before = before - before[first_of_wave]
    border = len(short.row)
    short_items = _items(short, before[:border])
    long_items = _items(long, before[border:])
    merges = np.concatenate([_merges(short, before[:border]), _merges(long, before[border:])])
    if len(padding):
        short_items, long_items = _with_padding(kind, padding, short_items, long_items)

    waves, counts = _waves(ends, short, long, len(short_items), len(long_items), len(merges))
    return Work(short_items, long_items, merges, counts, waves)


@dataclass(frozen=True, slots=True)
class _Tiles:
    """All short or all long tiles as arrays, with one element a tile."""

    row: Ints
    tokens: Ints
    position: Ints
    table: Ints
    chunk: Ints
    """Keys in a chunk."""
    begin: Ints
    """The first key that any row of the tile sees."""
    end: Ints
    first: Ints
    """Index of the first chunk."""
    chunks: Ints
    trees: Ints | None = None
    """See ``SpanNumbers``."""

    @property
    def needs(self) -> Ints:
        """Rows of partial sums that each tile needs."""
        needs: Ints = np.where(self.chunks > 1, self.tokens * self.chunks, 0)
        return needs


def _tiles(kind: Kind, spans: SpanNumbers, chosen: Ints, *, is_short: bool) -> _Tiles:
    length, start = spans.length[chosen], spans.start[chosen]
    if not len(chosen):
        return _Tiles(*[length] * 9)
    size = kind.short_tokens if is_short else kind.long_tokens
    reach = kind.window or _ONE_CHUNK
    visible = start + length - np.maximum(0, start - reach + 1)
    chunk = _chunk(kind, visible, length, is_short=is_short)
    if chunk.min() < chunk.max():  # the longest items start first
        order = np.argsort(-chunk, kind="stable")
        chosen, length, start, chunk = chosen[order], length[order], start[order], chunk[order]
    count = -(length // -size)
    owner = np.repeat(np.arange(len(chosen)), count)
    first = (np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)) * size
    tokens = np.minimum(size, length[owner] - first)
    position = start[owner] + first
    row, end = spans.row[chosen][owner] + first, position + tokens
    later = None if spans.windows_alone and kind.window is None else spans.ends
    if later is not None:
        end = np.maximum(end, later[row + tokens - 1])
    trees = None if spans.trees is None else spans.trees[chosen][owner]
    # A token of a tree may have the position of the span's first token.
    lowest = position if trees is None else np.where(trees < 0, position, start[owner])
    begin = np.maximum(0, lowest - reach + 1)
    chunk = chunk[owner]
    first_chunk = begin // chunk
    return _Tiles(
        row=row,
        tokens=tokens,
        position=position,
        table=spans.tables[kind.cache_group][chosen][owner],
        chunk=chunk,
        begin=begin,
        end=end,
        first=first_chunk,
        chunks=(end - 1) // chunk + 1 - first_chunk,
        trees=trees,
    )


def _chunk(kind: Kind, visible: Ints, length: Ints, *, is_short: bool) -> Ints:
    """Keys in a chunk, for each span: a base size, doubled until there are few enough chunks."""
    if not kind.short_tokens:
        return np.full_like(visible, _INVARIANT_CHUNK)
    base, most = _SHORT_CHUNK, np.full_like(visible, _MOST_CHUNKS)
    if not is_short:
        base, most = _LONG_CHUNK, np.clip(_ROWS_ENOUGH // length, 1, _MOST_CHUNKS)
    chunk = np.full_like(visible, base)
    while (many := visible > chunk * most).any():
        chunk[many] *= 2
    return np.where(most == 1, _ONE_CHUNK, chunk)


def _wave_ends(needs: Ints, total: Ints, partial_rows: int) -> list[int]:
    """Number of tiles before the end of each wave; there is at least one wave."""
    ends, done = [], 0
    if len(total) and total[-1] > partial_rows:
        assert int(needs.max()) <= partial_rows, "a tile needs more partial rows than there are"
        while total[-1] - done > partial_rows:
            ends.append(int(np.searchsorted(total, done + partial_rows, side="right")))
            done = int(total[ends[-1] - 1])
    return [*ends, len(needs)]


def _items(tiles: _Tiles, before: Ints) -> Int32s:
    """Items of the tiles; ``before`` [tiles]: partial rows of earlier tiles of the wave."""
    if not len(tiles.row):
        return _NO_ITEMS
    owner = np.repeat(np.arange(len(tiles.row)), tiles.chunks)
    items = np.zeros((len(owner), ITEM), dtype=np.int32)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(tiles.chunks) - tiles.chunks, tiles.chunks)
    tokens, chunk = tiles.tokens[owner], tiles.chunk[owner]
    low = (tiles.first[owner] + within) * chunk
    columns = (
        tiles.row[owner],
        tokens,
        tiles.position[owner],
        tiles.table[owner],
        np.maximum(low, tiles.begin[owner]),
        np.minimum(low + chunk, tiles.end[owner]),
        np.where(tiles.chunks[owner] > 1, before[owner] + within * tokens, -1),
    )
    for i, column in enumerate(columns):
        items[:, i] = column
    items[:, _TREE] = -1 if tiles.trees is None else tiles.trees[owner]
    return items


def _merges(tiles: _Tiles, before: Ints) -> Int32s:
    """A merge for each token of tiles with several chunks."""
    if not len(tiles.row) or tiles.chunks.max() == 1:
        return _NO_MERGES
    tokens = np.where(tiles.chunks > 1, tiles.tokens, 0)
    owner = np.repeat(np.arange(len(tokens)), tokens)
    merges = np.zeros((len(owner), MERGE), dtype=np.int32)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(tokens) - tokens, tokens)
    first = tiles.first[owner]
    columns = (
        tiles.row[owner] + within,
        before[owner] + within,
        tokens[owner],
        first,
        first + tiles.chunks[owner],
    )
    for i, column in enumerate(columns):
        merges[:, i] = column
    return merges


def _with_padding(kind: Kind, padding: range, short: Int32s, long: Int32s) -> tuple[Int32s, Int32s]:
    """The lists with items for ``padding``, which see no keys; short items if the kind has them."""
    size = kind.short_tokens or kind.long_tokens
    rows = np.arange(padding.start, padding.stop, size)
    items = np.zeros((len(rows), ITEM), dtype=np.int32)
    items[:, 0] = rows
    items[:, 1] = np.minimum(size, padding.stop - rows)
    items[:, 6] = items[:, _TREE] = -1
    if kind.short_tokens:
        return np.concatenate([short, items]), long
    return short, np.concatenate([long, items])


def _waves(
    ends: Sequence[int], short: _Tiles, long: _Tiles, shorts: int, longs: int, merges: int
) -> tuple[list[Wave], Int32s]:
    """Each wave's slices of the lists, and their lengths; padding belongs to the last wave."""
    if len(ends) == 1:
        borders = [(shorts, longs, merges)]
    else:
        chunks = np.concatenate([short.chunks, long.chunks])
        tokens = np.concatenate([short.tokens, long.tokens])
        items_to = np.concatenate([[0], np.cumsum(chunks)])
        merges_to = np.concatenate([[0], np.cumsum(np.where(chunks > 1, tokens, 0))])
        all_short = int(items_to[len(short.row)])
        borders = [
            (min(int(items_to[end]), all_short), max(int(items_to[end]) - all_short, 0),
             int(merges_to[end]))
            for end in ends[:-1]
        ] + [(shorts, longs, merges)]  # fmt: skip
    starts = [(0, 0, 0), *borders[:-1]]
    waves = [
        Wave(*[slice(low, high) for low, high in zip(start, end, strict=True)])
        for start, end in zip(starts, borders, strict=True)
    ]
    counts = np.zeros((len(waves), COUNTS), dtype=np.int32)
    counts[:, :3] = np.array(borders) - np.array(starts)
    return waves, counts
