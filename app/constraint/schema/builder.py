"""From a JSON Schema to an expression: every string of it is a valid value, written one way."""

from __future__ import annotations

from typing import Any

from app.constraint.expressions import Expression
from app.constraint.json_text import JsonText
from app.constraint.limits import Limits
from app.constraint.schema.branches import Branch, Branches
from app.constraint.schema.document import Document, Goal, Node
from app.constraint.schema.evaluation import Evaluation, admits_type, identity, type_of
from app.constraint.schema.keywords import TYPES, refuse_unsupported, restricts
from app.constraint.schema.numeric import build_numbers
from app.constraint.schema.objects import array_shape, object_shape, write_array, write_object
from app.constraint.schema.strings import Strings
from app.core.errors import ConstraintTooComplex

_DEEPEST = 24
"""Goals inside goals built on one stack; deeper ones become rules and are built after."""


class SchemaBuilder:
    """Builds one schema into the pool of ``text``.

    Goals with the same branches are built once. A goal met again inside itself becomes a rule, so
    recursive schemas have no depth limit.
    """

    def __init__(self, schema: Any, text: JsonText, limits: Limits, *, close: bool) -> None:
        self._text = text
        self._pool = text.pool
        self._limits = limits
        self._close = close
        self._document = Document(schema, limits)
        self._branches = Branches(self._document, limits)
        self._strings = Strings(text, limits)
        self._evaluation = Evaluation(self._branches, self._strings)
        self._known: dict[tuple[Branch, ...], Expression] = {}
        self._open: set[tuple[Branch, ...]] = set()
        self._waiting: list[tuple[tuple[Branch, ...], Expression]] = []
        self._built_branches: dict[Branch, Expression] = {}

    def build(self) -> Expression:
        """The values of the whole schema. Call once."""
        root = self.value((self._document.root,))
        while self._waiting:
            branches, rule = self._waiting.pop()
            self._pool.define_rule(rule, self._any_of(branches))
        return root

    def value(self, goal: Goal) -> Expression:
        """The values that satisfy ``goal``."""
        branches = self._branches.of(goal)
        known = self._known.get(branches)
        if known is not None:
            return known
        if branches in self._open or len(self._open) >= _DEEPEST:
            rule = self._known[branches] = self._pool.declare_rule()
            if branches not in self._open:
                self._waiting.append((branches, rule))
            return rule
        self._open.add(branches)
        built = self._any_of(branches)
        self._open.discard(branches)
        if branches in self._known:  # a rule, declared on the way
            self._pool.define_rule(self._known[branches], built)
        else:
            self._known[branches] = built
        return self._known[branches]

    def _any_of(self, branches: tuple[Branch, ...]) -> Expression:
        return self._pool.union([self._branch(branch) for branch in branches])

    def _branch(self, branch: Branch) -> Expression:
        known = self._built_branches.get(branch)
        if known is None:
            known = self._built_branches[branch] = self._branch_new(branch)
        return known

    def _branch_new(self, branch: Branch) -> Expression:
        if not branch:
            return self._text.any_value()
        for node in branch:
            if "const" in node.schema or "enum" in node.schema:
                return self._constants(branch, node)
        kinds = [kind for kind in TYPES if all(_admits_kind(node, kind) for node in branch)]
        return self._pool.union([self._kind(branch, kind) for kind in kinds])

    def _constants(self, branch: Branch, source: Node) -> Expression:
        """The values listed by ``source`` that the whole branch admits."""
        schema = source.schema
        values = [schema["const"]] if "const" in schema else schema["enum"]
        if len(values) > self._limits.choices:
            raise ConstraintTooComplex(f"more than {self._limits.choices} values in an enum")
        other = tuple(node for node in branch if node is not source)
        own = (source,) if any(restricts(source, kind) for kind in TYPES) else ()
        if "const" in schema and "enum" in schema:
            other, own = branch, ()
        distinct = {identity(value): value for value in reversed(values)}
        return self._pool.one_of(
            self._text.written(value)
            for value in reversed(distinct.values())
            if admits_type(schema, value)
            and self._evaluation.admits_content(own, type_of(value), value)
            and (not other or self._evaluation.branch_admits(other, value))
        )

    def _kind(self, branch: Branch, kind: str) -> Expression:
        """The values of one type that the branch admits."""
        text, nodes = self._text, tuple(node for node in branch if restricts(node, kind))
        for node in nodes:
            refuse_unsupported(node, kind)
        if kind == "null":
            return text.constant(None)
        if kind == "boolean":
            return self._pool.union([text.constant(True), text.constant(False)])
        if kind == "number":
            integers_only = any(_integers_only(node) for node in branch)
            return build_numbers(self._pool, nodes, self._limits, integers_only=integers_only)
        if kind == "string":
            return self._strings.build(nodes)
        if kind == "array":
            return write_array(text, array_shape(nodes), self.value)
        if not nodes:
            return text.any_object()
        return write_object(text, object_shape(nodes, close=self._close), self.value)


def _types(node: Node) -> list[str]:
    names = node.schema["type"]
    return names if isinstance(names, list) else [names]


def _admits_kind(node: Node, kind: str) -> bool:
    if "type" not in node.schema:
        return True
    return kind in _types(node) or (kind == "number" and "integer" in _types(node))


def _integers_only(node: Node) -> bool:
    return "type" in node.schema and "number" not in _types(node) and "integer" in _types(node)
