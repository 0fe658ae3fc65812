"""From a goal to its branches: references followed, applicators and choices distributed.

A goal is a set of subschemas that hold together. Its branches are alternatives, each a set of
subschemas of which only their own assertions (``type``, ``properties``...) are left to enforce. So
``anyOf``, ``oneOf``, ``allOf``, ``not``, ``if``, the dependencies and ``$ref`` beside each other
and beside assertions are all exact: this is the disjunctive normal form, with alternatives left
out that nothing satisfies.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from app.constraint.limits import Limits
from app.constraint.schema.document import Document, Goal, Node
from app.constraint.schema.keywords import FOLLOWED, OWN_ASSERTIONS, check_shapes
from app.constraint.schema.logic import unevaluated
from app.constraint.schema.logic.applicators import Options, children_that_hold, choices
from app.constraint.schema.logic.disjointness import Outlines
from app.constraint.schema.logic.exactly_one import OWN, ExactlyOne
from app.constraint.schema.logic.negation import NOT, Alternative, alternatives, negated
from app.constraint.schema.logic.partial_branch import Branch, Choice, Found, Opening, add
from app.core.errors import ConstraintTooComplex, InvalidSchema

__all__ = ["Branch", "Branches"]

_FEW_STEPS = 100
"""Steps after which it pays to remember what was seen."""

_MOST_CHOICES = 8
"""Choices that are compared to make the narrowest first."""

_MOST_REFERENCES = 8
"""References one behind the other that are followed to see a contradiction."""

_MOST_FOR_OVERLAP = 100
"""Alternatives that are looked at to tell that two subschemas have nothing in common."""

_BESIDE_REF = FOLLOWED - {"$ref"}
_PARTS = FOLLOWED - OWN_ASSERTIONS | {"unevaluatedItems", "unevaluatedProperties"}


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
        outlines: Outlines,
        limits: Limits,
        is_void: Callable[[Branch], bool],
        may_overlap: Callable[[Goal], bool] | None = None,
    ) -> None:
        self._document = document
        self._outlines = outlines
        self._limits = limits
        self._is_void = is_void
        self._exactly_one = may_overlap and ExactlyOne(document, outlines, limits, may_overlap)
        self._known: dict[Goal, tuple[Branch, ...]] = {}
        self._known_choices: dict[tuple[Node, bool], list[Options]] = {}
        self._known_children: dict[Node, list[Node]] = {}
        self._known_negations: dict[Node, tuple[Alternative, ...]] = {}
        self._checked: set[Node] = set()
        self._watching: set[Node] = set()
        """Nodes that ask what others evaluate, of those looked at."""
        self._steps = 0

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
        return "$ref" in node.schema and _BESIDE_REF.isdisjoint(node.schema)

    def _expand(self, goal: Goal, most: int) -> tuple[Branch, ...]:
        if len(goal) == 1 and _is_plain(goal[0]):
            self._check(goal[0])
            return (() if OWN_ASSERTIONS.isdisjoint(goal[0].schema) else goal,)
        finished: dict[Branch, None] = {}
        stack = [Opening(tuple(map(Found, goal)))]
        seen: set[Hashable] = set()
        steps = 0
        while stack:
            branch = stack.pop()
            steps += 1
            if steps > _FEW_STEPS and branch.pending and not self._is_watched(branch):
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

    def _is_watched(self, branch: Opening) -> bool:
        """Whether it matters on which way a node was reached."""
        return bool(self._watching) and any(n.node in self._watching for n in branch.done)

    def _look_at(self, branch: Opening) -> Opening | None:
        """Work off the first pending subschema; None where nothing satisfies it."""
        found = branch.pending[0]
        node, schema = found.node, found.node.schema
        if schema is True:
            return branch.after_first()
        if schema is False:
            return None
        if node.aspect.startswith(OWN):
            self._check(node)
            done = add(branch.done, found)
            return Opening(branch.pending[1:], branch.choices, done, branch.held)
        if node in found.above:
            raise InvalidSchema("a $ref leads back to itself", pointer=node.pointer)
        if _opposite(node) in branch.held:
            return None
        if node in branch.held and self._watching.isdisjoint(found.above):
            return branch.after_first()  # looked at before, on another way
        self._check(node)
        above = found.above | {node}
        if len(above) > self._limits.schema_nesting * 4:
            raise ConstraintTooComplex("too many references one behind the other")
        held = branch.held if node.aspect not in ("", NOT) else branch.held | {node}
        if node.aspect == NOT:
            known = self._known_negations.get(node)
            if known is None:
                known = tuple(alternatives(node, self._document))
                self._known_negations[node] = known
            choice = Choice((node, 0), known, above, annotates=False)
            return Opening(branch.pending[1:], (*branch.choices, choice), branch.done, held)
        children = self._known_children.get(node)
        if children is None:
            children = self._known_children[node] = children_that_hold(node, self._document)
        together = [Found(child, above, found.annotates) for child in children]
        done, left = branch.done, branch.choices
        if not self._document.only_refers(node):
            left = (*left, *self._choices_of(node, above, annotates=found.annotates))
            if not OWN_ASSERTIONS.isdisjoint(schema):
                done = add(done, Found(node, above, found.annotates))
        return Opening((*together, *branch.pending[1:]), left, done, held)

    def _choices_of(
        self, node: Node, above: frozenset[Node], *, annotates: bool
    ) -> Iterable[Choice]:
        """The choices that the keywords of a node leave."""
        watched = annotates and not self._watching.isdisjoint(above)
        known = self._known_choices.get((node, watched))
        if known is None:
            known = self._known_choices[node, watched] = choices(node, watched=watched)
        exact = self._exactly_one is not None
        return [
            Choice((node, number), options, above, annotates, exclusive and exact)
            for number, (options, exclusive) in enumerate(known)
        ]

    def _choose(self, branch: Opening) -> list[Opening]:
        """One branch for each way of making one choice: one that leaves few ways, if one is near.

        Choices that leave no more than one way are made as soon as they are seen.
        """
        nodes = branch.branch
        done = set(nodes)
        best: tuple[Choice, list[Alternative]] | None = None
        settled: set[Choice] = set()
        looked_at = 0
        for choice in branch.choices:
            if self._holds_anyway(nodes, choice):
                settled.add(choice)
                continue
            options = self._options(branch, choice)
            if any(done.issuperset(option) for option in options):
                settled.add(choice)  # holds already: every other way is a part of this one
                continue
            looked_at += 1
            if best is None or len(options) < len(best[1]):
                best = (choice, options)
            if len(options) < 2 or looked_at == _MOST_CHOICES:
                break
        if best is None:
            return [Opening((), (), branch.done, branch.held)]
        chosen, options = best
        settled.add(chosen)
        left = tuple([choice for choice in branch.choices if choice not in settled])
        return [branch.choosing(chosen, option, left) for option in options]

    def _holds_anyway(self, nodes: Branch, choice: Choice) -> bool:
        """Whether all that is asked is, or may be, the negation of what ``nodes`` rule out."""
        negations = [option[0] for option in choice.options if len(option) == 1]
        negations.append(choice.name[0])
        return any(
            node.aspect == NOT and self._outlines.rules_out(nodes, negated(node))
            for node in negations
        )

    def _options(self, branch: Opening, choice: Choice) -> list[Alternative]:
        """The ways to make a choice that are not plainly void beside what is done."""
        options = list(choice.options)
        context = branch.branch
        if choice.exclusive:
            assert self._exactly_one is not None, "there are no exclusive choices without it"
            options = self._exactly_one.of(context, [option[0] for option in options])
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
            if not self._is_reference(node):
                return False
            (target,) = self._document.references(node.made("", node.schema))
            node = negated(target) if node.aspect == NOT else target
        return False

    def _check(self, node: Node) -> None:
        """The shapes of keywords, where they are as the schema has them."""
        if node in self._checked:
            return
        self._checked.add(node)
        if node.aspect in ("", NOT):
            check_shapes(node)
        if unevaluated.watches(node):
            self._watching.add(node)

    def _finish(self, branch: Opening) -> Branch:
        scopes = {
            found.node: [
                other.node
                for other in branch.done
                if other is found or (found.node in other.above and other.annotates)
            ]
            for found in branch.done
            if found.node in self._watching
        }
        contains_counts = self._document.dialect.contains_evaluates
        made = [
            node
            for owner, scope in scopes.items()
            for node in unevaluated.rest(owner, scope, contains_counts=contains_counts)
        ]
        return (*branch.branch, *made)


def _is_plain(node: Node) -> bool:
    """Whether ``node`` is its own only branch: it says nothing but what branches say."""
    return node.aspect != NOT and isinstance(node.schema, dict) and _PARTS.isdisjoint(node.schema)


def _opposite(node: Node) -> Node | None:
    """The node that nothing satisfies together with this one."""
    return negated(node) if node.aspect in ("", NOT) else None
