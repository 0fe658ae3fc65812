"""Names of free members (those without a name of their own), and the goals of their values.

Names fall into classes by the patterns of ``patternProperties`` they match; in a class all values
have the same goal. A class is a regular language, so ``additionalProperties`` beside patterns, and
``propertyNames``, are exact. Free names never repeat a declared one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from app.constraint.json.text import JsonText
from app.constraint.language.counting import Counting
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import Expression
from app.constraint.schema.document import Goal, Node
from app.constraint.schema.keywords import SOME_MEMBER
from app.constraint.schema.logic.evaluation import Evaluation
from app.constraint.schema.shapes import SomeMember, property_names
from app.constraint.schema.strings import Strings
from app.core.errors import ConstraintTooComplex

_MOST_CLASSES = 32
_MOST_LISTED = 32
_Classes = dict[frozenset[str], Expression]
"""The contents of names, by the patterns that they match."""


class FreeNames:
    """Computes names for one schema. ``contents`` gives the contents of strings of a goal."""

    def __init__(
        self,
        text: JsonText,
        strings: Strings,
        evaluation: Evaluation,
        contents: Callable[[Goal], Expression],
    ) -> None:
        self._text = text
        self._pool = text.pool
        self._strings = strings
        self._evaluation = evaluation
        self._contents = contents

    @cached_property
    def _derivatives(self) -> Derivatives:
        return Derivatives(self._pool)

    def admits(self, node: Node, name: str) -> bool:
        """Whether ``name``, as a string, satisfies ``node``."""
        return self._evaluation.admits((node,), name)

    def classes(
        self,
        nodes: Goal,
        declared: Sequence[str],
        wanted: Sequence[Node] = (),
        unwanted: Sequence[Node] = (),
    ) -> list[tuple[Expression | None, Goal]]:
        """Classes of names, none of them ``declared``, and the goals of their values.

        None stands for all names. ``wanted`` and ``unwanted`` are nodes with ``SOME_MEMBER``; only
        names that are right for all of the former, and for none of the latter.
        """
        patterns: dict[str, Node] = {}
        for node in nodes:
            for pattern in node.schema.get("patternProperties", ()):
                patterns.setdefault(pattern, node)
        parts = self._common_parts(nodes, declared)
        parts += [part for node in wanted for part in self._right_names(node)]
        for node in unwanted:
            right = self._pool.intersect((self._text.any_content, *self._right_names(node)))
            parts.append(self._pool.complement(right))
        if not parts and not patterns:
            return [(None, _goal(nodes, frozenset()))]
        classes = {frozenset[str](): self._pool.intersect((self._text.any_content, *parts))}
        for pattern, node in patterns.items():
            classes = self._split(classes, pattern, node)
            if len(classes) > _MOST_CLASSES:
                raise ConstraintTooComplex("too many overlapping patternProperties")
        by_goal: dict[Goal, list[Expression]] = {}
        for matched, content in classes.items():
            by_goal.setdefault(_goal(nodes, matched), []).append(content)
        return [(self._pool.union(contents), goal) for goal, contents in by_goal.items()]

    def few(self, nodes: Goal, declared: Sequence[str], wanted: Node) -> list[str]:
        """The names that are right for ``wanted``, a node with ``SOME_MEMBER``, where they are few;
        none of them ``declared``."""
        parts = [*self._common_parts(nodes, declared), *self._right_names(wanted)]
        names = self._pool.intersect((self._text.any_content, *parts))
        counting = Counting(self._derivatives)
        if counting.count(names, _MOST_LISTED + 1) > _MOST_LISTED:
            return []
        return [self._text.read(text) for text in counting.strings(names)]

    def _common_parts(self, nodes: Goal, declared: Sequence[str]) -> list[Expression]:
        parts = [self._contents((names,)) for names in property_names(nodes)]
        return [self._text.names_but(declared), *parts] if declared else parts

    def _right_names(self, node: Node) -> list[Expression]:
        """Expressions whose intersection is the names that fit a node with ``SOME_MEMBER``."""
        some: SomeMember = node.schema[SOME_MEMBER]
        parts = [self._text.names_but(some.names)] if some.names else []
        if some.matching is not None:
            parts.append(self._strings.key_pattern(node, some.matching))
        parts += [self._strings.key_pattern(node, each, matches=False) for each in some.patterns]
        if some.name is not None:
            parts.append(self._contents((some.name,)))
        return parts

    def _split(self, classes: _Classes, pattern: str, node: Node) -> _Classes:
        """Each class by whether its names match ``pattern``, without empty ones."""
        inside = self._strings.key_pattern(node, pattern)
        outside = self._strings.key_pattern(node, pattern, matches=False)
        parts = {}
        for matched, content in classes.items():
            parts[matched | {pattern}] = self._pool.intersect((content, inside))
            parts[matched] = self._pool.intersect((content, outside))
        return {m: part for m, part in parts.items() if self._derivatives.is_alive(part)}


def _goal(nodes: Goal, matched: frozenset[str]) -> Goal:
    """The subschemas of ``nodes`` for a value whose name matches exactly these patterns."""
    goal: list[Node] = []
    for node in nodes:
        patterns = [p for p in node.schema.get("patternProperties", ()) if p in matched]
        goal += [node.child("patternProperties", pattern) for pattern in patterns]
        if not patterns and "additionalProperties" in node.schema:
            goal.append(node.child("additionalProperties"))
    return tuple(goal)
