"""Arguments of functions as literals of another notation: see ``app.core.literals``."""

from __future__ import annotations

from typing import Any

from app.constraint.json.literals import LiteralText
from app.constraint.language.expressions import Expression
from app.constraint.schema.document import Goal
from app.constraint.schema.keywords import VERBATIM, restricts
from app.constraint.schema.logic.partial_branch import Branch
from app.constraint.schema.lowering.builder import SchemaBuilder
from app.constraint.schema.lowering.form import Form
from app.constraint.schema.lowering.unbracketed import ArgumentsBuilder, Unbracketed
from app.core.arguments import Arguments
from app.core.errors import UnsupportedSchema


class ArgumentList(Unbracketed, LiteralText):
    """The arguments of a call, and nothing around them."""

    def member(self, name: str, value: Expression) -> Expression:
        return self.named(name, self.notation.equals, value)

    def free_name(self, content: Expression | None) -> Expression:
        return self.bare_name(content)

    @property
    def _after_free_name(self) -> Expression:
        return self.pool.literal(self.notation.equals.encode())


class LiteralsBuilder(ArgumentsBuilder):
    """Builds the arguments of one function as literals."""

    def __init__(self, spec: Arguments, text: LiteralText) -> None:
        schema = spec.schema.schema
        super().__init__(spec, _sorted(schema) if text.notation.sorted_names else schema, text)
        self._literals = text.with_levels() if self._text.levels else text

    def _root(self) -> Expression:
        self._refuse(VERBATIM, "not in arguments that are not written as JSON")
        return super()._root()

    def _with_levels(self) -> SchemaBuilder:
        return LiteralsBuilder(self._spec, self._literals.with_levels())

    @property
    def _members(self) -> ArgumentList:
        text = self._literals
        return ArgumentList(text.pool, text.limits, text.notation, levels=text.levels, apart=False)

    def _object(self, value: dict[str, Any]) -> Expression:
        notation = self._literals.notation
        if not all(map(notation.can_name, value)) or not notation.can_write(value):
            return self._pool.empty
        return self._pool.literal(notation.arguments(value).encode())

    def _bare(self, goal: Goal, name: str | None) -> Expression:
        return self._pool.text(self._value(goal, 0), self._literals.notation_of_names)

    def _kind(self, branch: Branch, kind: str, depth: int, form: Form) -> Expression:
        if kind == "string" and not self._literals.notation.escaped:
            nodes = tuple(node for node in branch if restricts(node, kind))
            return self._literals.quoted(self._strings.bare(nodes, ()))
        return super()._kind(branch, kind, depth, form)

    def _written(self, branch: Branch, values: list[Any], depth: int, form: Form) -> Expression:
        sayable = [value for value in values if self._literals.notation.can_write(value)]
        if values and not sayable:
            reason = f"the model has no way to write {values[0]!r}"
            raise UnsupportedSchema("enum", "", reason)
        return super()._written(branch, sayable, depth, form)


def _sorted(schema: Any) -> Any:
    """``schema`` with all ``properties`` in the order of the alphabet."""
    if isinstance(schema, list):
        return [_sorted(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _sorted(each) for name, each in schema.items()}
    properties = found.get("properties")
    if isinstance(properties, dict):
        found["properties"] = dict(sorted(properties.items(), key=lambda item: item[0].lower()))
    return found
