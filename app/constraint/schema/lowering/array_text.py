"""The text of arrays: first items one by one, counts, wanted items, different items.

Built from the last item to the first, so that tails are shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import product

from app.constraint.json.text import JsonText
from app.constraint.language.expressions import Expression
from app.constraint.limits import Limits
from app.constraint.schema.arrays import ArrayShape, Wanted
from app.constraint.schema.document import Goal
from app.constraint.schema.logic.negation import negated
from app.core.errors import ConstraintTooComplex, UnsupportedSchema

_MOST_WANTED = 6
"""Nodes that some items must satisfy, in one branch; each may double what must be told apart."""

Value = Callable[[Goal], Expression]
"""Builds the values that satisfy a goal."""

Counts = tuple[int, ...]
"""How many items so far satisfy each of the wanted nodes, up to where more make no difference."""


class ArrayWriter:
    """Writes the arrays of one shape. ``values`` lists the values of a goal, if it can."""

    def __init__(
        self,
        text: JsonText,
        limits: Limits,
        value: Value,
        values: Callable[[Goal], list[Expression] | None],
        depth: int,
    ) -> None:
        self._text = text
        self._pool = text.pool
        self._limits = limits
        self._value = value
        self._values = values
        self._depth = depth
        self._between = text.whitespace.between(text.pool, depth)
        self._end = text.whitespace.end(text.pool, b"[]", depth)

    def write(self, shape: ArrayShape) -> Expression:
        """The arrays of this shape."""
        if shape.high is not None and shape.high < shape.low:
            return self._pool.empty
        if shape.unique is not None and (shape.high is None or shape.high > 1):
            return self._different(shape)
        if shape.wanted:
            return self._with_wanted(shape)
        return self._plain(shape)

    def _plain(self, shape: ArrayShape) -> Expression:
        pool, high = self._pool, shape.high
        prefix = shape.prefix if high is None else shape.prefix[:high]
        size = len(prefix)
        rest = self._value(shape.rest) if high is None or high > size else pool.empty
        if not prefix:
            return self._text.container(b"[]", rest, shape.low, high, self._depth)
        more = pool.concatenate(self._between, rest)
        most = None if high is None else high - size
        tail = pool.concatenate(pool.repeat(more, max(shape.low - size, 0), most), self._end)
        for index in range(size - 1, -1, -1):
            between = self._between if index > 0 else pool.epsilon
            tail = pool.concatenate(between, self._value(prefix[index]), tail)
            if index > 0 and shape.low <= index:
                tail = pool.union((tail, self._end))
        return self._begun(tail, may_be_empty=shape.low == 0)

    def _begun(self, items: Expression, *, may_be_empty: bool) -> Expression:
        if items == self._pool.empty:
            nothing = self._text.whitespace.empty(self._pool, b"[]")
            return nothing if may_be_empty else items
        return self._text.begun(b"[]", items, may_be_empty=may_be_empty, depth=self._depth)

    def _with_wanted(self, shape: ArrayShape) -> Expression:
        """``contains``: the tails behind each index, for all counts of wanted items so far."""
        pool, wanted, high = self._pool, shape.wanted, shape.high
        caps = [max(w.low, 0 if w.high is None else w.high) for w in wanted]
        last = high
        if last is None:
            last = max(shape.low, len(shape.prefix), *(w.start for w in wanted), 1)
        size = (last + 1) * math.prod(cap + 1 for cap in caps)
        if size > self._limits.counted_members or len(wanted) > _MOST_WANTED:
            raise ConstraintTooComplex("too many items of contains to count them")
        counts = list(product(*(range(cap + 1) for cap in caps)))
        done = [all(w.low <= n for w, n in zip(wanted, so_far, strict=True)) for so_far in counts]
        ends = {
            so_far: self._end if finished else pool.empty
            for so_far, finished in zip(counts, done, strict=True)
        }
        tails = ends if high is not None else self._loops(shape, last, ends, caps)
        after = cache(lambda so_far, counted: _added(so_far, counted, wanted))
        for index in range(last - 1, -1, -1):
            tails = self._in_front(
                self._steps(shape, index),
                tails,
                after,
                before=self._between if index > 0 else pool.epsilon,
                ends=ends if index > 0 and shape.low <= index else {},
            )
        nothing = tuple(0 for _ in wanted)
        may_be_empty = shape.low == 0 and done[0]
        return self._begun(tails[nothing] if last > 0 else pool.empty, may_be_empty=may_be_empty)

    def _steps(self, shape: ArrayShape, index: int) -> list[tuple[Counts, Expression]]:
        """The items at ``index``, by which of the wanted they count as.

        Where there is a greatest count an item that does not count must not satisfy the node.
        """
        steps = []
        may_count = [(1, 0) if w.start <= index else (0,) for w in shape.wanted]
        goal = shape.prefix[index] if index < len(shape.prefix) else shape.rest
        for counted in product(*may_count):
            asked = list(goal)
            for w, one in zip(shape.wanted, counted, strict=True):
                if one:
                    asked.append(w.node)
                elif w.high is not None and w.start <= index:
                    asked.append(negated(w.node))
            item = self._value(tuple(asked))
            if item != self._pool.empty:
                steps.append((counted, item))
        return steps

    def _in_front(
        self,
        steps: list[tuple[Counts, Expression]],
        tails: dict[Counts, Expression],
        after: Callable[[Counts, Counts], Counts | None],
        *,
        before: Expression,
        ends: dict[Counts, Expression],
    ) -> dict[Counts, Expression]:
        """The tails with one more item at their beginning, from those behind it.

        Most are alike, as it makes no difference which of the wanted items come first.
        """
        pool = self._pool
        known: dict[tuple[Expression, tuple[tuple[Expression, Expression], ...]], Expression] = {}
        found = {}
        for so_far in tails:
            rests = [(item, after(so_far, counted)) for counted, item in steps]
            ways = dict.fromkeys((item, tails[rest]) for item, rest in rests if rest is not None)
            end = ends.get(so_far, pool.empty)
            key = (end, tuple(ways))
            if key not in known:
                options = [pool.concatenate(before, item, tail) for item, tail in ways]
                known[key] = pool.union([*options, end])
            found[so_far] = known[key]
        return found

    def _loops(
        self, shape: ArrayShape, index: int, ends: dict[Counts, Expression], caps: list[int]
    ) -> dict[Counts, Expression]:
        """The tails where every further item is like any other, for all counts, in order."""
        pool, wanted = self._pool, shape.wanted
        steps = self._steps(shape, index)
        tails: dict[Counts, Expression] = {}
        for so_far in sorted(ends, reverse=True):
            stays, moves = [], []
            for counted, item in steps:
                after = _added(so_far, counted, wanted)
                if after == so_far:
                    stays.append(pool.concatenate(self._between, item))
                elif after is not None:
                    moves.append(pool.concatenate(self._between, item, tails[after]))
            loop = pool.repeat(pool.union(stays)) if stays else pool.epsilon
            tails[so_far] = pool.concatenate(loop, pool.union([*moves, ends[so_far]]))
        return tails

    def _different(self, shape: ArrayShape) -> Expression:
        """``uniqueItems``: items from a finite set, each used once."""
        assert shape.unique is not None
        values = None if shape.prefix or shape.wanted else self._values(shape.rest)
        if values is None:
            reason = "only items from a finite set (enum, const, boolean, null) are told apart"
            raise UnsupportedSchema("uniqueItems", shape.unique.pointer_to("uniqueItems"), reason)
        high = len(values) if shape.high is None else min(shape.high, len(values))
        if high < shape.low:
            return self._pool.empty
        items = self._pool.distinct(tuple(values), self._between, max(shape.low, 1), high)
        may_be_empty = shape.low == 0
        ended = self._pool.concatenate(items, self._end)
        return self._begun(ended, may_be_empty=may_be_empty)


def _added(so_far: Counts, counted: Counts, wanted: tuple[Wanted, ...]) -> Counts | None:
    """The counts with one more item; None where it counts for nothing, or passes the greatest."""
    for count, one, w in zip(so_far, counted, wanted, strict=True):
        if one and count >= (w.low if w.high is None else w.high):
            return None
    return tuple(count + one for count, one in zip(so_far, counted, strict=True))
