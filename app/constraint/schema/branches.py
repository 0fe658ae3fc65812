"""From a goal to its branches: references followed, applicators and choices distributed.

A goal is a set of subschemas that hold together. Its branches are alternatives, each a set of
subschemas of which only their own assertions (``type``, ``properties``...) are left to enforce. So
``anyOf``, ``oneOf``, ``allOf``, ``not``, ``if``, the dependencies and ``$ref`` beside each other
and beside assertions are all exact: this is the disjunctive normal form, with alternatives left
out that nothing satisfies.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from app.constraint.limits import Limits
from app.constraint.schema import unevaluated
from app.constraint.schema.disjointness import Outlines
from app.constraint.schema.document import Document, Goal, Node
from app.constraint.schema.keywords import OWN_ASSERTIONS, TYPES, check_shapes
from app.constraint.schema.negation import NOT, Alternative, alternatives, negated
from app.core.errors import ConstraintTooComplex, InvalidSchema, UnsupportedSchema

Branch = tuple[Node, ...]
"""Subschemas whose own assertions hold together; () admits every value."""

_FEW_STEPS = 100
"""Steps after which it pays to remember what was seen."""

_MOST_CHOICES = 8
"""Choices that are compared to make the narrowest first."""

_MOST_REFERENCES = 8
"""References one behind the other that are followed to see a contradiction."""

_MOST_FOR_OVERLAP = 100
"""Alternatives that are looked at to tell that two subschemas have nothing in common."""

_FOLLOWED = OWN_ASSERTIONS.union(
    ["$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if"],
    ["dependentRequired", "dependentSchemas", "dependencies"],
)
"""All keywords that say something about a value, beside ``$ref``."""

_OWN = "own "
"""What the aspects begin with of subschemas of which only their own assertions count."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A node, and the nodes it was reached through inside one value."""

    node: Node
    above: frozenset[Node] = frozenset()
    annotates: bool = True
    """False below a negation: what it evaluates does not count for ``unevaluatedProperties``."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """Alternatives of which one must hold; ``exclusive``: exactly one, each of one node."""

    name: tuple[Node, int]
    """The node that leaves this choice, and which of its choices it is."""
    options: tuple[Alternative, ...]
    above: frozenset[Node]
    annotates: bool
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class _Open:
    """A branch in the making: what is still to be looked at, to be chosen, and what is done."""

    pending: tuple[_Found, ...]
    choices: tuple[_Choice, ...] = ()
    done: tuple[_Found, ...] = ()
    held: frozenset[Node] = frozenset()
    """Subschemas looked at, and their negations: what contradicts one of them is void."""

    @property
    def branch(self) -> Branch:
        return tuple([found.node for found in self.done])

    @property
    def meaning(self) -> Hashable:
        """Equal only for branches in the making that come to the same."""
        pending = tuple([found.node for found in self.pending])
        return (pending, tuple([choice.name for choice in self.choices]), self.branch)


class Branches:
    """Computes and remembers the branches of goals in one document.

    ``is_void`` says whether surely nothing satisfies a branch; where it does not know, the
    branch is kept and turns out empty when it is built. ``may_overlap`` says whether any validator
    may take some value to satisfy a goal; without it ``oneOf`` is read as ``anyOf``, which makes
    the branches loose: they leave out nothing that any validator admits.
    """

    def __init__(
        self,
        document: Document,
        limits: Limits,
        is_void: Callable[[Branch], bool],
        may_overlap: Callable[[Goal], bool] | None = None,
    ) -> None:
        self._document = document
        self._limits = limits
        self._is_void = is_void
        self._may_overlap = may_overlap
        self._known: dict[Goal, tuple[Branch, ...]] = {}
        self._checked: set[Node] = set()
        self._steps = 0
        self._overlaps: dict[Goal, bool] = {}
        self._pairs: dict[Node, list[tuple[int, int]]] = {}
        """Pairs of a ``oneOf`` that may overlap, by its first subschema."""
        self._outlines = Outlines(document)

    def of(self, goal: Goal) -> tuple[Branch, ...]:
        """The branches of ``goal``, without repetition, in the order of the schema.

        No branch at all means that nothing satisfies the goal.
        """
        known = self._known.get(goal)
        if known is None:
            target = self._target(goal)
            known = self._known.get(target)
            if known is None:
                known = self._known[target] = self._expand(target, self._limits.branches)
            self._known[goal] = known
        return known

    def may_be_any(self, goal: Goal) -> bool:
        """Whether some value may satisfy ``goal``; True where that is not plain."""
        try:
            return bool(self._expand(goal, _MOST_FOR_OVERLAP))
        except ConstraintTooComplex:
            return True

    def _target(self, goal: Goal) -> Goal:
        """What a goal that is nothing but a reference refers to, so that this is done once."""
        passed: set[Node] = set()
        while len(goal) == 1 and goal[0].aspect == "" and isinstance(goal[0].schema, dict):
            (node,) = goal
            if not self._is_reference(node):
                break
            if node in passed:
                raise InvalidSchema("a $ref leads back to itself", pointer=node.pointer)
            passed.add(node)
            goal = tuple(self._document.references(node))
        return goal

    def _is_reference(self, node: Node) -> bool:
        """Whether ``node`` is a ``$ref`` and nothing else that counts."""
        if self._document.only_refers(node):
            return True
        return "$ref" in node.schema and _FOLLOWED.isdisjoint(node.schema)

    def _expand(self, goal: Goal, most: int) -> tuple[Branch, ...]:
        finished: dict[Branch, None] = {}
        stack = [_Open(tuple(map(_Found, goal)))]
        seen: set[Hashable] = set()
        steps = 0
        while stack:
            branch = stack.pop()
            steps += 1
            if steps > _FEW_STEPS and branch.pending and not self._watched(branch):
                meaning = branch.meaning
                if meaning in seen:
                    continue
                seen.add(meaning)
            self._steps += 1 + len(branch.done) + len(branch.choices)
            if branch.pending:
                ahead = self._look_at(branch)
                if ahead is not None:
                    stack.append(ahead)
            elif len(branch.done) > 1 and self._is_void(branch.branch):
                continue
            elif branch.choices:
                stack.extend(reversed(self._choose(branch)))
            else:
                finished[self._finish(branch)] = None
            if len(finished) + len(stack) > most:
                raise ConstraintTooComplex(f"more than {most} alternatives in a place of a schema")
            if self._steps > self._limits.branch_steps:
                raise ConstraintTooComplex("too many combinations of alternatives in the schema")
        return tuple(finished)

    def _watched(self, branch: _Open) -> bool:
        """Whether it matters on which way a node was reached."""
        return any(unevaluated.watches(found.node) for found in branch.done)

    def _look_at(self, branch: _Open) -> _Open | None:
        """Work off the first pending subschema; None where nothing satisfies it."""
        found, *rest = branch.pending
        node, schema = found.node, found.node.schema
        if schema is True:
            return replace(branch, pending=tuple(rest))
        if schema is False:
            return None
        if node.aspect.startswith(_OWN):
            return replace(branch, pending=tuple(rest), done=_add(branch.done, found))
        if node in found.above:
            raise InvalidSchema("a $ref leads back to itself", pointer=node.pointer)
        if _opposite(node) in branch.held:
            return None
        if node in branch.held and not any(map(unevaluated.watches, found.above)):
            return replace(branch, pending=tuple(rest))  # looked at before, on another way
        self._check(node)
        above = found.above | {node}
        if len(above) > self._limits.schema_nesting * 4:
            raise ConstraintTooComplex("too many references one behind the other")
        if node.aspect == NOT:
            options = tuple(alternatives(node, self._document))
            choice = _Choice((node, 0), options, above, annotates=False)
            choices = (*branch.choices, choice)
            held = branch.held | {node}
            return replace(branch, pending=tuple(rest), choices=choices, held=held)
        found = replace(found, node=_with_numbers_for_bounds(node), above=above)
        together = [
            _Found(child, above, found.annotates) for child in self._children_that_hold(node)
        ]
        done, choices = branch.done, branch.choices
        if not self._document.only_refers(node):
            choices = (*choices, *self._choices_of(found))
            if not OWN_ASSERTIONS.isdisjoint(schema):
                done = _add(done, found)
        held = branch.held if node.aspect else branch.held | {node}
        return _Open((*together, *rest), choices, done, held)

    def _children_that_hold(self, node: Node) -> list[Node]:
        """Subschemas for the same value that hold wherever ``node`` does."""
        children = self._document.references(node)
        if self._document.only_refers(node):
            return children
        for index in range(len(node.schema.get("allOf", ()))):
            children.append(node.child("allOf", index))
        if "not" in node.schema:
            children.append(negated(node.child("not")))
        return children

    def _choices_of(self, found: _Found) -> list[_Choice]:
        """The choices that the keywords of a node leave."""
        node, schema = found.node, found.node.schema
        choices: list[tuple[Any, bool]] = []
        watched = found.annotates and any(map(unevaluated.watches, found.above))
        if "anyOf" in schema:
            children = [node.child("anyOf", index) for index in range(len(schema["anyOf"]))]
            choices.append((_subsets(children) if watched else [(c,) for c in children], False))
        if "oneOf" in schema:
            children = [node.child("oneOf", index) for index in range(len(schema["oneOf"]))]
            exactly_one = self._may_overlap is not None
            choices.append(([(child,) for child in children], exactly_one))
        if "if" in schema and (watched or "then" in schema or "else" in schema):
            condition = node.child("if")
            then = (node.child("then"),) if "then" in schema else ()
            otherwise = (node.child("else"),) if "else" in schema else ()
            choices.append(([(condition, *then), (negated(condition), *otherwise)], False))
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, needed in schema.get(keyword, {}).items():
                choices.append((_dependency(node, keyword, name, needed), False))
        return [
            _Choice((node, number), tuple(options), found.above, found.annotates, exclusive)
            for number, (options, exclusive) in enumerate(choices)
        ]

    def _choose(self, branch: _Open) -> list[_Open]:
        """One branch for each way of making one choice: one that leaves few ways, if one is near.

        Choices that leave no more than one way are made as soon as they are seen.
        """
        done = set(branch.branch)
        best: tuple[_Choice, list[Alternative]] | None = None
        settled: list[_Choice] = []
        looked_at = 0
        for choice in branch.choices:
            options = self._options(branch, choice)
            if any(done.issuperset(option) for option in options):
                settled.append(choice)  # holds already: every other way is a part of this one
                continue
            looked_at += 1
            if best is None or len(options) < len(best[1]):
                best = (choice, options)
            if len(options) < 2 or looked_at == _MOST_CHOICES:
                break
        if best is None:
            return [replace(branch, choices=())]
        chosen, options = best
        settled.append(chosen)
        left = tuple(c for c in branch.choices if not any(c is other for other in settled))
        return [
            _Open(
                tuple(_Found(node, chosen.above, chosen.annotates) for node in option),
                left,
                branch.done,
                branch.held,
            )
            for option in options
        ]

    def _options(self, branch: _Open, choice: _Choice) -> list[Alternative]:
        """The ways to make a choice that are not plainly void beside what is done."""
        options = list(choice.options)
        if choice.exclusive:
            options = self._exclusive(branch, [option[0] for option in options])
        context = branch.branch
        if len(branch.choices) == 1:
            return options
        found = []
        for option in options:
            if any(self._contradicts(node, branch.held) for node in option):
                continue
            plain = [node for node in option if node.aspect != NOT and node.schema is not True]
            for node in plain:
                self._check(node)
            plain = [node for node in plain if "$ref" not in node.schema]
            if not plain or not self._is_void((*context, *plain)):
                found.append(option)
        return found

    def _contradicts(self, node: Node, held: frozenset[Node]) -> bool:
        """Whether ``node`` is plainly impossible beside what is held."""
        for _ in range(_MOST_REFERENCES):
            if node.schema is False or _opposite(node) in held:
                return True
            if not isinstance(node.schema, dict) or node.aspect not in ("", NOT):
                return False
            plain = node.made("", node.schema)
            if not self._is_reference(node):
                return False
            (target,) = self._document.references(plain)
            node = negated(target) if node.aspect == NOT else target
        return False

    def _exclusive(self, branch: _Open, children: list[Node]) -> list[Alternative]:
        """Exactly one of ``children``: it, and the negations of those it overlaps."""
        shared = self._shared_kinds(children)
        common = tuple(node.made(_OWN + node.aspect, node.schema) for node in branch.branch)
        context = (*common, *shared)
        others: list[list[Node]] = [[] for _ in children]
        for left, right in self._maybe_overlapping(shared, children):
            if self._overlap(context, children[left], children[right]):
                others[left].append(negated(children[right]))
                others[right].append(negated(children[left]))
        return [(*shared, child, *apart) for child, apart in zip(children, others, strict=True)]

    def _shared_kinds(self, children: list[Node]) -> Goal:
        """That a value is of none of the types that two ``children`` and more admit wholly."""
        whole = [kind for child in children for kind in self._outlines.of(child).whole]
        kinds = [kind for kind in TYPES if whole.count(kind) < 2]
        if len(kinds) == len(TYPES):
            return ()
        return (children[0].made("of no type that two admit", {"type": kinds}),)

    def _maybe_overlapping(self, shared: Goal, children: list[Node]) -> list[tuple[int, int]]:
        """The pairs that are not plainly disjoint whatever holds beside them."""
        known = self._pairs.get(children[0])
        if known is None:
            known = self._pairs[children[0]] = [
                (left, right)
                for right, child in enumerate(children)
                for left, other in enumerate(children[:right])
                if not self._outlines.are_disjoint(shared, other, child)
            ]
        if len(known) > self._limits.overlaps:
            parent = children[0].pointer.rpartition("/")[0]
            reason = "its alternatives overlap in too many ways"
            raise UnsupportedSchema("oneOf", parent, reason)
        return known

    def _overlap(self, context: Goal, left: Node, right: Node) -> bool:
        """Whether some value may satisfy both; True where that is not plain."""
        if self._outlines.are_disjoint(context, left, right):
            return False
        goal = (*context, left, right)
        known = self._overlaps.get(goal)
        if known is None:
            assert self._may_overlap is not None, "exactly one is asked where oneOf is loose"
            known = self._overlaps[goal] = self._may_overlap(goal)
        return known

    def _check(self, node: Node) -> None:
        """The shapes of keywords, where they are as the schema has them."""
        if node.aspect in ("", NOT) and node not in self._checked:
            check_shapes(node)
            self._checked.add(node)

    def _finish(self, branch: _Open) -> Branch:
        scopes = {
            found.node: [
                other.node
                for other in branch.done
                if other is found or (found.node in other.above and other.annotates)
            ]
            for found in branch.done
            if unevaluated.watches(found.node)
        }
        contains_counts = self._document.dialect.contains_evaluates
        made = [
            node
            for owner, scope in scopes.items()
            for node in unevaluated.rest(owner, scope, contains_counts=contains_counts)
        ]
        return (*branch.branch, *made)


def _opposite(node: Node) -> Node | None:
    """The node that nothing satisfies together with this one."""
    return negated(node) if node.aspect in ("", NOT) else None


def _add(done: tuple[_Found, ...], found: _Found) -> tuple[_Found, ...]:
    """``done`` and ``found``; a node reached in two ways is kept once.

    It annotates for those above it on ways that do.
    """
    for index, other in enumerate(done):
        if other.node == found.node:
            if other.annotates == found.annotates:
                found = replace(other, above=other.above | found.above)
            elif other.annotates:
                found = other
            return (*done[:index], found, *done[index + 1 :])
    return (*done, found)


def _subsets(children: list[Node]) -> list[Alternative]:
    """Every choice of one or more, the largest first: each may evaluate something."""
    if len(children) > 8:
        raise ConstraintTooComplex("anyOf of more than 8 beside unevaluated keywords")
    bits = sorted(range(1, 1 << len(children)), key=lambda bits: -bits.bit_count())
    return [
        tuple(child for index, child in enumerate(children) if chosen >> index & 1)
        for chosen in bits
    ]


def _dependency(node: Node, keyword: str, name: str, needed: Any) -> list[Alternative]:
    """The member ``name`` is not there, or what it needs is."""
    absent = node.made(f"without {name!r}", {"properties": {name: False}})
    if isinstance(needed, list):
        there = {"type": "object", "required": [name, *needed]}
        return [(absent,), (node.made(f"{keyword} {name!r}", there),)]
    there = {"type": "object", "required": [name]}
    return [(absent,), (node.made(f"with {name!r}", there), node.child(keyword, name))]


def _with_numbers_for_bounds(node: Node) -> Node:
    """Draft 4's boolean exclusive bounds as those of later drafts."""
    schema = node.schema
    pairs = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
    if not any(isinstance(schema.get(exclusive), bool) for _, exclusive in pairs):
        return node
    schema = dict(schema)
    for inclusive, exclusive in pairs:
        if isinstance(schema.get(exclusive), bool):
            excluded = schema.pop(exclusive)
            if excluded and inclusive in schema:
                schema[exclusive] = schema.pop(inclusive)
    return node.made(node.aspect, schema)
