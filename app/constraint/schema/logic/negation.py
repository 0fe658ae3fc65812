"""Negations of subschemas, expressed in keywords that ``branches`` and the builder know.

``not``, ``else`` and the exclusive part of ``oneOf`` are enforced through this: the negation of a
conjunction of keywords is a list of alternatives, one or more for each keyword, and each
alternative is again a list of nodes that hold together.

In the example S is satisfied by all that is no object, so ``not S`` has one alternative, N: an
object without the member ``straw``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from app.constraint.formats import known_formats
from app.constraint.schema.document import Document, Node
from app.constraint.schema.keywords import (
    GRAMMAR,
    NOT_ENUM,
    NOT_FORMAT,
    NOT_INTEGER,
    NOT_MULTIPLE_OF,
    NOT_PATTERN,
    NOT_UNIQUE,
    SOME_ITEM,
    SOME_MEMBER,
    TYPES,
    VERBATIM,
    is_number,
)
from app.constraint.schema.shapes import SomeMember, item_keywords
from app.core.errors import UnsupportedSchema

NOT = "not"
"""The aspect of a negated subschema."""

Alternative = tuple[Node, ...]
"""Nodes that hold together."""

_Negation = Callable[[Node], Iterable[Alternative]]


def negated(node: Node) -> Node:
    """A node for exactly the values that do not satisfy ``node``."""
    if isinstance(node.schema, bool):
        return node.boolean(not node.schema)
    assert node.aspect in ("", NOT)
    return node.made("" if node.aspect == NOT else NOT, node.schema)


def alternatives(node: Node, document: Document) -> list[Alternative]:
    """The alternatives of the negated subschema ``node``, whose aspect is ``NOT``.

    Raises ``UnsupportedSchema`` where the negation of a keyword cannot be enforced.
    """
    plain = node.made("", node.schema)
    found: list[Alternative] = [(negated(target),) for target in document.references(plain)]
    if document.only_refers(plain):
        return found
    for keyword in plain.schema:
        negation = _NEGATIONS.get(keyword)
        if keyword in document.dialect(plain).unknown:
            reason = "it does not exist in the draft of $schema; it is read as in later drafts"
            document.read_as[plain.inexact(keyword, reason)] = None
        if negation is not None:
            found.extend(negation(plain))
    return found


def differs(node: Node, aspect: str, value: Any) -> Node:
    """A node for any value but this one; ``aspect`` names it among those made of ``node``."""
    if isinstance(value, list):
        ways: list[dict[Any, Any]] = [{"minItems": len(value) + 1}]
        if value:
            ways.append({"maxItems": len(value) - 1})
        for index, item in enumerate(value):
            ways.append(_with_item(index, differs(node, f"{aspect} item {index}", item)))
    elif isinstance(value, dict):
        ways = [{SOME_MEMBER: SomeMember(node.boolean(True), names=frozenset(value))}]
        for name, member in value.items():
            ways.append({"properties": {name: False}})
            other = differs(node, f"{aspect} member {name!r}", member)
            ways.append({"required": [name], "properties": {name: other}})
    else:
        return node.made(aspect, {NOT_ENUM: [value]})
    kind = "array" if isinstance(value, list) else "object"
    others = {"type": [name for name in TYPES if name != kind]}
    nodes = [node.made(f"{aspect} {n}", {"type": kind, **way}) for n, way in enumerate(ways)]
    return node.made(aspect, {"anyOf": [node.made(f"{aspect} type", others), *nodes]})


def _made(node: Node, of: str, kind: str, schema: dict[Any, Any]) -> Alternative:
    """A value of one type that satisfies ``schema``; ``of``: the negated part of ``node``."""
    return (node.made(f"not {of}", {"type": kind, **schema}),)


def _one(node: Node, kind: str, keyword: Any, value: Any, of: str) -> list[Alternative]:
    """A single alternative: a value of one type with one keyword."""
    return [_made(node, of, kind, {keyword: value})]


def _type(node: Node) -> Iterator[Alternative]:
    names = node.schema["type"]
    names = names if isinstance(names, list) else [names]
    others = [kind for kind in TYPES if kind not in names]
    integers = "integer" in names and "number" not in names
    if integers:
        others.remove("number")
    if others:
        yield (node.made("not type", {"type": others}),)
    if integers:
        yield from _one(node, "number", NOT_INTEGER, True, "integer")


def _enum(node: Node) -> Iterator[Alternative]:
    for keyword in ("const", "enum"):
        if keyword in node.schema:
            listed = [node.schema["const"]] if keyword == "const" else node.schema["enum"]
            plain = [value for value in listed if not isinstance(value, list | dict)]
            nodes = [node.made(f"not {keyword}", {NOT_ENUM: plain})]
            for number, value in enumerate(listed):
                if isinstance(value, list | dict):
                    nodes.append(differs(node, f"not {keyword} {number}", value))
            yield tuple(nodes)


def _bound(
    keyword: str, exclusive: str, opposite: str, opposite_exclusive: str, node: Node
) -> list[Alternative]:
    """Negation of a bound, which is inclusive unless draft 4's ``exclusive`` says otherwise."""
    beyond = opposite if node.schema.get(exclusive) is True else opposite_exclusive
    return _one(node, "number", beyond, node.schema[keyword], keyword)


def _exclusive_bound(keyword: str, opposite: str, node: Node) -> list[Alternative]:
    value = node.schema[keyword]
    return _one(node, "number", opposite, value, keyword) if is_number(value) else []


def _count(kind: str, keyword: str, opposite: str, beyond: int, node: Node) -> list[Alternative]:
    """The negation of a least count is a greatest count, and the other way round."""
    count = int(node.schema[keyword]) + beyond
    return _one(node, kind, opposite, count, keyword) if count >= 0 else []


def _format(node: Node) -> list[Alternative]:
    name = node.schema["format"]
    return _one(node, "string", NOT_FORMAT, name, "format") if name in known_formats() else []


def _items(node: Node) -> Iterator[Alternative]:
    """``items``, ``prefixItems`` and ``additionalItems`` together."""
    keyword, first, rest = item_keywords(node)
    for n, child in enumerate(node.children(keyword)):
        yield _made(node, f"{keyword} {n}", "array", _with_item(n, negated(child)))
    if rest in node.schema:
        yield from _one(node, "array", SOME_ITEM, (len(first), negated(node.child(rest))), rest)


def _with_item(index: int, item: Node) -> dict[Any, Any]:
    return {"minItems": index + 1, "prefixItems": [True] * index + [item]}


def _unique(node: Node) -> list[Alternative]:
    if node.schema["uniqueItems"] is False:
        return []
    return [_made(node, "uniqueItems", "array", {NOT_UNIQUE: True, "minItems": 2})]


def _contains(node: Node) -> Iterator[Alternative]:
    least = int(node.schema.get("minContains", 1))
    most = node.schema.get("maxContains")
    child = node.child("contains")
    if least > 0:
        fewer = {"contains": child, "minContains": 0, "maxContains": least - 1}
        yield _made(node, "minContains", "array", fewer)
    if most is not None:
        yield _made(node, "maxContains", "array", {"contains": child, "minContains": int(most) + 1})


def _properties(node: Node) -> Iterator[Alternative]:
    """A member is wrong; one that is required may as well be missing."""
    for name in node.schema["properties"]:
        way: dict[Any, Any] = {"properties": {name: negated(node.child("properties", name))}}
        if name not in node.schema.get("required", ()):
            way["required"] = [name]
        yield _made(node, f"properties {name!r}", "object", way)


def _pattern_properties(node: Node) -> Iterator[Alternative]:
    for pattern in node.schema["patternProperties"]:
        some = SomeMember(negated(node.child("patternProperties", pattern)), matching=pattern)
        yield from _one(node, "object", SOME_MEMBER, some, f"patternProperties {pattern!r}")


def _additional_properties(node: Node) -> list[Alternative]:
    some = SomeMember(
        negated(node.child("additionalProperties")),
        names=frozenset(node.schema.get("properties", ())),
        patterns=tuple(node.schema.get("patternProperties", ())),
    )
    return _one(node, "object", SOME_MEMBER, some, "additionalProperties")


def _property_names(node: Node) -> list[Alternative]:
    some = SomeMember(node.boolean(True), name=negated(node.child("propertyNames")))
    return _one(node, "object", SOME_MEMBER, some, "propertyNames")


def _required(node: Node) -> Iterator[Alternative]:
    """A member is missing, unless ``_properties`` covers that."""
    for name in node.schema["required"]:
        if name not in node.schema.get("properties", ()):
            yield _made(node, f"required {name!r}", "object", {"properties": {name: False}})


def _dependencies(keyword: str, node: Node) -> Iterator[Alternative]:
    """``dependentRequired``, ``dependentSchemas`` and ``dependencies``, which is either."""
    for name, needed in node.schema[keyword].items():
        if isinstance(needed, list):
            for other in needed:
                way = {"required": [name], "properties": {other: False}}
                yield _made(node, f"{keyword} {name!r} {other!r}", "object", way)
        else:
            there = node.made(f"with {name!r}", {"type": "object", "required": [name]})
            yield (there, negated(node.child(keyword, name)))


def _one_of(node: Node) -> list[Alternative]:
    """None of them, or two and perhaps more."""
    children = node.children("oneOf")
    pairs = [(left, right) for n, left in enumerate(children) for right in children[:n]]
    return [tuple(map(negated, children)), *pairs]


def _if(node: Node) -> Iterator[Alternative]:
    condition = node.child("if")
    if "then" in node.schema:
        yield condition, negated(node.child("then"))
    if "else" in node.schema:
        yield negated(condition), negated(node.child("else"))


def _refused(keyword: str, node: Node) -> list[Alternative]:
    if keyword == VERBATIM and node.schema[keyword] is False:
        return []
    reason = "not supported inside a negation (not, oneOf, if)"
    raise UnsupportedSchema(keyword, node.pointer_to(keyword), reason)


_NEGATIONS: dict[str, _Negation] = {
    "type": _type,
    "const": _enum,
    "enum": lambda node: [] if "const" in node.schema else _enum(node),
    "minimum": partial(_bound, "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"),
    "maximum": partial(_bound, "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
    "exclusiveMinimum": partial(_exclusive_bound, "exclusiveMinimum", "maximum"),
    "exclusiveMaximum": partial(_exclusive_bound, "exclusiveMaximum", "minimum"),
    "multipleOf": lambda node: _one(
        node, "number", NOT_MULTIPLE_OF, node.schema["multipleOf"], "multipleOf"
    ),
    "minLength": partial(_count, "string", "minLength", "maxLength", -1),
    "maxLength": partial(_count, "string", "maxLength", "minLength", 1),
    "pattern": lambda node: _one(node, "string", NOT_PATTERN, node.schema["pattern"], "pattern"),
    "format": _format,
    VERBATIM: partial(_refused, VERBATIM),
    GRAMMAR: partial(_refused, GRAMMAR),
    "items": _items,
    "prefixItems": lambda node: [] if "items" in node.schema else _items(node),
    "minItems": partial(_count, "array", "minItems", "maxItems", -1),
    "maxItems": partial(_count, "array", "maxItems", "minItems", 1),
    "uniqueItems": _unique,
    "unevaluatedItems": partial(_refused, "unevaluatedItems"),
    "contains": _contains,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "propertyNames": _property_names,
    "required": _required,
    "minProperties": partial(_count, "object", "minProperties", "maxProperties", -1),
    "maxProperties": partial(_count, "object", "maxProperties", "minProperties", 1),
    "unevaluatedProperties": partial(_refused, "unevaluatedProperties"),
    "dependentRequired": partial(_dependencies, "dependentRequired"),
    "dependentSchemas": partial(_dependencies, "dependentSchemas"),
    "dependencies": partial(_dependencies, "dependencies"),
    "allOf": lambda node: [(negated(child),) for child in node.children("allOf")],
    "anyOf": lambda node: [tuple(map(negated, node.children("anyOf")))],
    "oneOf": _one_of,
    "not": lambda node: [(node.child("not"),)],
    "if": _if,
}
