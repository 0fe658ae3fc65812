"""Arguments of functions that are not a JSON object: members without brackets around them.

Either one text for each: strings as they are, other values as JSON (``ParametersBuilder``; see
``app.core.arguments`` for the rules by which such texts are read: a text that would be read as
another value is not admitted). Or literals of another notation (``LiteralsBuilder``; see
``app.core.literals``).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from app.constraint.cached_method import cached_method
from app.constraint.json.literals import LiteralText
from app.constraint.json.text import JsonText, json_text
from app.constraint.language.codepoints import negate, ranges, utf8
from app.constraint.language.expressions import Expression
from app.constraint.regex.lowering import Lowering
from app.constraint.regex.parser import parse
from app.constraint.schema.document import Goal
from app.constraint.schema.keywords import EXACT_CHOICE, VERBATIM, kinds_of, restricts
from app.constraint.schema.logic.applicators import Branch
from app.constraint.schema.lowering.builder import SchemaBuilder, words_of
from app.constraint.schema.lowering.distinct_items import Form
from app.constraint.schema.lowering.object_text import ObjectWriter
from app.constraint.schema.shapes import object_shape
from app.core.arguments import (
    KINDS,
    NUMBER,
    Arguments,
    Kind,
    Parameters,
    Readings,
    json_kind,
    kind_of,
)
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
        self, bracket: bytes, items: Expression, *, may_be_empty: bool, **layout: Any
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
        self._refuse(EXACT_CHOICE, "not supported in arguments that are not JSON")
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
            self._members, self._strings, self._free_names, self._bare, self._distinct_counts, 0
        )
        return writer.write(nodes, shape)


_NOT_IN_NAMES = b'"&<>\\'
"""Characters that names of free members cannot have: marks and escapes begin with them."""

_WORDS = ("null", "boolean")
_SURROGATE = re.compile("[\ud800-\udfff]")

_Kinds = frozenset[Kind]


class ParameterText(Unbracketed):
    """The members of an object as parameters, and nothing around them or between them."""

    def __init__(self, text: JsonText, notation: Parameters, readings: Readings) -> None:
        super().__init__(text.pool, text.limits, text.whitespace, apart=False)
        self._notation = notation
        self._readings = readings

    def between(self, depth: int) -> Expression:
        return self.pool.epsilon

    @property
    def empty(self) -> Expression:
        """No arguments."""
        return self.pool.literal(self._notation.empty.encode())

    def member(self, name: str, value: Expression) -> Expression:
        if not self._notation.can_name(name):
            reason = f"this model's tool format ({self._notation.before!r}) cannot write {name!r}"
            raise UnsupportedSchema("properties", "/properties", reason)
        return self.pool.concatenate(self._before(name), value)

    def free_member(self, content: Expression | None, value: Expression) -> Expression:
        """A member with a name that is not declared; ``content``: its names in JSON's spelling.

        The name consists of characters that are spelled the same with quotes and without.
        """
        names = self._free_names
        if content is not None:
            names = self.pool.intersect((content, names))
        return self.pool.concatenate(self._before(""), names, value)

    @property
    def _free_names(self) -> Expression:
        pool, taken = self.pool, self._readings.declared
        reserved = ranges([(0, 0x1F), *((byte, byte) for byte in _NOT_IN_NAMES)])
        names = pool.repeat(utf8(pool, negate(ranges((*reserved, (0xD800, 0xDFFF))))))
        declared = pool.one_of(json_text(name)[1:-1] for name in taken)
        return pool.intersect((names, pool.complement(declared)))

    def _before(self, name: str) -> Expression:
        return self.pool.literal((self._notation.before + name).encode())


class ParametersBuilder(ArgumentsBuilder):
    """Builds the arguments of one function as parameters."""

    def __init__(self, spec: Arguments, notation: Parameters, text: JsonText) -> None:
        super().__init__(spec, spec.schema.schema, text)
        self._notation = notation
        self._readings = Readings(spec.read_by)

    def _root(self) -> Expression:
        if self._notation.nested is not None:
            self._refuse(VERBATIM, "not supported in values that are not JSON")
        return super()._root()

    def _with_levels(self) -> SchemaBuilder:
        return ParametersBuilder(self._spec, self._notation, self._text.with_levels())

    @property
    def _members(self) -> ParameterText:
        return ParameterText(self._text, self._notation, self._readings)

    def _object(self, value: dict[str, Any]) -> Expression:
        text, members = self._members, list[Expression]()
        for name, member in value.items():
            written = self._written_bare([member], self._readings.kinds(name))
            members.append(text.member(name, self._ended(written)))
        return self._pool.concatenate(*members) if members else text.empty

    def _bare(self, goal: Goal, name: str | None) -> Expression:
        """The values of a parameter, with the text between the name and them and after them."""
        kinds = self._readings.kinds(name)
        branches = self._branches.of(goal)
        return self._ended(self._pool.union([self._bare_branch(each, kinds) for each in branches]))

    def _ended(self, value: Expression) -> Expression:
        return self._pool.concatenate(value, self._pool.literal(self._notation.after.encode()))

    @cached_method
    def _bare_branch(self, branch: Branch, kinds: _Kinds) -> Expression:
        values = self._listed(branch)
        if values is not None:
            return self._written_bare(values, kinds)
        found = [kind for kind in KINDS if kind in kinds and kind in kinds_of(branch)]
        return self._pool.union([self._bare_kind(branch, kind, kinds) for kind in found])

    def _bare_kind(self, branch: Branch, kind: Kind, kinds: _Kinds) -> Expression:
        """The values of one type; a parameter may be of ``kinds``."""
        nodes = tuple(node for node in branch if restricts(node, kind))
        if kind == "string":
            text = self._strings.bare(nodes, self._not_bare(self._beside("string", kinds)))
        elif kind == "null" or kind == "boolean":
            return self._written_bare(words_of(kind, nodes), kinds)
        else:
            text = self._kind(branch, kind, 0, Form.ANY)
            text = self._pool.text(text, self._text.notation_of_names)
        between = self._notation.between_of(kind)
        return self._pool.concatenate(self._pool.literal(between.encode()), text)

    def _beside(self, kind: Kind, kinds: _Kinds) -> _Kinds:
        """Those of ``kinds`` that a reader cannot tell from ``kind`` by the text before a value."""
        return self._notation.kinds_behind(self._notation.between_of(kind), kinds)

    def _written_bare(self, values: list[Any], kinds: _Kinds) -> Expression:
        """Texts of those ``values`` that are read as the same value."""
        texts = [text for value in values for text in self._spellings(value, kinds)]
        if values and not texts:
            reason = f"{values[0]!r} cannot be told from other allowed values"
            raise UnsupportedSchema("enum", "", reason)
        return self._pool.one_of(texts)

    def _spellings(self, value: Any, kinds: _Kinds) -> Iterator[bytes]:
        """The texts of ``value``, each with the text between the name and it."""
        kind = json_kind(value)
        between = self._notation.between_of(kind)
        if isinstance(value, str):
            known = kind_of(value, self._beside(kind, kinds), self._notation.words) == "string"
            if known and self._notation.stop not in value and not _SURROGATE.search(value):
                yield (between + value).encode()
        elif kind not in kinds:
            return
        elif value is None or isinstance(value, bool):
            for text, word in self._notation.words.items():
                if word is value:
                    yield (between + text).encode()
        else:
            yield between.encode() + self._text.written(value)

    def _not_bare(self, beside: _Kinds) -> list[Expression]:
        """Texts not read as strings if a parameter may be of ``beside``: see ``kind_of``."""
        pool, notation = self._pool, self._notation
        stop = pool.literal(notation.stop.encode())
        words = [text for text in notation.words if kind_of(text, beside, notation.words) in _WORDS]
        found = [
            pool.concatenate(pool.everything, stop, pool.everything),
            pool.one_of(map(str.encode, words)),
        ]
        for kind, bracket in (("array", b"["), ("object", b"{")):
            if kind in beside:
                found.append(pool.concatenate(pool.literal(bracket), pool.everything))
        if "number" in beside:
            tree = parse(NUMBER.pattern, self._limits)
            found.append(Lowering(pool, lambda members: utf8(pool, members)).whole(tree))
        return found


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
        self._literals = text

    def _root(self) -> Expression:
        self._refuse(VERBATIM, "not supported in arguments that are not JSON")
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
            reason = f"this model's tool format cannot write {values[0]!r}"
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
