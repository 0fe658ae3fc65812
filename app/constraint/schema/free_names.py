"""The names that members without a name of their own may have, and what their values must be.

Names fall into classes by the patterns of ``patternProperties`` they match; in a class all values
have the same goal. A class is a regular language, so ``additionalProperties`` beside patterns, and
``propertyNames``, are exact. Free names never repeat a declared one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from app.constraint.derivatives import Derivatives
from app.constraint.expressions import INFINITE, Expression
from app.constraint.json_text import JsonText
from app.constraint.schema.document import Goal, Node
from app.constraint.schema.evaluation import Evaluation
from app.constraint.schema.keywords import SOME_MEMBER
from app.constraint.schema.objects import SomeMember
from app.constraint.schema.strings import Strings
from app.core.errors import ConstraintTooComplex

_MOST_CLASSES = 64


@dataclass(frozen=True, slots=True)
class _Class:
    """Names that match the same patterns: ``parts`` hold together."""

    parts: tuple[Expression, ...]
    matched: frozenset[str]


class FreeNames:
    """Works out names for one schema. ``contents`` gives the contents of strings of a goal."""

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
        self._derivatives = Derivatives(text.pool)

    def admits(self, node: Node, name: str) -> bool:
        """Whether ``name``, as a string, satisfies ``node``."""
        return self._evaluation.admits((node,), name)

    def allowed(self, nodes: Goal, name: str) -> bool:
        """Whether ``propertyNames`` of ``nodes`` admits ``name``."""
        return all(self.admits(names, name) for names in _property_names(nodes))

    def classes(
        self, nodes: Goal, declared: Sequence[str], wanted: Sequence[Node] = ()
    ) -> list[tuple[Expression | None, Goal]]:
        """Classes of names, none of them ``declared``, and the goals of their values.

        None stands for all names. ``wanted``: nodes with ``SOME_MEMBER``; only names that are
        right for all of them.
        """
        patterns: dict[str, Node] = {}
        for node in nodes:
            for pattern in node.schema.get("patternProperties", ()):
                patterns.setdefault(pattern, node)
        some: list[tuple[Node, SomeMember]] = [(node, node.schema[SOME_MEMBER]) for node in wanted]
        classes = [_Class(self._common_parts(nodes, declared, some), frozenset())]
        if not classes[0].parts and not patterns:
            return [(None, _goal(nodes, frozenset()))]
        for pattern, node in patterns.items():
            classes = [part for whole in classes for part in self._split(whole, pattern, node)]
            if len(classes) > _MOST_CLASSES:
                raise ConstraintTooComplex("too many patterns of names that overlap")
        by_goal: dict[Goal, list[Expression]] = {}
        for found in classes:
            content = self._pool.intersect((self._text.any_content, *found.parts))
            by_goal.setdefault(_goal(nodes, found.matched), []).append(content)
        return [(self._pool.union(contents), goal) for goal, contents in by_goal.items()]

    def _common_parts(
        self, nodes: Goal, declared: Iterable[str], some: list[tuple[Node, SomeMember]]
    ) -> tuple[Expression, ...]:
        parts = []
        taken = {*declared}.union(*(each.names for _, each in some))
        if taken:
            parts.append(self._text.names_but(taken))
        parts += [self._contents((names,)) for names in _property_names(nodes)]
        for node, each in some:
            if each.matching is not None:
                parts.append(self._strings.key_pattern(node, each.matching))
            for pattern in each.patterns:
                parts.append(self._strings.key_pattern(node, pattern, matches=False))
            if each.name is not None:
                parts.append(self._contents((each.name,)))
        return tuple(parts)

    def _split(self, whole: _Class, pattern: str, node: Node) -> list[_Class]:
        """The names of a class that match ``pattern`` and those that do not, if there are any."""
        inside = self._strings.key_pattern(node, pattern)
        outside = self._strings.key_pattern(node, pattern, matches=False)
        parts = [
            _Class((*whole.parts, inside), whole.matched | {pattern}),
            replace(whole, parts=(*whole.parts, outside)),
        ]
        return [part for part in parts if self._is_there(part)]

    def _is_there(self, names: _Class) -> bool:
        content = self._pool.intersect((self._text.any_content, *names.parts))
        return self._derivatives.length(content) < INFINITE


def _property_names(nodes: Goal) -> list[Node]:
    return [node.child("propertyNames") for node in nodes if "propertyNames" in node.schema]


def _goal(nodes: Goal, matched: frozenset[str]) -> Goal:
    """What ``nodes`` ask of a value whose name matches these patterns and no others."""
    goal: list[Node] = []
    for node in nodes:
        patterns = [p for p in node.schema.get("patternProperties", ()) if p in matched]
        goal += [node.child("patternProperties", pattern) for pattern in patterns]
        if not patterns and "additionalProperties" in node.schema:
            goal.append(node.child("additionalProperties"))
    return tuple(goal)
