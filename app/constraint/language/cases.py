"""Concatenations whose parts depend on independent choices: what `if`/`then` pairs ask of members.

A part is a table: entry m is the part under the demands in the bits of m, and more demands leave
less of it. A choice has ways, of which one is taken; a way makes demands on parts. Combinations
are not expanded: an answer loses the ways whose demands it does not meet, part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from app.constraint.language.nodes import INFINITE
from app.core.errors import ConstraintTooComplex

Table = tuple[int, ...]
Way = tuple[tuple[int, int], ...]
"""Demands: the index of a part, and bits of its table."""

_MOST_COMBINATIONS = 1_000
"""Combinations that may be looked at for the length of one expression."""


class Cases(NamedTuple):
    """The entries of tables are expressions, or the lengths of their shortest strings."""

    parts: tuple[Table, ...]
    choices: tuple[tuple[Way, ...], ...]

    def taking(self) -> list[Cases]:
        """The cases after each way of the choice that demands something of the earliest part."""
        earliest = [min([n for way in ways for n, _ in way], default=0) for ways in self.choices]
        chosen = earliest.index(min(earliest))
        choices, found = self.choices[:chosen] + self.choices[chosen + 1 :], []
        for way in self.choices[chosen]:
            parts = list(self.parts)
            for index, bits in way:
                parts[index] = _with(parts[index], bits)
            found.append(Cases(tuple(parts), choices))
        return found

    def split(self) -> list[Cases]:
        """The cases for each set of demands that the first part may meet, without the ways that
        demand more of it. If more demands are met, more ways are left."""
        first, *others = self.parts
        return [
            Cases(((entry,), *others), tuple([_left(ways, met) for ways in self.choices]))
            for met, entry in enumerate(first)
        ]

    def mapped(self, entry: Callable[[int], int]) -> Cases:
        return Cases(tuple([tuple(map(entry, table)) for table in self.parts]), self.choices)

    def about(self, first: int, last: int) -> Cases:
        """The parts from ``first`` to before ``last``; no choice may demand anything of others."""
        ways = [[tuple([(n - first, b) for n, b in w]) for w in ways] for ways in self.choices]
        return Cases(self.parts[first:last], tuple(map(tuple, ways)))

    def reduced(self, unite: Callable[[Iterable[int]], int], nothing: int) -> Cases | None:
        """The cases without choices that affect at most one part; None if nothing is left. A table
        has one entry exactly if no choice affects its part."""
        parts, choices, before = [*map(_plain, self.parts)], self.choices, -1
        while len(choices) != before:
            before, left = len(choices), []
            for choice in choices:
                ways: dict[Way, None] = {}
                for way in choice:
                    if all(_with(parts[n], bits) != (nothing,) for n, bits in way):
                        matters = [(n, b) for n, b in way if _with(parts[n], b) != parts[n]]
                        ways[tuple(matters)] = None
                if not ways:
                    return None
                touched = {n for way in ways for n, _ in way}
                if () in ways:
                    continue  # it demands nothing: the other ways are parts of this one
                if len(ways) == 1:
                    for n, bits in next(iter(ways)):
                        parts[n] = _with(parts[n], bits)
                elif len(touched) == 1:
                    (n,) = touched
                    rows = zip(*(_entries(parts[n], way[0][1]) for way in ways), strict=True)
                    parts[n] = _plain(tuple([unite(row) for row in rows]))
                else:
                    left.append(tuple(ways))
            choices = tuple(left)
        touched = {n for choice in choices for way in choice for n, _ in way}
        parts = [table if n in touched else table[:1] for n, table in enumerate(parts)]
        return None if (nothing,) in parts else Cases(tuple(parts), choices)

    def check(self, nothing: int) -> None:
        """Raises ``ConstraintTooComplex`` where ``nearest`` may have too many combinations to look
        at, whatever the lengths are: of these parts, and in an answer of what is left of them.

        Equal parts have equal lengths, as has what is left of them; of others none is taken to be
        as long as another.
        """
        united: dict[frozenset[int], int] = {}

        def unite(entries: Iterable[int]) -> int:
            some = frozenset(entries) - {nothing}
            return (
                united.setdefault(some, -1 - len(united)) if len(some) > 1 else (*some, nothing)[0]
            )

        seen, waiting = set[Cases](), [self]
        while waiting:
            found = waiting.pop().reduced(unite, nothing)
            for _, group in found._groups() if found else ():
                if group not in seen:
                    seen.add(group)
                    waiting += group.taking()
            if len(seen) > _MOST_COMBINATIONS:
                raise ConstraintTooComplex("too many dependencies between alternatives")

    def nearest(self, known: dict[Cases, int]) -> int:
        """The length of the shortest string, from the lengths of the parts. ``known``: cache of the
        lengths of other cases, extended here. ``check`` bounds how many there may be."""

        def of(cases: Cases) -> int:
            found = cases.reduced(min, INFINITE)
            if found is None:
                return INFINITE
            total = sum([table[0] for table in found.parts if len(table) == 1])
            return min(INFINITE, total + sum([of_group(group) for _, group in found._groups()]))

        def of_group(group: Cases) -> int:
            length = known.get(group)
            if length is None:
                length = known[group] = min(map(of, group.taking()))
            return length

        return of(self)

    def shortest(self, length: Callable[[int], int], known: dict[Cases, int]) -> list[int]:
        """The expressions that a shortest string is made of."""
        found = [table[0] for table in self.parts]
        for touched, group in self._groups():
            while group.choices:
                group = min(group.taking(), key=lambda left: left.mapped(length).nearest(known))
            for n, table in zip(touched, group.parts, strict=True):
                found[n] = table[0]
        return found

    def _groups(self) -> list[tuple[list[int], Cases]]:
        """The choices, by what parts they have in common, each with these parts alone."""
        groups: list[tuple[set[int], list[tuple[Way, ...]]]] = []
        for choice in self.choices:
            touched, together = {n for way in choice for n, _ in way}, [choice]
            apart = []
            for group in groups:
                if touched.isdisjoint(group[0]):
                    apart.append(group)
                else:
                    touched |= group[0]
                    together = group[1] + together
            groups = [*apart, (touched, together)]
        found = []
        for touched, together in groups:
            old = sorted(touched)
            new = {n: number for number, n in enumerate(old)}
            ways = [tuple([tuple([(new[n], b) for n, b in w]) for w in ways]) for ways in together]
            found.append((old, Cases(tuple([self.parts[n] for n in old]), tuple(ways))))
        return found


def _left(ways: tuple[Way, ...], met: int) -> tuple[Way, ...]:
    """The ways whose demands on the first part are all in ``met``, without these demands."""
    return tuple(
        [
            tuple([(n, bits) for n, bits in way if n > 0])
            for way in ways
            if not any(n == 0 and bits & ~met for n, bits in way)
        ]
    )


def _entries(table: Table, bits: int) -> Table:
    return table if len(table) == 1 else tuple([table[m | bits] for m in range(len(table))])


@lru_cache(1 << 14)
def _with(table: Table, bits: int) -> Table:
    return _plain(_entries(table, bits))


def _plain(table: Table) -> Table:
    return table[:1] if table.count(table[0]) == len(table) else table
