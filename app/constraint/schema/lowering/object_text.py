"""The text of objects: members in their order, with counts, free members and their names.

Built from the last member to the first, for every number of members written so far that matters,
so that tails are shared and the cost is linear in the members where nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from app.constraint.cached_method import cached_method
from app.constraint.json.text import JsonText, json_text
from app.constraint.language.cases import Cases, Table
from app.constraint.language.counting import ENDLESS
from app.constraint.language.expressions import Expression
from app.constraint.language.rewriting import unspelled
from app.constraint.schema.document import Goal, Node
from app.constraint.schema.keywords import SOME_MEMBER
from app.constraint.schema.lowering.distinct_items import DistinctCounts
from app.constraint.schema.lowering.free_names import FreeNames
from app.constraint.schema.shapes import (
    Demand,
    Member,
    ObjectShape,
    SomeMember,
    is_that_member,
    member_goal,
    property_names,
)
from app.constraint.schema.strings import Strings
from app.core.errors import ConstraintTooComplex, UnsupportedSchema

Value = Callable[[Goal, str | None], Expression]
"""Builds the values that satisfy a goal, for the member of this name; None: a free one."""

_MOST_WANTED = 4
"""Maximum nodes with ``SOME_MEMBER`` in one branch; each doubles the cases to distinguish."""

Missing = int
"""Bit set of the wanted members that are still to come."""


_Rests = dict[tuple[int, Missing], Expression]
"""Possible rests of the text, by the count of members so far and the wanted ones missing."""


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
        value: Value,
        distinct_counts: DistinctCounts,
        depth: int,
        *,
        once: bool = False,
    ) -> None:
        self.pool = text.pool
        self.limits = text.limits
        self._text = text
        self._strings = strings
        self._free_names = free_names
        self._value = value
        self._distinct_counts = distinct_counts
        self._depth = depth
        self._names: list[Expression] = []
        """Free names."""
        self.counts_free = text.apart and not once
        """Whether every free member counts, as their names are kept distinct."""
        self.most_free: int | None = None
        """Maximum free members, as there are no more names for them; None: no such limit."""
        self.once = once
        """Whether equal objects have equal texts: then at most one member is free."""
        self.between = text.between(depth)
        self.end = text.end(b"{}", depth)

    def write(self, nodes: Goal, shape: ObjectShape) -> Expression:
        """The objects that satisfy ``nodes``, whose shape this is."""
        wanted = shape.some
        if shape.high is not None and shape.high < shape.low:
            return self.pool.empty
        if len(wanted) > _MOST_WANTED or (wanted and self.once and shape.open):
            raise ConstraintTooComplex("too many negated property schemas in one object")
        if wanted and shape.open:
            shape = self._with_few(nodes, shape)
        names = property_names(nodes)
        members: list[_Written] = []
        for member in shape.members:
            written = self._member(nodes, names, member, wanted)
            if written.required or written.plain != self.pool.empty or written.claims:
                members.append(written)
        everything = (1 << len(wanted)) - 1
        free = self._free(nodes, shape, 0, 0)
        blocks = {
            (missing, block): self._free(nodes, shape, block, missing ^ block)
            for missing in range(1, everything + 1)
            for block in _parts(missing)
        }
        if free == self.pool.empty and not wanted and shape.low > len(members):
            return self.pool.empty
        if shape.open:
            self._look_at_free(nodes, shape, members)
        tails = _Tails(self, members, free, blocks, shape)
        if shape.choices:
            items, all_optional = tails.chosen(*self._by_choices(nodes, names, shape))
        else:
            items = tails.build(everything)
            all_optional = not wanted and not any(m.required for m in members)
        may_be_empty = not shape.low and all_optional
        return self._text.begun(b"{}", items, may_be_empty=may_be_empty, depth=self._depth)

    def _by_choices(self, nodes: Goal, names: Goal, shape: ObjectShape) -> tuple[Cases, Cases]:
        """The members under the alternatives' demands: each as the first one, and each as a later
        one, which may be absent."""
        places = {member.name: place for place, member in enumerate(shape.members)}
        demands: list[dict[Demand, int]] = [{} for _ in places]
        """Demands on each member, with their bits."""
        choices = []
        for ways in shape.choices:
            chosen = []
            for way in ways:
                bits: dict[int, int] = {}
                for name, demand in way.items():
                    known = demands[places[name]]
                    bits[places[name]] = known.setdefault(demand, 1 << len(known))
                chosen.append(tuple(bits.items()))
            choices.append(tuple(chosen))
        first: list[Table] = []
        behind: list[Table] = []
        for member, known in zip(shape.members, demands, strict=True):
            tables: list[tuple[Expression, Expression]] = []
            for number in range(1 << len(known)):
                asked = [demand for demand, bit in known.items() if number & bit]
                required = member.required or any(needed for needed, _ in asked)
                goal = dict.fromkeys([*member.goal, *(n for _, goal in asked for n in goal)])
                written = self._member(nodes, names, Member(member.name, tuple(goal), required), ())
                there = self.pool.concatenate(self.between, written.plain)
                tables.append((written.plain, there if required else self.pool.optional(there)))
            first.append(tuple([alone for alone, _ in tables]))
            behind.append(tuple([there for _, there in tables]))
        return Cases(tuple(first), tuple(choices)), Cases(tuple(behind), tuple(choices))

    def _with_few(self, nodes: Goal, shape: ObjectShape) -> ObjectShape:
        """``shape`` with members for the names of wanted ones, if these are few: otherwise free
        members could use up the names."""
        members = [*shape.members]
        for node in shape.some:
            for name in self._free_names.few(nodes, [member.name for member in members], node):
                goal = member_goal(nodes, name, self._strings.key_matches)
                members.append(Member(name, goal, required=False))
        return replace(shape, members=tuple(members))

    def _member(
        self, nodes: Goal, names: Goal, member: Member, wanted: tuple[Node, ...]
    ) -> _Written:
        if names and not all(self._free_names.admits(node, member.name) for node in names):
            return _Written(member.required, self.pool.empty, {})
        missing = self.limits.missing if member.required else 0
        if missing and (reason := unspelled(json_text(member.name), missing)):
            node = next((n for n in nodes if member.name in n.schema.get("required", ())), nodes[0])
            raise UnsupportedSchema("required", node.pointer_to("required"), reason)
        claims = self._claims(member, wanted) if wanted else {}
        return _Written(member.required, self._with_value(member, member.goal), claims)

    def _with_value(self, member: Member, goal: Goal) -> Expression:
        """The member with the values of ``goal``."""
        value = self._value(goal, member.name)
        return value if value == self.pool.empty else self._text.member(member.name, value)

    def _claims(self, member: Member, wanted: tuple[Node, ...]) -> dict[Missing, Expression]:
        """The member, by the set of wanted ones that it satisfies at once."""
        possible = 0
        for bit, node in enumerate(wanted):
            some: SomeMember = node.schema[SOME_MEMBER]
            if is_that_member(node, member.name, self._strings.key_matches) and (
                some.name is None or self._free_names.admits(some.name, member.name)
            ):
                possible |= 1 << bit
        return {
            claimed: there
            for claimed in _parts(possible)
            if (there := self._with_value(member, (*member.goal, *_values(wanted, claimed))))
            != self.pool.empty
        }

    def _free(self, nodes: Goal, shape: ObjectShape, block: Missing, others: Missing) -> Expression:
        """A free member that is all wanted members of ``block`` at once.

        Its name does not fit the ``others`` that are missing, so that their names will differ from
        it: of two members of one name a reader keeps only the last.
        """
        if not shape.open:
            return self.pool.empty
        declared = [member.name for member in shape.members]
        wanted, unwanted = _chosen(shape.some, block), _chosen(shape.some, others)
        classes = self._free_names.classes(nodes, declared, wanted, unwanted)
        asked = _values(shape.some, block)
        any_name = self._text.any_content if self.once else None
        members = []
        for content, goal in classes:
            value = self._value((*goal, *asked), None)
            if value != self.pool.empty:
                content = any_name if content is None else content
                self._names.append(self._text.free_name(content))
                members.append(self._text.free_member(content, value))
        return self.pool.union(members)

    def _look_at_free(self, nodes: Goal, shape: ObjectShape, members: list[_Written]) -> None:
        """Determine how many free members there may be, and must be."""
        required = sum(member.required for member in members)
        if not self.counts_free:
            if shape.low > max(required, len(members) + 1):
                raise _not_counted(nodes, "names of additional properties may repeat here")
            return
        if property_names(nodes) or any("patternProperties" in node.schema for node in nodes):
            number = self._distinct_counts.number_of(self._names[::-1])
            self.most_free = None if number == ENDLESS else number
            if number is None and shape.low > required:
                raise _not_counted(nodes, "too few names may be allowed for it")
        if self._names and shape.high != 1:
            self.pool.has_free_names = True
            if shape.low > required or shape.some:
                self.pool.needed_names.update(self._names)


class _Tails:
    """The text after each declared member, by the count of members before it and those missing.

    The count stops at ``cap``, where more make no difference or there are no more members. Of free
    members whose names may be equal only the first counts towards the minimum.
    """

    def __init__(
        self,
        writer: ObjectWriter,
        members: list[_Written],
        free: Expression,
        blocks: dict[tuple[Missing, Missing], Expression],
        shape: ObjectShape,
    ) -> None:
        self._pool = writer.pool
        self._writer = writer
        self._members = members
        self._free = free
        self._blocks = blocks
        required = sum(member.required for member in members)
        self._low = shape.low if shape.low > required else min(shape.low, 1)
        self._high = shape.high
        self._most_free = writer.most_free
        named_only = free == self._pool.empty and not blocks
        if shape.high is not None and named_only and shape.high >= len(members):
            self._high = None
        self._cap = max(self._low, 1) if self._high is None else min(self._high, len(members))
        size = len(members) * (self._cap + 1) << len(shape.some)
        if size > writer.limits.counted_members or (
            self._cap > 1 and size * len(members) > 50 * writer.limits.counted_members
        ):
            counted = "" if self._cap == 1 else " with minProperties or maxProperties"
            raise ConstraintTooComplex(f"an object of {len(members)} properties{counted}")

    def build(self, everything: Missing) -> Expression:
        """The text after the opening bracket of an object that is not empty."""
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

    def chosen(self, first: Cases, behind: Cases) -> tuple[Expression, bool]:
        """``build`` under the alternatives' demands; and whether all members are optional."""
        pool, tail = self._pool, self._ending(1, 0)
        behind.check(pool.empty)
        absent = behind.mapped(lambda e: pool.epsilon if pool.nullable[e] else pool.empty)
        starts = []
        for number, table in enumerate(first.parts):
            parts = (*absent.parts[:number], table, *behind.parts[number + 1 :])
            starts.append(pool.concatenate(pool.cases(Cases(parts, first.choices)), tail))
        all_optional = pool.nullable[pool.cases(absent)]
        if all_optional:
            starts.append(self._first_free(0))
        return pool.union(starts), all_optional

    def _after(self, member: _Written, count: int, missing: Missing, tails: _Rests) -> Expression:
        """The tail in front of ``member``, from the tails behind it."""
        pool, between = self._pool, self._writer.between
        behind = tails[count, missing]
        counted = self._high is not None or count < self._cap
        if not counted and not member.claims and not member.required:
            return pool.concatenate(pool.optional(pool.concatenate(between, member.plain)), behind)
        there = self._with(member, count, missing, tails, between)
        return there if member.required else pool.union((there, behind))

    def _with(
        self, member: _Written, count: int, missing: Missing, tails: _Rests, before: Expression
    ) -> Expression:
        """``member`` and what follows it."""
        pool = self._pool
        after = count + 1 if self._high is not None else min(count + 1, self._cap)
        if (after, missing) not in tails:
            return pool.empty
        options = [pool.concatenate(before, member.plain, tails[after, missing])]
        for claimed, written in member.claims.items():
            if claimed & missing:
                options.append(pool.concatenate(before, written, tails[after, missing & ~claimed]))
        return pool.union(options)

    def _ending(self, count: int, missing: Missing) -> Expression:
        """Free members, those that are missing and the end, after ``count`` members, 1 or more."""
        pool, between = self._pool, self._writer.between
        more = pool.concatenate(between, self._free)
        low = max(self._low - count, 0)
        if not missing:
            many = low > 1 and not self._writer.counts_free
            others = pool.empty if many else pool.repeat(more, low, self._free_room(count, 0))
            return pool.concatenate(others, self._writer.end)
        options = []
        for size in range(1, missing.bit_count() + 1):
            needed = max(low - size, 0)
            if self._writer.counts_free or not needed:
                others = pool.repeat(more, needed, self._free_room(count + size, 0))
                options.append(pool.concatenate(others, between, self._last(missing, size)))
        return pool.union(options)

    def _first_free(self, missing: Missing) -> Expression:
        """Free members, one or more, and the end, where no declared member is."""
        pool, between = self._pool, self._writer.between
        more = pool.concatenate(between, self._free)
        if self._low > 1 and not self._writer.counts_free:
            return pool.empty
        if not missing:
            others = pool.repeat(more, max(self._low - 1, 0), self._free_room(1, 1))
            return pool.concatenate(self._free, others, self._writer.end)
        options = []
        for size in range(1, missing.bit_count() + 1):
            room, last = self._room(size), self._last(missing, size)
            if size >= self._low and (room is None or room >= 0):
                options.append(last)
            others = pool.repeat(more, max(self._low - size - 1, 0), self._free_room(size + 1, 1))
            options.append(pool.concatenate(self._free, others, between, last))
        return pool.union(options)

    @cached_method
    def _last(self, missing: Missing, size: int) -> Expression:
        """``size`` members without own names that are all of the ``missing``, and the end."""
        pool = self._pool
        if missing == 0 or size == 0:
            return self._writer.end if missing == size == 0 else pool.empty
        between = self._writer.between if size > 1 else pool.epsilon
        return pool.union(
            [
                pool.concatenate(
                    self._blocks[missing, block], between, self._last(missing ^ block, size - 1)
                )
                for block in _parts(missing)
            ]
        )

    def _room(self, count: int) -> int | None:
        """Maximum members that may follow ``count`` members; None: no limit."""
        return None if self._high is None else self._high - count

    def _free_room(self, count: int, free: int) -> int | None:
        """Maximum free members in any order that may follow ``count`` members, of which ``free``
        are free; None: no limit."""
        rooms = [room for room in (self._room(count), self._most_free) if room is not None]
        if self._most_free is not None:
            rooms[-1] -= free
        if self._writer.once:
            rooms.append(1 - free)
        return min(rooms, default=None)


def _not_counted(nodes: Goal, reason: str) -> UnsupportedSchema:
    node = next(node for node in nodes if "minProperties" in node.schema)
    return UnsupportedSchema("minProperties", node.pointer_to("minProperties"), reason)


def _parts(chosen: Missing) -> list[Missing]:
    """The nonempty subsets of the set ``chosen``."""
    return [part for part in range(1, chosen + 1) if part & chosen == part]


def _chosen(wanted: tuple[Node, ...], chosen: Missing) -> list[Node]:
    return [node for bit, node in enumerate(wanted) if chosen >> bit & 1]


def _values(wanted: tuple[Node, ...], chosen: Missing) -> Goal:
    return tuple(node.schema[SOME_MEMBER].value for node in _chosen(wanted, chosen))
