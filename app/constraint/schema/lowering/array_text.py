"""The text of arrays: first items one by one, counts, wanted items, different items.

Built from the last item to the first, so that tails are shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from operator import ge

from app.constraint.json.text import JsonText
from app.constraint.language.counting import ENDLESS
from app.constraint.language.expressions import Expression, Mark
from app.constraint.schema.document import Goal, Node
from app.constraint.schema.logic.negation import negated
from app.constraint.schema.lowering.distinct_items import DistinctCounts, Form, LevelsNeeded, few
from app.constraint.schema.shapes import ArrayShape, Wanted
from app.core.errors import ConstraintTooComplex

_FEW = 16
"""Maximum values of which states keep those that are left; for more, the texts seen are remembered,
if possible."""

_MOST_WANTED = 6
"""Maximum nodes that some items must satisfy, in one branch; each may double the cases."""


Value = Callable[[Goal, Form], Expression]
"""Builds the values that satisfy a goal, in a form."""

Values = Callable[[Goal, Form], list[Expression] | None]
"""Lists the values that satisfy a goal, in a form; None where they cannot be listed."""

Counts = tuple[int, ...]
"""Number of items so far that satisfy each wanted node, capped where more make no difference."""

_Tails = dict[Counts, Expression]
"""Possible rests of the text, by the counts so far."""

_Steps = list[tuple[Counts, Expression]]
"""The next item, by which of the wanted nodes it counts for: 1 or 0 for each."""


class ArrayWriter:
    """Writes the arrays of one shape. ``values`` lists the values of a goal, if it can."""

    def __init__(
        self,
        text: JsonText,
        value: Value,
        values: Values,
        distinct_counts: DistinctCounts,
        depth: int,
        form: Form,
    ) -> None:
        self._text = text
        self._pool = text.pool
        self._any_value = value
        self._values = values
        self._distinct_counts = distinct_counts
        self._depth = depth
        self._form = form
        self._marks_items = False
        """Whether items are marked, to differ from one another."""
        self._between = text.between(depth)
        self._end = text.end(b"[]", depth)

    def write(self, shape: ArrayShape) -> Expression:
        """The arrays of this shape."""
        if shape.high is not None and shape.high < shape.low:
            return self._pool.empty
        if shape.unique is not None and (shape.high is None or shape.high > 1):
            # Items from a finite set, each used once; others by the texts seen.
            values = None if shape.prefix else self._values(shape.rest, self._form)
            many = values is not None and len(values) > _FEW
            if values is not None and len(shape.wanted) == 1:
                shape = self._all_counted(shape, shape.wanted[0])
            if values is None or (many and self._text.apart and self._form == Form.ANY):
                return self._by_memory(shape)
            high = len(values) if shape.high is None else min(shape.high, len(values))
            if shape.wanted:
                return self._by_memory(replace(shape, high=high))
            if high < shape.low:
                return self._pool.empty
            items = self._pool.distinct(tuple(values), self._between, max(shape.low, 1), high)
            items = self._pool.concatenate(items, self._end)
            return self._begun(items, may_be_empty=shape.low == 0)
        return self._items(shape)

    def _all_counted(self, shape: ArrayShape, one: Wanted) -> ArrayShape:
        """``shape`` for listed values, with bounds for the items that ``one`` counts and for all
        others, so that each item that may come has a value left."""
        others = Wanted(negated(one.node), one.start, 0, None)
        both = [self._values((*shape.rest, each.node), self._form) for each in (one, others)]
        if one.high is None or one.start or None in both:
            return shape
        some, rest = (len(values or ()) for values in both)
        wanted = replace(one, high=min(one.high, some)), replace(others, high=rest)
        return replace(shape, wanted=wanted)

    def _items(self, shape: ArrayShape) -> Expression:
        return self._with_wanted(shape) if shape.wanted else self._plain(shape)

    def _value(self, goal: Goal) -> Expression:
        """The items that satisfy ``goal``."""
        value = self._any_value(goal, self._form)
        return self._pool.marked(value, Mark.ITEM) if self._marks_items else value

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
        return self._text.begun(b"[]", items, may_be_empty=may_be_empty, depth=self._depth)

    def _with_wanted(self, shape: ArrayShape) -> Expression:
        """``contains``: the tails behind each index, for all counts of wanted items so far."""
        pool, wanted, high = self._pool, shape.wanted, shape.high
        least = [w.low for w in wanted]
        caps = [max(w.low, w.high or 0) for w in wanted]
        last = high
        if last is None:
            last = max(shape.low, len(shape.prefix), *(w.start for w in wanted), 1)
        size = (last + 1) * math.prod(cap + 1 for cap in caps)
        if size > self._text.limits.counted_members or len(wanted) > _MOST_WANTED:
            raise ConstraintTooComplex("too many items for minContains or maxContains")
        ends = {
            so_far: self._end if all(map(ge, so_far, least)) else pool.empty
            for so_far in product(*(range(cap + 1) for cap in caps))
        }
        tails = ends if high is not None else self._loops(shape, last, ends)
        after = cache(lambda so_far, counted: _added(so_far, counted, wanted))
        for index in range(last - 1, -1, -1):
            steps = self._steps(shape, index)
            before = self._between if index > 0 else pool.epsilon
            may_end = index > 0 and shape.low <= index
            # Most tails are equal, as the order of the wanted items makes no difference.
            known: dict[object, Expression] = {}
            found = {}
            for so_far in tails:
                rests = [(item, after(so_far, counted)) for counted, item in steps]
                ways = dict.fromkeys((item, tails[r]) for item, r in rests if r is not None)
                end = ends.get(so_far, pool.empty) if may_end else pool.empty
                key = (end, tuple(ways))
                if key not in known:
                    options = [pool.concatenate(before, item, tail) for item, tail in ways]
                    known[key] = pool.union([*options, end])
                found[so_far] = known[key]
            tails = found
        items = tails[(0,) * len(wanted)] if last > 0 else pool.empty
        return self._begun(items, may_be_empty=shape.low == 0 and not any(least))

    def _steps(self, shape: ArrayShape, index: int) -> _Steps:
        """The items at ``index``, by which of the wanted they count as.

        If there is a maximum count, an item that does not count must not satisfy the node.
        """
        steps = []
        goal = shape.prefix[index] if index < len(shape.prefix) else shape.rest
        for counted in product(*[(1, 0) if w.start <= index else (0,) for w in shape.wanted]):
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

    def _loops(self, shape: ArrayShape, index: int, ends: _Tails) -> _Tails:
        """The tails from where all further items are alike, for all counts, in order."""
        pool, wanted = self._pool, shape.wanted
        steps = self._steps(shape, index)
        tails: _Tails = {}
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

    def _by_memory(self, shape: ArrayShape) -> Expression:
        """Marked items, in one spelling each: the answer's state then includes the texts seen.

        At every index there are more values than items before it, so that one is always left.
        """
        if not self._text.levels:
            raise LevelsNeeded(_asked(shape))
        inside, self._form = self._form, max(self._form, Form.ONCE)
        if shape.prefix or shape.wanted:
            self._form = Form.SORTED
        shape = replace(shape, high=self._most(shape, inside))
        if shape.high is not None and shape.high < shape.low:
            if shape.prefix:
                raise few(_asked(shape))
            return self._pool.empty
        self._marks_items = True
        self._pool.items_are_needed |= bool(shape.low or shape.wanted)
        self._pool.items_vary |= bool(shape.wanted)
        return self._items(shape)

    def _most(self, shape: ArrayShape, form: Form) -> int | None:
        """Maximum number of distinct items; None: no limit."""
        asks, high, size = _asked(shape), shape.high, len(shape.prefix)
        for index in range(size if high is None else min(size, high)):
            value = self._value(shape.prefix[index])
            if self._distinct_counts.count(value, index + 1, asks) <= index:
                return index
        last = ENDLESS if high is None or form != Form.ANY else high
        if last <= size:
            return high
        if shape.wanted:
            one = shape.wanted[0]
            alone = size == 0 and len(shape.wanted) == 1 and one.high is None
            for index in range(size + 1):
                for counted, item in self._steps(shape, index):
                    # all that were seen and count are among the few that are wanted, or may be
                    needed = one.low if alone and any(counted) else last
                    highs = [
                        w.high for w, is_one in zip(shape.wanted, counted, strict=True) if is_one
                    ]
                    needed = min([needed, *(high for high in highs if high is not None)])
                    if self._distinct_counts.count(item, needed, asks) < needed:
                        raise few(asks)
            return high
        count = self._distinct_counts.count(self._value(shape.rest), last, asks)
        if count < last and form != Form.ANY:
            raise few(asks)  # how many such arrays there are is not counted
        return high if count == last else max(count, size)


def _asked(shape: ArrayShape) -> Node:
    assert shape.unique is not None
    return shape.unique


def _added(so_far: Counts, counted: Counts, wanted: tuple[Wanted, ...]) -> Counts | None:
    """The counts with one more item; None if it would exceed a maximum or a needed count."""
    for count, one, w in zip(so_far, counted, wanted, strict=True):
        if one and count >= (w.low if w.high is None else w.high):
            return None
    return tuple(count + one for count, one in zip(so_far, counted, strict=True))
