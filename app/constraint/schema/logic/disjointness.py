"""Disjointness of subschemas, and the negations that ``oneOf`` needs if they may overlap.

Each subschema is summarized by itself (type, constants, a discriminator), so that a ``oneOf`` of a
hundred tagged objects costs a hundred summaries and comparisons of small sets. ``branches`` decides
the other cases.

In the example the summaries of T, M and B list one value each for the member ``kind``; as R
requires that member, no object satisfies two of them. In all other types T, M and B overlap wholly:
so their alternatives beside R are  (O, T), (O, M), (O, B)  and no negation is needed. Were ``kind``
not required, an object without it would satisfy all three, and the first one would be
(O, T, not M, not B).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from app.constraint.cached_method import cached_method
from app.constraint.limits import Limits
from app.constraint.schema.document import Document, Goal, Node
from app.constraint.schema.keywords import (
    FOLLOWED,
    TYPES,
    admits_kind,
    check_shapes,
    identity,
    integers_only,
    kinds_of,
    restricts,
)
from app.constraint.schema.logic.applicators import Branch
from app.constraint.schema.logic.negation import Alternative, negated
from app.core.errors import ConstraintError, UnsupportedSchema

_MAY_RESTRICT_ANY = frozenset(
    ["const", "enum", "anyOf", "oneOf", "not", "if", "$dynamicRef", "$recursiveRef"]
)
_MAY_LIST = frozenset(["const", "enum", "allOf", "$ref", "$dynamicRef", "$recursiveRef"])
"""Keywords of which a subschema needs at least one to list values."""
_OF_TAGGED = frozenset(["type", "properties", "required"])
_OF_TAGS = frozenset(["type", "const", "enum"])
_MOST_NODES = 32
"""Maximum subschemas of one conjunction that are inspected."""


@dataclass(slots=True)
class Summary:
    """Properties of all values of a subschema; each is a conservative approximation."""

    kinds: frozenset[str] = frozenset(TYPES)
    whole: frozenset[str] = frozenset()
    """Types whose values certainly all satisfy it."""
    values: frozenset[Hashable] | None = None
    """All possible values, if ``enum`` or ``const`` lists them."""
    required: set[str] = field(default_factory=set)
    members: dict[str, frozenset[Hashable]] = field(default_factory=dict)
    """All possible values of members that are present, by name."""


class Summaries:
    """Summaries of the subschemas of one document, each made once."""

    def __init__(self, document: Document) -> None:
        self._document = document

    @cached_method
    def of(self, node: Node) -> Summary:
        nodes, complete = self._conjunction(node)
        summary = self.beside(nodes)
        summary.whole = _whole(nodes) if complete else frozenset()
        summary.values = self._listed(nodes)
        for node in nodes:
            for name in node.schema.get("properties", ()):
                member = self._values_of(node.child("properties", name))
                if member is not None:
                    summary.members[name] = summary.members.get(name, member) & member
        return summary

    def beside(self, nodes: Sequence[Node]) -> Summary:
        """What ``type`` and ``required`` of all ``nodes`` say, for ``are_disjoint``."""
        required = {name for node in nodes for name in node.schema.get("required", ())}
        return Summary(frozenset(kinds_of(nodes)), required=required)

    def are_disjoint(self, beside: Summary, left: Node, right: Node) -> bool:
        """Whether surely no value satisfies both and what is ``beside`` them."""
        one, other = self.of(left), self.of(right)
        kinds = one.kinds & other.kinds & beside.kinds
        if not kinds:
            return True
        if one.values is not None and other.values is not None:
            return one.values.isdisjoint(other.values)
        if kinds != {"object"}:
            return False
        return any(
            (name in beside.required or name in one.required or name in other.required)
            and one.members[name].isdisjoint(other.members[name])
            for name in one.members.keys() & other.members.keys()
        )

    def rules_out(self, branch: Sequence[Node], node: Node) -> bool:
        """Whether ``branch`` restricts a tag so that ``node`` is impossible: ``not node`` holds.

        Only if ``node`` merely lists values of members that another node of the branch declares:
        its negation then adds neither restrictions nor names.
        """
        names = self._tags(node)
        others = [
            other
            for other in branch
            if names and not other.aspect and names <= other.schema.get("properties", {}).keys()
        ]
        if not others:
            return False
        beside = self.beside(branch)
        return any(self.are_disjoint(beside, other, node) for other in others)

    @cached_method
    def _tags(self, node: Node) -> frozenset[str]:
        """The members whose values ``node`` lists, if it restricts nothing else."""
        plain = isinstance(node.schema, dict) and _says_only(node.schema, _OF_TAGGED)
        members = node.schema.get("properties", {}) if plain else {}
        unknown = self._document.dialect(node).unknown
        listed = isinstance(members, dict) and all(
            _is_tag(member) and unknown.isdisjoint(member) for member in members.values()
        )
        return frozenset(members if listed else ())

    @cached_method
    def _values_of(self, node: Node) -> frozenset[Hashable] | None:
        """The only values of a subschema, where it lists them."""
        if not isinstance(node.schema, dict) or _MAY_LIST.isdisjoint(node.schema):
            return None
        nodes, _ = self._conjunction(node)
        return self._listed(nodes)

    def _listed(self, nodes: list[Node]) -> frozenset[Hashable] | None:
        """Values allowed by all ``nodes``, if keywords known to their draft list them."""
        found = []
        for node in nodes:
            schema = node.schema
            if "const" in schema and "const" not in self._document.dialect(node).unknown:
                found.append(frozenset([identity(schema["const"])]))
            elif "enum" in schema:
                found.append(frozenset(map(identity, schema["enum"])))
        return frozenset.intersection(*found) if found else None

    def _conjunction(self, node: Node) -> tuple[list[Node], bool]:
        """Subschemas that hold wherever ``node`` does, and whether these are all."""
        found: list[Node] = []
        complete = True
        stack = [node]
        while stack and len(found) < _MOST_NODES:
            here = stack.pop()
            if here.schema is True or here in found:
                continue
            if here.aspect or not isinstance(here.schema, dict):
                complete = False
                continue
            check_shapes(here)
            try:
                stack.extend(self._document.references(here))
            except ConstraintError:  # reported where the reference is followed to be enforced
                complete = False
                continue
            if not self._document.only_refers(here):
                found.append(here)
                stack.extend(here.children("allOf"))
        return found, complete and not stack


def _says_only(schema: dict[str, Any], keywords: frozenset[str]) -> bool:
    """Whether ``schema`` restricts values only by ``keywords``."""
    return keywords.issuperset(FOLLOWED.intersection(schema))


def _is_tag(schema: Any) -> bool:
    """Whether it is a list of values without parts, and nothing else."""
    if not isinstance(schema, dict) or not _says_only(schema, _OF_TAGS):
        return False
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return isinstance(listed, list) and not any(isinstance(one, dict | list) for one in listed)


def _whole(nodes: list[Node]) -> frozenset[str]:
    """The types of which surely every value satisfies all ``nodes``."""
    if any(not _MAY_RESTRICT_ANY.isdisjoint(node.schema) for node in nodes):
        return frozenset()
    return frozenset(
        kind
        for kind in TYPES
        if kind != "object"
        and all(admits_kind(node, kind) for node in nodes)
        and not (kind == "number" and any(map(integers_only, nodes)))
        and not any(restricts(node, kind) for node in nodes)
    )


OWN = "own "
"""Prefix of the aspects of subschemas of which only their own assertions count."""


class ExactlyOne:
    """Works out the alternatives of ``oneOf`` in one document.

    ``may_overlap`` says whether any validator may take some value to satisfy a goal.
    """

    def __init__(
        self,
        document: Document,
        summaries: Summaries,
        limits: Limits,
        may_overlap: Callable[[Goal], bool],
    ) -> None:
        self._document = document
        self._summaries = summaries
        self._limits = limits
        self._may_overlap = cache(may_overlap)

    def of(self, branch: Branch, children: Goal) -> list[Alternative]:
        """Alternatives for exactly one of ``children`` beside ``branch``: each child, with the
        negations of those that it may overlap there."""
        shared = self._shared_kinds(children)
        context = (*[node.made(OWN + node.aspect, node.schema) for node in branch], *shared)
        beside = self._summaries.beside(context)
        others: list[list[Node]] = [[] for _ in children]
        for left, right in self._maybe_overlapping(children):
            if self._overlap(context, beside, children[left], children[right]):
                others[left].append(negated(children[right]))
                others[right].append(negated(children[left]))
        return [(*shared, child, *apart) for child, apart in zip(children, others, strict=True)]

    @cached_method
    def _shared_kinds(self, children: Goal) -> Goal:
        """A node that excludes the types that two or more ``children`` admit wholly, if any."""
        whole = [kind for child in children for kind in self._summaries.of(child).whole]
        kinds = [kind for kind in TYPES if whole.count(kind) < 2]
        if len(kinds) == len(TYPES):
            return ()
        return (children[0].made("of no type that two admit", {"type": kinds}),)

    @cached_method
    def _maybe_overlapping(self, children: Goal) -> list[tuple[int, int]]:
        """Pairs of indices of children, but for those obviously disjoint in every context."""
        beside = self._summaries.beside(self._shared_kinds(children))
        pairs = [
            (left, right)
            for right, child in enumerate(children)
            for left, other in enumerate(children[:right])
            if not self._summaries.are_disjoint(beside, other, child)
        ]
        if len(pairs) > self._limits.overlaps:
            parent = children[0].pointer.rpartition("/")[0]
            raise UnsupportedSchema("oneOf", parent, "too many of its alternatives overlap")
        return pairs

    def _overlap(self, context: Goal, beside: Summary, left: Node, right: Node) -> bool:
        """Whether some value may satisfy both; True if that is not known.

        If only a keyword unknown to the draft separates them, they overlap for its validators.
        """
        if self._summaries.are_disjoint(beside, left, right):
            return False
        return self._document.says_unknown or self._may_overlap((*context, left, right))
