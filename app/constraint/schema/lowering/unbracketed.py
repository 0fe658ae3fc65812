"""Arguments of functions that are no JSON object: its members, without brackets around them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from app.constraint.json.text import JsonText
from app.constraint.language.expressions import Expression
from app.constraint.schema.document import Goal
from app.constraint.schema.keywords import EXACT_CHOICE, kinds_of, restricts
from app.constraint.schema.logic.partial_branch import Branch
from app.constraint.schema.lowering.builder import SchemaBuilder
from app.constraint.schema.lowering.object_text import ObjectWriter
from app.constraint.schema.objects import object_shape
from app.core.arguments import Arguments
from app.core.errors import UnsupportedSchema


class Unbracketed(JsonText):
    """The members of an object, and nothing around them."""

    @property
    def empty(self) -> Expression:
        """No members."""
        return self.pool.epsilon

    def end(self, bracket: bytes, depth: int) -> Expression:
        return self.pool.epsilon

    def begun(
        self,
        bracket: bytes,
        items: Expression,
        *,
        may_be_empty: bool,
        depth: int,
        level: bool = True,
    ) -> Expression:
        return self.pool.union((items, self.empty)) if may_be_empty else items


class ArgumentsBuilder(SchemaBuilder, ABC):
    """Builds the arguments of one function."""

    def __init__(self, spec: Arguments, schema: Any, text: JsonText) -> None:
        super().__init__(schema, text, close=spec.schema.close_objects)
        self._spec = spec

    @property
    @abstractmethod
    def _members(self) -> JsonText:
        """Writes the outermost object."""

    @abstractmethod
    def _object(self, value: dict[str, Any]) -> Expression:
        """One object of an ``enum``."""

    @abstractmethod
    def _bare(self, goal: Goal, name: str | None) -> Expression:
        """The values of an argument."""

    def _root(self) -> Expression:
        self._refuse(EXACT_CHOICE, "not in arguments that are not written as JSON")
        branches = self._branches.of((self._document.root,))
        return self._pool.union([self._objects(branch) for branch in branches])

    def _refuse(self, keyword: str, reason: str) -> None:
        for node in self._document.nodes_with(keyword):
            raise UnsupportedSchema(keyword, node.pointer_to(keyword), reason)

    def _objects(self, branch: Branch) -> Expression:
        """The objects that a branch of the whole schema admits."""
        values = self._listed(branch)
        if values is not None:
            objects = [value for value in values if isinstance(value, dict)]
            return self._pool.union([self._object(value) for value in objects])
        if "object" not in kinds_of(branch):
            return self._pool.empty
        nodes = tuple(node for node in branch if restricts(node, "object"))
        shape = object_shape(nodes, self._strings.key_matches, close=self._close)
        writer = ObjectWriter(
            self._members, self._strings, self._free_names, self._bare, self._plenty, 0
        )
        return writer.write(nodes, shape)
