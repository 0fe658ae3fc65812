"""From a goal to its branches: references followed, applicators and disjunctions distributed.

In the example the goal R has the branches  R, N, O, T, U  and  R, N, O, M, V.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from itertools import product

from app.constraint.cached_method import cached_method
from app.constraint.limits import Limits
from app.constraint.schema.document import Document, Goal, Node
from app.constraint.schema.keywords import (
    CASES,
    FOLLOWED,
    OWN_ASSERTIONS,
    SOME_MEMBER,
    admits_kind,
    check_shapes,
    counts,
    kinds_of,
)
from app.constraint.schema.logic.applicators import (
    Branch,
    Disjunction,
    PartialBranch,
    Reached,
    add,
    disjunctions,
    unevaluated_rest,
)
from app.constraint.schema.logic.disjointness import OWN, ExactlyOne, Summaries
from app.constraint.schema.logic.negation import NOT, Alternative, alternatives, negated
from app.constraint.schema.shapes import ABOUT_OTHERS, Demand, demands_of, names_in
from app.core.errors import ConstraintTooComplex, InvalidSchema

_FEW_STEPS = 100
"""Number of steps after which it pays to remember the branches seen."""

_FEW_APART = 3
"""Maximum disjunctions of which all combinations of alternatives become branches."""

_MOST_DEMANDS = 4
"""Maximum different demands of disjunctions on one member, if they are kept apart."""

_MOST_DISJUNCTIONS = 8
"""Maximum disjunctions that are compared to decide the narrowest first."""

_MOST_REFERENCES = 8
"""Maximum length of a chain of references that is followed to find a contradiction."""

_MOST_FOR_OVERLAP = 100
"""Maximum alternatives that are expanded to prove two subschemas disjoint."""

_OF_MEMBERS = frozenset(["type", "properties", "required"])
_BESIDE_REF = FOLLOWED - {"$ref"}
_UNEVALUATED = frozenset(["unevaluatedItems", "unevaluatedProperties"])
_PARTS = FOLLOWED - OWN_ASSERTIONS | _UNEVALUATED


class Branches:
    """Computes and remembers the branches of goals in one document.

    ``is_void``: whether a branch is certainly void; if that is not known, the branch is kept and
    may be empty when it is built. ``may_overlap``: whether some value may satisfy a goal, for any
    validator; without it ``oneOf`` is read as ``anyOf``, which makes the branches loose: they
    include all values that any validator admits.
    """

    def __init__(
        self,
        document: Document,
        summaries: Summaries,
        limits: Limits,
        is_void: Callable[[Branch], bool],
        may_overlap: Callable[[Goal], bool] | None = None,
    ) -> None:
        self._document = document
        self._summaries = summaries
        self._limits = limits
        self._is_void = is_void
        self._may_overlap = may_overlap
        self._watching: set[Node] = set()
        """Visited nodes with ``unevaluatedItems`` or ``unevaluatedProperties``."""
        self.steps = 0

    @cached_property
    def _exactly_one(self) -> ExactlyOne:
        assert self._may_overlap is not None, "nothing is exclusive without it"
        return ExactlyOne(self._document, self._summaries, self._limits, self._may_overlap)

    @cached_method
    def of(self, goal: Goal) -> tuple[Branch, ...]:
        """The branches of ``goal``, without repetition, in the order of the schema.

        No branch at all means that nothing satisfies the goal.
        """
        if len(goal) == 1 and _is_plain(goal[0]):
            self._check(goal[0])
            return (() if OWN_ASSERTIONS.isdisjoint(goal[0].schema) else goal,)
        target = self._target(goal)
        return self._expand(goal, self._limits.branches) if target == goal else self.of(target)

    def may_be_any(self, goal: Goal) -> bool:
        """Whether some value may satisfy ``goal``; True where that is not plain."""
        try:
            return bool(self._expand(goal, _MOST_FOR_OVERLAP))
        except ConstraintTooComplex:
            return True

    def _target(self, goal: Goal) -> Goal:
        """Target of a goal that is only a reference, so that its branches are computed once."""
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
        return "$ref" in node.schema and _BESIDE_REF.isdisjoint(node.schema)

    def _expand(self, goal: Goal, most: int) -> tuple[Branch, ...]:
        finished: dict[Branch, None] = {}
        stack = [PartialBranch(tuple(map(Reached, goal)))]
        seen: set[Hashable] = set()
        steps = 0
        while stack:
            branch = stack.pop()
            steps += 1
            watched = self._watching and any(n.node in self._watching for n in branch.done)
            if steps > _FEW_STEPS and branch.pending and not watched:
                meaning = branch.meaning
                if meaning in seen:
                    continue
                seen.add(meaning)
            self.steps += 1 + len(branch.done) + len(branch.disjunctions)
            if branch.pending:
                ahead = self._look_at(branch)
                if ahead is not None:
                    stack.append(ahead)
            elif len(branch.done) > 1 and self._is_void(branch.branch):
                continue
            elif branch.disjunctions:
                stack.extend(reversed(self._decide(branch)))
            else:
                finished[self._finish(branch)] = None
            if len(finished) + len(stack) > most:
                raise ConstraintTooComplex(f"more than {most} alternatives at a point of a schema")
            if self.steps > self._limits.branch_steps:
                raise ConstraintTooComplex("too many combinations of alternatives in the schema")
        return tuple(finished)

    def _look_at(self, branch: PartialBranch) -> PartialBranch | None:
        """Process the first pending subschema; None if nothing satisfies it."""
        reached = branch.pending[0]
        node, schema = reached.node, reached.node.schema
        if schema is True:
            return branch.after_first()
        if schema is False:
            return None
        if node.aspect.startswith(OWN):
            self._check(node)
            done = add(branch.done, reached)
            return PartialBranch(branch.pending[1:], branch.disjunctions, done, branch.held)
        if node in reached.above:
            raise InvalidSchema("a $ref leads back to itself", pointer=node.pointer)
        if _opposite(node) in branch.held:
            return None
        if node in branch.held and self._watching.isdisjoint(reached.above):
            return branch.after_first()  # looked at before, on another way
        self._check(node)
        above = reached.above | {node}
        if len(above) > self._limits.schema_nesting * 4:
            raise ConstraintTooComplex("a chain of references is too long")
        held = branch.held if node.aspect not in ("", NOT) else branch.held | {node}
        together: list[Reached] = []
        done, left = branch.done, branch.disjunctions
        if node.aspect == NOT:
            left = (*left, Disjunction((node, 0), self._negations(node), above, annotates=False))
        else:
            children = self._children_that_hold(node)
            together = [Reached(child, above, reached.annotates) for child in children]
            if not self._document.only_refers(node):
                left = (*left, *self._disjunctions_of(node, above, annotates=reached.annotates))
                if not OWN_ASSERTIONS.isdisjoint(schema):
                    done = add(done, Reached(node, above, reached.annotates))
        return PartialBranch((*together, *branch.pending[1:]), left, done, held)

    @cached_method
    def _children_that_hold(self, node: Node) -> list[Node]:
        """Subschemas for the same value that hold wherever ``node`` does."""
        children = self._document.references(node)
        if not self._document.only_refers(node):
            children += node.children("allOf")
            if "not" in node.schema:
                children.append(negated(node.child("not")))
        return children

    @cached_method
    def _negations(self, node: Node) -> list[Alternative]:
        return alternatives(node, self._document)

    @cached_method
    def _disjunctions(self, node: Node, watched: bool) -> list[tuple[list[Alternative], bool]]:
        return disjunctions(node, watched=watched)

    def _disjunctions_of(
        self, node: Node, above: frozenset[Node], *, annotates: bool
    ) -> list[Disjunction]:
        """The disjunctions of a node's keywords."""
        watched = annotates and not self._watching.isdisjoint(above)
        exact = self._may_overlap is not None
        return [
            Disjunction((node, number), ways, above, annotates, exclusive and exact)
            for number, (ways, exclusive) in enumerate(self._disjunctions(node, watched))
        ]

    def _decide(self, branch: PartialBranch) -> list[PartialBranch]:
        """One branch for each alternative of one disjunction: the narrowest of the first few.

        A disjunction with at most one alternative left is decided as soon as it is seen.
        """
        done = set(branch.branch)
        apart = self._apart(branch)
        if len(apart) == len(branch.disjunctions) > 0:
            made = [Reached(node, each.above, each.annotates) for each, node in apart.items()]
            return [PartialBranch((), (), (*branch.done, *made), branch.held)]
        best: tuple[Disjunction, list[Alternative]] | None = None
        settled: set[Disjunction] = set()
        looked_at = 0
        for disjunction in branch.disjunctions:
            if disjunction in apart:
                continue
            if self._holds_anyway(branch.branch, disjunction):
                settled.add(disjunction)
                continue
            ways = self._ways_beside(branch, disjunction)
            if any(done.issuperset(way) for way in ways):
                settled.add(disjunction)  # holds already: every other way is a part of this one
                continue
            looked_at += 1
            if best is None or len(ways) < len(best[1]):
                best = (disjunction, ways)
            if len(ways) < 2 or looked_at == _MOST_DISJUNCTIONS:
                break
        if best is None:
            return [PartialBranch((), tuple(apart), branch.done, branch.held)]
        chosen, ways = best
        settled.add(chosen)
        left = tuple([each for each in branch.disjunctions if each not in settled])
        pending = [tuple([Reached(n, chosen.above, chosen.annotates) for n in w]) for w in ways]
        return [PartialBranch(each, left, branch.done, branch.held) for each in pending]

    def _apart(self, branch: PartialBranch) -> dict[Disjunction, Node]:
        """The disjunctions, if they are many, that ``ObjectWriter`` keeps apart: those with few
        demands on named members. Each with the node that represents it."""
        nodes = branch.branch
        if (
            len(branch.disjunctions) <= _FEW_APART
            or self._watching
            or kinds_of(nodes) != ["object"]
            or counts(nodes, "minProperties", "maxProperties") not in ((0, None), (1, None))
            or not any("properties" in node.schema and not node.aspect for node in nodes)
            or any(SOME_MEMBER in node.schema for node in nodes)
        ):
            return {}
        declared = {name for node in nodes for name in names_in(node)}
        any_name = any(not ABOUT_OTHERS.isdisjoint(node.schema) for node in nodes)
        found: dict[Disjunction, Node] = {}
        demands: dict[str, set[Demand]] = {}
        for each in branch.disjunctions:
            node = None if each.exclusive else self._cases(*each.name)
            if node is None:
                continue
            asked = [item for case in node.schema[CASES] for item in demands_of(case).items()]
            if any_name or all(name in declared for name, _ in asked):
                found[each] = node
                for name, demand in asked:
                    demands.setdefault(name, set()).add(demand)
        many = {name for name, different in demands.items() if len(different) > _MOST_DEMANDS}
        left = {
            each: node
            for each, node in found.items()
            if all(many.isdisjoint(demands_of(case)) for case in node.schema[CASES])
        }
        return left if len(left) > _FEW_APART else {}

    @cached_method
    def _cases(self, owner: Node, number: int) -> Node | None:
        """A disjunction in a node of its own, if it only restricts and requires named members."""
        if owner.aspect == NOT:
            ways = self._negations(owner)
        else:
            ways = self._disjunctions(owner, watched=False)[number][0]
        cases: list[Alternative] = []
        for way in ways:
            options: list[list[Alternative]] = []
            for node in way:
                if isinstance(node.schema, dict):
                    self._check(node)
                    if not _OF_MEMBERS.issuperset(FOLLOWED.intersection(node.schema)):
                        return None
                options.append(self._negations(node) if node.aspect == NOT else [(node,)])
            cases += [tuple([n for part in parts for n in part]) for parts in product(*options)]
        cases = [
            tuple([node for node in case if node.schema is not True])
            for case in cases
            if all(
                n.schema is not False and (n.schema is True or admits_kind(n, "object"))
                for n in case
            )
        ]
        return owner.made(f"cases {number}", {CASES: cases})

    def _holds_anyway(self, nodes: Branch, disjunction: Disjunction) -> bool:
        """Whether an alternative, or their owner, is the negation of a node that is ruled out."""
        negations = [way[0] for way in disjunction.alternatives if len(way) == 1]
        negations.append(disjunction.name[0])
        return any(
            node.aspect == NOT and self._summaries.rules_out(nodes, negated(node))
            for node in negations
        )

    def _ways_beside(self, branch: PartialBranch, disjunction: Disjunction) -> list[Alternative]:
        """The alternatives that are not obviously void beside the finished nodes."""
        ways = disjunction.alternatives
        if disjunction.exclusive:
            ways = self._exactly_one.of(branch.branch, tuple([way[0] for way in ways]))
        if len(branch.disjunctions) == 1:
            return ways
        left = []
        for way in ways:
            if any(self._contradicts(node, branch.held) for node in way):
                continue
            plain = [node for node in way if node.aspect != NOT and node.schema is not True]
            for node in plain:
                self._check(node)
            plain = [node for node in plain if "$ref" not in node.schema]
            if not plain or not self._is_void((*branch.branch, *plain)):
                left.append(way)
        return left

    def _contradicts(self, node: Node, held: frozenset[Node]) -> bool:
        """Whether ``node`` is plainly impossible beside what is held."""
        for _ in range(_MOST_REFERENCES):
            if node.schema is False or _opposite(node) in held:
                return True
            if not isinstance(node.schema, dict) or node.aspect not in ("", NOT):
                return False
            if not self._is_reference(node):
                return False
            (target,) = self._document.references(node.made("", node.schema))
            node = negated(target) if node.aspect == NOT else target
        return False

    @cached_method
    def _check(self, node: Node) -> None:
        """Check the keywords' shapes, in nodes whose keywords are those of the schema."""
        if node.aspect in ("", NOT):
            check_shapes(node)
        if isinstance(node.schema, dict) and not _UNEVALUATED.isdisjoint(node.schema):
            self._watching.add(node)

    def _finish(self, branch: PartialBranch) -> Branch:
        made: list[Node] = []
        for owner in branch.done:
            if owner.node in self._watching:
                scope = [
                    other.node
                    for other in branch.done
                    if other is owner or (owner.node in other.above and other.annotates)
                ]
                contains_counts = self._document.dialect(owner.node).contains_evaluates
                made += unevaluated_rest(owner.node, scope, contains_counts=contains_counts)
        return (*branch.branch, *made)


def _is_plain(node: Node) -> bool:
    """Whether ``node`` is its own only branch: it has only assertions."""
    return node.aspect != NOT and isinstance(node.schema, dict) and _PARTS.isdisjoint(node.schema)


def _opposite(node: Node) -> Node | None:
    """The negation of ``node``; None if its aspect has none."""
    return negated(node) if node.aspect in ("", NOT) else None
