"""The text of objects: members in their order, with counts, free members and their names.

Built from the last member to the first, for every number of members written so far that matters,
so that tails are shared and the cost is linear in the members where nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.constraint.cached_method import cached_method
from app.constraint.json.text import JsonText
from app.constraint.language.expressions import Expression
from app.constraint.limits import Limits
from app.constraint.schema.document import Goal, Node
from app.constraint.schema.keywords import SOME_MEMBER
from app.constraint.schema.lowering.free_names import FreeNames
from app.constraint.schema.objects import Member, ObjectShape, SomeMember, is_that_member
from app.constraint.schema.strings import Strings
from app.core.errors import ConstraintTooComplex, UnsupportedSchema

Value = Callable[[Goal], Expression]
"""Builds the values that satisfy a goal."""

_MOST_WANTED = 4
"""Nodes with ``SOME_MEMBER`` in one branch; each doubles what must be told apart."""

Missing = int
"""Which of the wanted members are still to come: bit i stands for the i-th."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A declared member: its name and value, by the set of wanted members that it counts as."""

    required: bool
    plain: Expression
    claims: dict[Missing, Expression]


class ObjectWriter:
    """Writes the objects of one shape."""

    def __init__(
        self,
        text: JsonText,
        strings: Strings,
        free_names: FreeNames,
        limits: Limits,
        value: Value,
        depth: int,
    ) -> None:
        self.pool = text.pool
        self.limits = limits
        self._text = text
        self._strings = strings
        self._free_names = free_names
        self._value = value
        self._depth = depth
        self.between = text.whitespace.between(text.pool, depth)
        self.end = text.whitespace.end(text.pool, b"{}", depth)

    def write(self, nodes: Goal, shape: ObjectShape) -> Expression:
        """The objects that satisfy ``nodes``, whose shape this is."""
        wanted = shape.some
        if shape.high is not None and shape.high < shape.low:
            return self.pool.empty
        if len(wanted) > _MOST_WANTED:
            raise ConstraintTooComplex("too many negations of what members may be, in one object")
        members = [self._member(nodes, member, wanted) for member in shape.members]
        members = [m for m in members if m.required or m.plain != self.pool.empty or m.claims]
        free = self._free(nodes, shape) if shape.open else self.pool.empty
        everything = (1 << len(wanted)) - 1
        last = _Last(self, {} if not shape.open else self._wanted_free(nodes, shape, everything))
        if free == self.pool.empty and not wanted and shape.low > len(members):
            return self.pool.empty
        self._check_counts(nodes, shape, members)
        items = _Tails(self, members, free, last, shape).build(everything)
        may_be_empty = (
            shape.low <= 0 and not everything and not any(member.required for member in members)
        )
        if items == self.pool.empty:
            nothing = self._text.whitespace.empty(self.pool, b"{}")
            return nothing if may_be_empty else self.pool.empty
        return self._text.begun(b"{}", items, may_be_empty=may_be_empty, depth=self._depth)

    def _member(self, nodes: Goal, member: Member, wanted: tuple[Node, ...]) -> _Written:
        text, pool = self._text, self.pool
        if not self._free_names.allowed(nodes, member.name):
            return _Written(member.required, pool.empty, {})

        def written(goal: Goal) -> Expression:
            value = self._value(goal)
            return value if value == pool.empty else text.member(member.name, value)

        possible = 0
        for bit, node in enumerate(wanted):
            some: SomeMember = node.schema[SOME_MEMBER]
            if is_that_member(node, member.name, self._strings.key_matches) and (
                some.name is None or self._free_names.admits(some.name, member.name)
            ):
                possible |= 1 << bit
        claims = {
            claimed: written((*member.goal, *_values(wanted, claimed)))
            for claimed in range(1, possible + 1)
            if claimed & possible == claimed
        }
        claims = {claimed: e for claimed, e in claims.items() if e != pool.empty}
        return _Written(member.required, written(member.goal), claims)

    def _free(self, nodes: Goal, shape: ObjectShape) -> Expression:
        """A member that has no name of its own."""
        declared = [member.name for member in shape.members]
        return self.pool.union(
            [
                self._text.free_member(names, value)
                for names, goal in self._free_names.classes(nodes, declared)
                if (value := self._value(goal)) != self.pool.empty
            ]
        )

    def _wanted_free(
        self, nodes: Goal, shape: ObjectShape, everything: Missing
    ) -> dict[tuple[Missing, Missing], Expression]:
        """Free members that each are several of the wanted members at once.

        By all the wanted members that are missing, and those of them that the member is. Its name
        is not right for the others, so that theirs will differ from it: of two members of one name
        a reader keeps only the last.
        """
        declared = [member.name for member in shape.members]
        found = {}
        for missing in range(1, everything + 1):
            for block in range(1, missing + 1):
                if block & missing != block:
                    continue
                options = []
                for names, goal in self._free_names.classes(
                    nodes,
                    declared,
                    _chosen(shape.some, block),
                    _chosen(shape.some, missing ^ block),
                ):
                    value = self._value((*goal, *_values(shape.some, block)))
                    if value != self.pool.empty:
                        options.append(self._text.free_member(names, value))
                found[missing, block] = self.pool.union(options)
        return found

    def _check_counts(self, nodes: Goal, shape: ObjectShape, members: list[_Written]) -> None:
        required = sum(member.required for member in members)
        if shape.low <= max(required, len(members) + 1):
            return
        node = next(node for node in nodes if "minProperties" in node.schema)
        reason = "names that the schema leaves open are not known to differ from one another"
        raise UnsupportedSchema("minProperties", node.pointer_to("minProperties"), reason)


class _Last:
    """The wanted members that have no name of their own, at the end of an object."""

    def __init__(
        self, writer: ObjectWriter, blocks: dict[tuple[Missing, Missing], Expression]
    ) -> None:
        self._pool = writer.pool
        self._writer = writer
        self._blocks = blocks

    def __bool__(self) -> bool:
        return bool(self._blocks)

    @cached_method
    def of(self, missing: Missing, count: int) -> Expression:
        """``count`` members that together are all of the ``missing``, and the end."""
        pool = self._pool
        if missing == 0 or count == 0:
            return self._writer.end if missing == count == 0 else pool.empty
        options = []
        for (all_missing, block), member in self._blocks.items():
            if all_missing == missing:
                rest = self.of(missing ^ block, count - 1)
                between = self._writer.between if count > 1 else pool.epsilon
                options.append(pool.concatenate(member, between, rest))
        return pool.union(options)


class _Tails:
    """What may follow each declared member, by the count of members before it and those missing.

    The count stops at ``cap``, where more make no difference or there are no more members.
    """

    def __init__(
        self,
        writer: ObjectWriter,
        members: list[_Written],
        free: Expression,
        last: _Last,
        shape: ObjectShape,
    ) -> None:
        self._pool = writer.pool
        self._writer = writer
        self._members = members
        self._free = free
        self._last = last
        required = sum(member.required for member in members)
        self._low = shape.low if shape.low > required else min(shape.low, 1)
        self._high = shape.high
        named_only = free == self._pool.empty and not last
        if shape.high is not None and named_only and shape.high >= len(members):
            self._high = None
        self._cap = max(self._low, 1)
        if self._high is not None:
            self._cap = min(self._high, len(members))
        size = len(members) * (self._cap + 1) << len(shape.some)
        if size > writer.limits.counted_members or (
            self._cap > 1 and size * len(members) > 50 * writer.limits.counted_members
        ):
            raise ConstraintTooComplex("too many members to count them")

    def build(self, everything: Missing) -> Expression:
        """What follows the opening bracket of an object that is not empty."""
        pool = self._pool
        if self._high == 0:
            return pool.empty
        tails = {
            (count, missing): self._ending(count, missing)
            for count in range(1, self._cap + 1)
            for missing in range(everything + 1)
        }
        required = [index for index, member in enumerate(self._members) if member.required]
        starts = [] if required else [self._first_free(everything)]
        for index in range(len(self._members) - 1, -1, -1):
            member = self._members[index]
            if not required or index <= required[0]:  # there is a way past all before it
                starts.append(self._with(member, 0, everything, tails, pool.epsilon))
            if index > 0:
                tails = {
                    (count, missing): self._after(member, count, missing, tails)
                    for count, missing in tails
                }
        return pool.union(starts)

    def _after(
        self,
        member: _Written,
        count: int,
        missing: Missing,
        tails: dict[tuple[int, Missing], Expression],
    ) -> Expression:
        """The tail in front of ``member``, from the tails behind it."""
        pool, between = self._pool, self._writer.between
        behind = tails[count, missing]
        counted = self._high is not None or count < self._cap
        if not counted and not member.claims and not member.required:
            return pool.concatenate(pool.optional(pool.concatenate(between, member.plain)), behind)
        there = self._with(member, count, missing, tails, between)
        return there if member.required else pool.union((there, behind))

    def _with(
        self,
        member: _Written,
        count: int,
        missing: Missing,
        tails: dict[tuple[int, Missing], Expression],
        before: Expression,
    ) -> Expression:
        """``member`` and what follows it."""
        pool = self._pool
        after = count + 1 if self._high is not None else min(count + 1, self._cap)
        if (after, missing) not in tails:
            return pool.empty
        options = [pool.concatenate(before, member.plain, tails[after, missing])]
        for claimed, written in member.claims.items():
            if claimed & missing:
                rest = tails[after, missing & ~claimed]
                options.append(pool.concatenate(before, written, rest))
        return pool.union(options)

    def _ending(self, count: int, missing: Missing) -> Expression:
        """Free members and the end, after ``count`` members, one or more."""
        pool, end = self._pool, self._writer.end
        more = pool.concatenate(self._writer.between, self._free)
        low, high = self._left(count)
        if missing:
            return self._wanted_ending(more, missing, low, high)
        if low > 1 or (high is not None and high < low):
            return pool.empty
        return pool.concatenate(pool.repeat(more, low, high), end)

    def _first_free(self, missing: Missing) -> Expression:
        """Free members, one or more, and the end, where no declared member is."""
        pool, end = self._pool, self._writer.end
        more = pool.concatenate(self._writer.between, self._free)
        low, high = self._left(0)
        if low > 1 or (high is not None and high < 1):
            return pool.empty
        if not missing:
            others = pool.repeat(more, 0, None if high is None else high - 1)
            return pool.concatenate(self._free, others, end)
        options = []
        for count in range(1, missing.bit_count() + 1):
            if high is None or high >= count:
                last = self._last.of(missing, count)
                others = pool.repeat(more, 0, None if high is None else max(high - count - 1, 0))
                after = pool.concatenate(self._free, others, self._writer.between, last)
                options += [last] if high == count else [last, after]
        return pool.union(options)

    def _wanted_ending(
        self, more: Expression, missing: Missing, low: int, high: int | None
    ) -> Expression:
        """Free members, and then those that are missing."""
        pool, options = self._pool, []
        for count in range(1, missing.bit_count() + 1):
            if low <= count and (high is None or high >= count):
                some = pool.repeat(more, 0, None if high is None else high - count)
                last = self._last.of(missing, count)
                options.append(pool.concatenate(some, self._writer.between, last))
        return pool.union(options)

    def _left(self, count: int) -> tuple[int, int | None]:
        """How many more members must and may come. Of free ones only the first is counted
        towards the least number: two might have the same name."""
        high = None if self._high is None else self._high - count
        return max(self._low - count, 0), high


def _chosen(wanted: tuple[Node, ...], chosen: Missing) -> list[Node]:
    return [node for bit, node in enumerate(wanted) if chosen >> bit & 1]


def _values(wanted: tuple[Node, ...], chosen: Missing) -> Goal:
    return tuple(node.schema[SOME_MEMBER].value for node in _chosen(wanted, chosen))
