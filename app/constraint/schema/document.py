"""A schema as a document: nodes named by JSON Pointer, its dialect, and references within it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from app.constraint.cached_method import cached_method
from app.constraint.limits import Limits
from app.core.constraint import Relaxation
from app.core.errors import ConstraintError, ConstraintTooComplex, InvalidSchema, UnsupportedSchema


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A subschema, known by its JSON Pointer (RFC 6901).

    ``aspect`` is "" for the subschema as it is written; other aspects are made of it, such as its
    negation, and their ``schema`` may hold nodes in the place of subschemas. All that comes from
    one root is made once, so nodes of one pointer and aspect are the same object.
    """

    pointer: str
    schema: Any
    aspect: str = ""
    _made: dict[tuple[str, str], Node] = field(default_factory=dict, repr=False)
    """All nodes of this root by pointer and aspect."""
    _children: dict[tuple[str | int, ...], Node] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        self._made[self.pointer, self.aspect] = self

    def child(self, *tokens: str | int) -> Node:
        """The subschema below, by keys and indices that are there."""
        known = self._children.get(tokens)
        if known is None:
            pointer, value = self.pointer, self.schema
            for token in tokens:
                pointer += "/" + escape_token(str(token))
                value = value[token]
            if not isinstance(value, Node):
                # derived nodes may have a boolean where the schema has something else
                value = self._at(pointer, str(value) if isinstance(value, bool) else "", value)
            known = self._children[tokens] = value
        return known

    def children(self, keyword: str) -> list[Node]:
        """The subschemas that ``keyword`` lists, none where it is not there."""
        return [self.child(keyword, n) for n in range(len(self.schema.get(keyword, ())))]

    def pointer_to(self, keyword: str) -> str:
        """The pointer to a keyword of this subschema."""
        return f"{self.pointer}/{escape_token(keyword)}"

    def inexact(self, keyword: str, reason: str) -> Relaxation:
        """A note that a keyword, which validators read differently, is enforced in one reading."""
        return Relaxation(self.pointer_to(keyword), keyword, reason, self.pointer, inexact=True)

    def made(self, aspect: str, schema: Any) -> Node:
        """A node derived from this one; errors about its keywords point to this node.

        ``aspect`` distinguishes it from the other nodes derived at this pointer.
        """
        return self._at(self.pointer, aspect, schema)

    def boolean(self, schema: bool) -> Node:
        """The boolean schema in the place of this one."""
        return self._at(self.pointer, str(schema), schema)

    def _at(self, pointer: str, aspect: str, schema: Any) -> Node:
        return self._made.get((pointer, aspect)) or Node(pointer, schema, aspect, self._made)


Goal = tuple[Node, ...]
"""Subschemas that one value must satisfy all together; () is satisfied by every value."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences between the drafts. Older forms of ``items``, ``dependencies`` and boolean
    exclusive bounds are understood in all of them."""

    identifier: str
    """The keyword that names a resource."""
    lonely_ref: bool
    """Whether keywords beside ``$ref`` are ignored."""
    foreign: frozenset[str] = frozenset()
    """Keywords that the draft does not know and that would make others mean something else."""
    unknown: frozenset[str] = frozenset()
    """Other keywords that the draft does not know. They are enforced: schemas with them mean them,
    and validators that ignore them admit more; their negations cause a warning."""
    contains_evaluates: bool = True
    """Whether items that satisfy ``contains`` are evaluated for ``unevaluatedItems``."""


_MODERN = Dialect("$id", lonely_ref=False, unknown=frozenset(["dependencies"]))
_OF_2019 = frozenset(["minContains", "maxContains"])
_OF_2020 = frozenset(["prefixItems"])
_AFTER_7 = frozenset(["dependentRequired", "dependentSchemas"])
_AFTER_6 = _AFTER_7 | {"if"}
_AFTER_4 = _AFTER_6 | {"const", "contains", "propertyNames"}
_7 = Dialect("$id", lonely_ref=True, foreign=_OF_2019 | _OF_2020, unknown=_AFTER_7)
_4 = replace(_7, identifier="id", unknown=_AFTER_4)
_DIALECTS = {
    "draft-04": _4,
    "draft-05": _4,
    "draft-06": replace(_7, unknown=_AFTER_6),
    "draft-07": _7,
    "draft/2019-09": replace(_MODERN, foreign=_OF_2020, contains_evaluates=False),
    "draft/2020-12": _MODERN,
    "schema": _MODERN,
}
_Path = tuple[str | int, ...]
"""The keys and indices that lead from a node to another one below."""
SUBSCHEMA = frozenset(
    ["additionalItems", "additionalProperties", "contains", "contentSchema", "items", "not"]
) | frozenset(["if", "then", "else", "propertyNames", "unevaluatedItems", "unevaluatedProperties"])
SUBSCHEMA_LISTS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
SUBSCHEMA_MAPS = frozenset(
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"]
)


_IDENTIFIERS = frozenset(["$id", "id"])
_NAMES = _IDENTIFIERS | {"$anchor", "$dynamicAnchor"}
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
_METASCHEMA = re.compile(r"http://json-schema\.org/draft-0[467]/schema(?=#|$)")
"""Addresses of the metaschemas that can be enforced."""
_PLACED = frozenset(["x-verbatim", "unevaluatedItems", "unevaluatedProperties"])
"""Keywords whose place matters: it is reported, or the keywords beside it have an effect."""


def escape_token(token: str) -> str:
    return token.replace("~", "~0").replace("/", "~1")


class Document:
    """The whole schema. Raises ``ConstraintTooComplex`` if it passes ``limits``."""

    def __init__(self, schema: Any, limits: Limits) -> None:
        self._keys, inner, self._metaschemas, self.num_values = _checked_keys(schema, limits)
        self._dialect = _dialect(schema)
        named = "$schema" in inner and not inner.isdisjoint(_IDENTIFIERS)
        self._has_drafts = named or bool(self._metaschemas)
        """Whether resources inside may name a draft of their own."""
        plain = not self._has_drafts and not self._dialect.foreign
        self.root = Node("", schema if plain else _without(self._dialect.foreign, schema))
        self.read_as: dict[Relaxation, None] = {}
        """Notes about keywords that are read as in later drafts."""

    @cached_property
    def _index(self) -> _Index:
        return _Index(self.root, self._dialect, self._keys, self._metaschemas)

    def dialect(self, node: Node) -> Dialect:
        """Dialect of the resource that contains ``node``."""
        if not self._has_drafts:
            return self._dialect
        return self._index.dialects.get(self._index.base(node.pointer), self._dialect)

    @property
    def says_unknown(self) -> bool:
        """Whether keywords that its draft does not know are in it (or members called so)."""
        dialects = [self._dialect]
        if self._has_drafts:
            dialects += self._index.dialects.values()
        return any(not dialect.unknown.isdisjoint(self._keys) for dialect in dialects)

    def nodes_with(self, keyword: str) -> Iterator[Node]:
        """All nodes that have ``keyword``. Costs O(schema) where there is one."""
        stack: list[tuple[Any, _Path]] = [(self.root.schema, ())] if keyword in self._keys else []
        while stack:
            schema, path = stack.pop()
            if isinstance(schema, dict):
                if keyword in schema:
                    yield self.root.child(*path)
                stack.extend((child, path + tokens) for tokens, child in subschemas(schema))

    def find(self, pointer: str) -> Node | None:
        """The node at a JSON Pointer; None if there is none."""
        return _find_below(self.root, pointer)

    @property
    def places_count(self) -> bool:
        """Whether equal subschemas may mean different things at different places."""
        return self._index.base_changes or not _PLACED.isdisjoint(self._keys)

    def only_refers(self, node: Node) -> bool:
        """Whether ``$ref`` is all that counts of ``node``, as older drafts have it."""
        return "$ref" in node.schema and self.dialect(node).lonely_ref

    def references(self, node: Node) -> list[Node]:
        """The targets of the references of ``node``, which must be in this document.

        Dynamic references are followed where their target is plain without a dynamic scope.
        """
        keywords = ("$ref",) if self.only_refers(node) else ("$ref", "$dynamicRef", "$recursiveRef")
        return [self._resolve(node, keyword) for keyword in keywords if keyword in node.schema]

    @cached_method
    def _resolve(self, node: Node, keyword: str) -> Node:
        reference, pointer = node.schema[keyword], node.pointer_to(keyword)
        if not isinstance(reference, str):
            raise InvalidSchema(f"{keyword} must be a string", pointer=pointer)
        index = self._index
        address, _, fragment = reference.partition("#")
        base = _join(index.base(node.pointer), address)
        resource = index.resources.get(base)
        if resource is None:
            raise UnsupportedSchema(keyword, pointer, self._elsewhere(reference))
        fragment = unquote(fragment)
        if keyword == "$dynamicRef" and index.dynamic_anchors.get(fragment, 0) > 1:
            reason = f"there is more than one $dynamicAnchor {fragment!r}"
            raise UnsupportedSchema(keyword, pointer, reason)
        if keyword == "$recursiveRef" and index.base_changes:
            raise UnsupportedSchema(keyword, pointer, "not supported with embedded $ids")
        if not fragment:
            return resource
        if not fragment.startswith("/"):
            if (base, fragment) not in index.anchors:
                reason = f"{keyword} {reference!r} names an anchor that does not exist"
                raise InvalidSchema(reason, pointer=pointer)
            return index.anchors[base, fragment]
        target = _find_below(resource, fragment)
        if target is None:
            raise InvalidSchema(f"{keyword} {reference!r} does not resolve", pointer=pointer)
        return target

    def _elsewhere(self, reference: str) -> str:
        """The reason for refusing a reference to another document."""
        path = f"/{reference.lstrip('/')}"
        if self.find(path) is not None:
            return f"{reference!r} refers to another document; write '#{path}'"
        return (
            f"{reference!r} is another document, and the server fetches none; include it under "
            "'$defs' with its '$id'"
        )


class _Index:
    """Resources (``$id``) and anchors of a document, by their absolute addresses."""

    def __init__(
        self, root: Node, dialect: Dialect, keys: set[str], metaschemas: Iterable[str]
    ) -> None:
        """``metaschemas``: addresses of metaschemas, treated as parts of the document."""
        self.resources: dict[str, Node] = {"": root}
        self.dialects: dict[str, Dialect] = {}
        """Dialects of resources, by address."""
        self.anchors: dict[tuple[str, str], Node] = {}
        self.dynamic_anchors: dict[str, int] = {}
        self._bases: dict[str, str] = {}
        """Base addresses by pointer, of the nodes that change it."""
        if not _NAMES.isdisjoint(keys):
            self._walk(root, dialect)
        for address in metaschemas:
            from jsonschema_specifications import REGISTRY  # most processes never need it

            if address not in self.resources:
                schema = REGISTRY.contents(address)
                self._walk(Node(address, schema, "", root._made), _dialect(schema))

    def _walk(self, root: Node, dialect: Dialect) -> None:
        stack: list[tuple[Any, _Path, str, Dialect]] = [(root.schema, (), "", dialect)]
        while stack:
            schema, path, base, dialect = stack.pop()
            if isinstance(schema, dict):
                if not _NAMES.isdisjoint(schema):
                    node = root.child(*path) if path else root
                    if "$schema" in schema and not _IDENTIFIERS.isdisjoint(schema):
                        dialect = _dialect(schema, node.pointer)
                    base = self._add(node, base, dialect)
                for tokens, child in subschemas(schema):
                    stack.append((child, path + tokens, base, dialect))

    @property
    def base_changes(self) -> bool:
        """Whether the target of a reference depends on its place."""
        return any(pointer for pointer in self._bases)

    def base(self, pointer: str) -> str:
        """The address that references at ``pointer`` are relative to."""
        if not self._bases:
            return ""
        while pointer not in self._bases and pointer:
            pointer = pointer.rpartition("/")[0]
        return self._bases.get(pointer, "")

    def _add(self, node: Node, base: str, dialect: Dialect) -> str:
        """Record the names of ``node``; returns the base address below it."""
        schema = node.schema
        own = schema.get(dialect.identifier, schema.get("$id"))
        lonely = dialect.lonely_ref and "$ref" in schema and node.pointer != ""
        if isinstance(own, str) and not lonely:
            address, _, fragment = own.partition("#")
            if address:
                base = _join(base, address)
                self.resources.setdefault(base, node)
                self._bases[node.pointer] = base
                self.dialects.setdefault(base, dialect)
            if fragment:
                self.anchors.setdefault((base, fragment), node)
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str):
                self.anchors.setdefault((base, name), node)
                if keyword == "$dynamicAnchor":
                    self.dynamic_anchors[name] = self.dynamic_anchors.get(name, 0) + 1
        return base


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[_Path, Any]]:
    """Keys, and the subschemas right below that they lead to, where subschemas may stand."""
    for keyword, value in schema.items():
        if keyword in SUBSCHEMA and isinstance(value, dict):
            yield (keyword,), value
        elif keyword in SUBSCHEMA_LISTS and isinstance(value, list):
            yield from (((keyword, index), child) for index, child in enumerate(value))
        elif keyword in SUBSCHEMA_MAPS and isinstance(value, dict):
            yield from (((keyword, name), child) for name, child in value.items())


def tokens_of(pointer: str) -> list[str]:
    """The tokens of a JSON Pointer (RFC 6901)."""
    return [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]


def _find_below(node: Node, pointer: str) -> Node | None:
    """The node at a JSON Pointer that starts at ``node``; None if there is none."""
    for token in tokens_of(pointer):
        value = node.schema
        if isinstance(value, dict) and token in value:
            node = node.child(token)
        elif isinstance(value, list) and _INDEX.fullmatch(token) and int(token) < len(value):
            node = node.child(int(token))
        else:
            return None
    return node


def _join(base: str, address: str) -> str:
    """RFC 3986 section 5.2, also for schemes that Python's ``urljoin`` does not know."""
    if not address:
        return base
    try:
        return address if urlsplit(address).scheme else urljoin(base, address)
    except ValueError:
        return address


def _dialect(schema: Any, pointer: str = "") -> Dialect:
    if not isinstance(schema, dict) or "$schema" not in schema:
        return _MODERN
    address = schema["$schema"]
    if not isinstance(address, str):
        raise InvalidSchema("$schema must be a string", pointer=f"{pointer}/$schema")
    host, _, rest = address.partition("://")[2].partition("/")
    for name, dialect in _DIALECTS.items():
        if host == "json-schema.org" and rest.startswith(name):
            return dialect
    if host == "spec.openapis.org" and re.match(r"oas/3\.[1-9]/dialect/", rest):
        return _MODERN  # its own keywords are annotations
    reason = "name a draft from draft-04 to 2020-12, or leave $schema out"
    raise UnsupportedSchema("$schema", f"{pointer}/$schema", reason)


def lonely_ref(schema: Any) -> bool:
    """Whether nothing counts beside ``$ref`` in the draft that ``schema`` names."""
    try:
        return _dialect(schema).lonely_ref
    except ConstraintError:
        return False


def _without(foreign: frozenset[str], schema: Any) -> Any:
    """``schema`` without these keywords, wherever it has subschemas. It is not changed itself."""
    if not isinstance(schema, dict):
        return schema
    if "$schema" in schema and not _IDENTIFIERS.isdisjoint(schema):
        foreign = _dialect(schema).foreign
    kept: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in foreign:
            continue
        if keyword in SUBSCHEMA_LISTS and isinstance(value, list):
            kept[keyword] = [_without(foreign, each) for each in value]
        elif keyword in SUBSCHEMA_MAPS and isinstance(value, dict):
            kept[keyword] = {name: _without(foreign, each) for name, each in value.items()}
        else:
            kept[keyword] = _without(foreign, value) if keyword in SUBSCHEMA else value
    return kept


def _checked_keys(schema: Any, limits: Limits) -> tuple[set[str], set[str], set[str], int]:
    """All keys in a schema, keywords and names; those below the root; the metaschemas that it may
    refer to; and its number of values.

    Checks the limits before any other pass; no recursion.
    """
    outer: set[str] = set()
    keys: set[str] = set()
    metaschemas: set[str] = set()
    values, size = 0, 0
    level = [schema]
    depth = 0
    while level:
        if depth > limits.schema_nesting:
            raise ConstraintTooComplex(f"a schema nested deeper than {limits.schema_nesting}")
        below: list[Any] = []
        for value in level:
            if isinstance(value, str):
                size += len(value)
                if depth > 1 and value.startswith("http://json-schema.org/draft-0"):
                    metaschemas.update(_METASCHEMA.findall(value))
            elif isinstance(value, dict):
                below.extend(value.values())
                (keys if depth else outer).update(value)
                try:
                    size += len("".join(value))
                except TypeError:
                    raise InvalidSchema("the keys of a schema must be strings") from None
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, float):
                if not math.isfinite(value):
                    raise InvalidSchema("the schema contains a number that is not finite")
            elif value is not None and not isinstance(value, bool | int):
                raise InvalidSchema(f"a schema must be JSON, and {type(value).__name__} is not")
        values += len(level)
        size += len(level)
        if values > limits.schema_values:
            raise ConstraintTooComplex(f"a schema of more than {limits.schema_values} values")
        if size > limits.schema_bytes:
            raise ConstraintTooComplex(f"a schema of more than {limits.schema_bytes} bytes")
        level, depth = below, depth + 1
    if "$ref" in outer and isinstance(schema["$ref"], str):
        metaschemas.update(_METASCHEMA.findall(schema["$ref"]))
    return outer | keys, keys, metaschemas, values
