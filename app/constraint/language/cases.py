"""Concatenations whose parts depend on independent choices, such as members under `if`/`then`.

A part is a table: entry m is the part under the demands in the bits of m; more demands leave a
smaller language. A choice has options, of which one is taken; an option makes demands on parts.
Combinations are not expanded: an answer drops options with unmet demands part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from app.constraint.language.nodes import INFINITE
from app.core.errors import ConstraintTooComplex

Table = tuple[int, ...]
Option = tuple[tuple[int, int], ...]
"""Demands: the index of a part, and bits of its table."""

_MOST_COMBINATIONS = 1_000
"""Maximum combinations examined for the length of one expression."""


class Cases(NamedTuple):
    """The entries of tables are expressions, or the lengths of their shortest strings."""

    parts: tuple[Table, ...]
    choices: tuple[tuple[Option, ...], ...]

    def branches(self) -> list[Cases]:
        """The cases after each option of the choice that affects the earliest part."""
        earliest = [min([n for option in c for n, _ in option], default=0) for c in self.choices]
        chosen = earliest.index(min(earliest))
        choices, found = self.choices[:chosen] + self.choices[chosen + 1 :], []
        for option in self.choices[chosen]:
            parts = list(self.parts)
            for index, bits in option:
                parts[index] = _with(parts[index], bits)
            found.append(Cases(tuple(parts), choices))
        return found

    def split(self) -> list[Cases]:
        """The cases for each set of demands that the first part may meet, without options that
        demand more of it. The more demands are met, the more options are left."""
        first, *others = self.parts
        return [
            Cases(((entry,), *others), tuple([_left(options, met) for options in self.choices]))
            for met, entry in enumerate(first)
        ]

    def mapped(self, entry: Callable[[int], int]) -> Cases:
        return Cases(tuple([tuple(map(entry, table)) for table in self.parts]), self.choices)

    def section(self, first: int, last: int) -> Cases:
        """The parts from ``first`` to before ``last``; no choice may affect others."""
        choices = [[tuple([(n - first, b) for n, b in o]) for o in c] for c in self.choices]
        return Cases(self.parts[first:last], tuple(map(tuple, choices)))

    def reduced(self, unite: Callable[[Iterable[int]], int], nothing: int) -> Cases | None:
        """The cases with choices resolved that affect at most one part; None if nothing is left. A
        table has a single entry if and only if no choice affects its part."""
        parts, choices, before = [*map(_plain, self.parts)], self.choices, -1
        while len(choices) != before:
            before, left = len(choices), []
            for choice in choices:
                options: dict[Option, None] = {}
                for option in choice:
                    if all(_with(parts[n], bits) != (nothing,) for n, bits in option):
                        matters = [(n, b) for n, b in option if _with(parts[n], b) != parts[n]]
                        options[tuple(matters)] = None
                if not options:
                    return None
                touched = {n for option in options for n, _ in option}
                if () in options:
                    continue  # it demands nothing and includes the other options
                if len(options) == 1:
                    for n, bits in next(iter(options)):
                        parts[n] = _with(parts[n], bits)
                elif len(touched) == 1:
                    (n,) = touched
                    rows = zip(*(_entries(parts[n], each[0][1]) for each in options), strict=True)
                    parts[n] = _plain(tuple([unite(row) for row in rows]))
                else:
                    left.append(tuple(options))
            choices = tuple(left)
        touched = {n for choice in choices for option in choice for n, _ in option}
        parts = [table if n in touched else table[:1] for n, table in enumerate(parts)]
        return None if (nothing,) in parts else Cases(tuple(parts), choices)

    def check(self, nothing: int) -> None:
        """Raises ``ConstraintTooComplex`` if ``nearest`` may have to examine too many combinations,
        of these parts or of their rests within an answer, whatever the lengths are.

        Equal parts and their rests have equal lengths; different parts are assumed to have
        different ones.
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
                    waiting += group.branches()
            if len(seen) > _MOST_COMBINATIONS:
                raise ConstraintTooComplex("too many dependencies between alternatives")

    def nearest(self, known: dict[Cases, int]) -> int:
        """The length of the shortest string, from the lengths of the parts. ``known``: cache of
        lengths, extended here; ``check`` bounds its growth."""

        def of(cases: Cases) -> int:
            found = cases.reduced(min, INFINITE)
            if found is None:
                return INFINITE
            total = sum([table[0] for table in found.parts if len(table) == 1])
            return min(INFINITE, total + sum([of_group(group) for _, group in found._groups()]))

        def of_group(group: Cases) -> int:
            length = known.get(group)
            if length is None:
                length = known[group] = min(map(of, group.branches()))
            return length

        return of(self)

    def shortest(self, length: Callable[[int], int], known: dict[Cases, int]) -> list[int]:
        """The expressions whose shortest strings make up a shortest string."""
        found = [table[0] for table in self.parts]
        for touched, group in self._groups():
            while group.choices:
                group = min(group.branches(), key=lambda left: left.mapped(length).nearest(known))
            for n, table in zip(touched, group.parts, strict=True):
                found[n] = table[0]
        return found

    def _groups(self) -> list[tuple[list[int], Cases]]:
        """Groups of choices that share parts, each with the indices of its parts."""
        groups: list[tuple[set[int], list[tuple[Option, ...]]]] = []
        for choice in self.choices:
            touched, together = {n for option in choice for n, _ in option}, [choice]
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
            choices = [tuple([tuple([(new[n], b) for n, b in o]) for o in c]) for c in together]
            found.append((old, Cases(tuple([self.parts[n] for n in old]), tuple(choices))))
        return found


def _left(options: tuple[Option, ...], met: int) -> tuple[Option, ...]:
    """The options whose demands on the first part are all in ``met``, without these demands."""
    return tuple(
        [
            tuple([(n, bits) for n, bits in option if n > 0])
            for option in options
            if not any(n == 0 and bits & ~met for n, bits in option)
        ]
    )


def _entries(table: Table, bits: int) -> Table:
    return table if len(table) == 1 else tuple([table[m | bits] for m in range(len(table))])


@lru_cache(1 << 14)
def _with(table: Table, bits: int) -> Table:
    return _plain(_entries(table, bits))


def _plain(table: Table) -> Table:
    return table[:1] if table.count(table[0]) == len(table) else table
