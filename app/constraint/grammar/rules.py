"""The rules of a grammar: their parsing, their references, and facts about every rule.

Rules are processed in components: sets of rules that reach each other, those they refer to first
(Tarjan 1972). Facts are least fixpoints, found with a worklist; the nodes visited are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from app.constraint.grammar.gbnf import GbnfReader
from app.constraint.grammar.lark import LarkReader
from app.constraint.grammar.syntax import (
    Alternatives,
    Characters,
    Json,
    Name,
    Node,
    Reader,
    Repeated,
    Rules,
    Series,
    Source,
    Text,
    Token,
    children,
)
from app.constraint.language.expressions import INFINITE
from app.constraint.limits import Limits
from app.core.errors import ConstraintTooComplex, InvalidSchema

MAX_CHARACTERS = 1 << 18
_READERS: dict[str, type[Reader]] = {"gbnf": GbnfReader, "lark": LarkReader}
_GBNF_RULE = re.compile(r"^[ \t]*[A-Za-z0-9_-]++[ \t]*::=", re.MULTILINE)


def parse(text: str, syntax: str, limits: Limits) -> Rules:
    """The rules of ``text``; ``syntax`` is ``gbnf``, ``lark``, or ``auto``: a line that starts
    with ``name ::=`` makes it GBNF.

    Raises ``InvalidSchema`` with line, column and an excerpt, ``UnsupportedSchema`` with the
    construct by name, or ``ConstraintTooComplex``.
    """
    if len(text) > MAX_CHARACTERS:
        raise ConstraintTooComplex(f"a grammar of more than {MAX_CHARACTERS} characters")
    if re.search("[\ud800-\udfff]", text):
        raise InvalidSchema("the grammar contains half of a surrogate pair")
    if syntax == "auto":
        syntax = "gbnf" if _GBNF_RULE.search(text) else "lark"
    if syntax not in _READERS:
        raise InvalidSchema(f"the syntax of a grammar must be auto, gbnf or lark, not {syntax!r}")
    return _READERS[syntax](Source(text), limits).read()


_MAX_STEPS = 1_000_000
_MAX_SHORTEST = 1 << 26
_UNBOUNDED_TIMES = 10
"""Count assumed for an unbounded repetition around counted ones."""


def references(node: Node) -> Iterator[Name]:
    """Every reference in ``node``."""
    pending = [node]
    while pending:
        here = pending.pop()
        if isinstance(here, Name):
            yield here
        pending.extend(children(here))


def components(grammar: Rules) -> list[list[str]]:
    """The rules reached from the start, in components, each after those it refers to.

    Raises ``InvalidSchema`` if any rule refers to one that is not defined.
    """
    targets = {name: _targets(grammar, rule.body) for name, rule in grammar.rules.items()}
    for node in grammar.ignored:
        _targets(grammar, node)
    starts = [grammar.start, *(n.name for node in grammar.ignored for n in references(node))]
    return strongly_connected(starts, targets)


def _targets(grammar: Rules, body: Node) -> list[str]:
    names: dict[str, None] = {}
    for reference in references(body):
        if reference.name not in grammar.rules:
            raise grammar.source.invalid(f"{reference.name} is not defined", reference.position)
        names[reference.name] = None
    return list(names)


def strongly_connected(
    starts: Sequence[str], targets: Mapping[str, Sequence[str]]
) -> list[list[str]]:
    """Tarjan's components of the names reached from ``starts``, targets first; no recursion."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    result: list[list[str]] = []
    work: list[tuple[str, Iterator[str]]] = []

    def enter(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        on_stack.add(name)
        work.append((name, iter(targets[name])))

    for start in starts:
        if start not in order:
            enter(start)
        while work:
            name, rest = work[-1]
            following = next(rest, None)
            if following is not None:
                if following not in order:
                    enter(following)
                elif following in on_stack:
                    low[name] = min(low[name], order[following])
                continue
            work.pop()
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[name])
            if low[name] == order[name]:
                component: list[str] = []
                while name not in component[-1:]:
                    component.append(stack.pop())
                on_stack.difference_update(component)
                result.append(component)
    return result


class Facts:
    """Facts about nodes and rules; call ``learn`` with the components in their order."""

    def __init__(self, grammar: Rules, limits: Limits) -> None:
        self._rules = grammar.rules
        self._limits = limits
        self._steps = 0
        self._shortest: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self.rounds = 1
        """Rounds of the fixpoint over the lengths of all rules."""

    def learn(self, component: Sequence[str]) -> None:
        """Raises ``ConstraintTooComplex`` above a limit of counts, shortest texts or work."""
        for name in component:
            self._shortest[name], self._counts[name] = INFINITE, 1
        users: dict[str, list[str]] = {name: [] for name in component}
        for name in component:
            for reference in references(self._rules[name].body):
                if reference.name in users:
                    users[reference.name].append(name)
        pending, rounds = list(component), 0
        while pending:  # all at once, as ``Derivatives.measure`` does, to count its rounds
            rounds += 1
            found = {name: self.shortest(self._rules[name].body) for name in pending}
            if self._steps > _MAX_STEPS:
                raise ConstraintTooComplex("too many dependencies between the rules of a grammar")
            changed = [name for name in pending if found[name] != self._shortest[name]]
            self._shortest.update(found)
            pending = list(dict.fromkeys(user for name in changed for user in users[name]))
        self.rounds = max(self.rounds, rounds)
        for name in component:
            self._counts[name] = self._counts_of(self._rules[name].body)
            if _MAX_SHORTEST < self._shortest[name] < INFINITE:
                raise ConstraintTooComplex(
                    f"the shortest text of {name} has more than {_MAX_SHORTEST} bytes"
                )

    def has_text(self, name: str) -> bool:
        """Whether the rule derives any finite text."""
        return self._shortest[name] < INFINITE

    def nullable(self, node: Node) -> bool:
        """Whether the empty text is among those of ``node``."""
        return self.shortest(node) == 0

    def shortest(self, node: Node) -> int:
        """Approximate bytes of a shortest text; ``INFINITE`` if there is none."""
        self._steps += 1
        match node:
            case Text(value=value):
                return len(value)
            case Characters(members=members):
                return 1 if members else INFINITE
            case Json():
                return 1
            case Name(name=name):
                return self._shortest[name]
            case Series(parts=parts):
                return min(INFINITE, sum(self.shortest(part) for part in parts))
            case Alternatives(options=options):
                return min(self.shortest(option) for option in options)
            case Repeated(body=body, low=low):
                return min(INFINITE, low * self.shortest(body)) if low else 0
            case Token(body=body):
                return self.shortest(body)

    def _counts_of(self, node: Node) -> int:
        """The largest product of the counts of nested repetitions."""
        if isinstance(node, Name):
            return self._counts[node.name]
        inside = max((self._counts_of(child) for child in children(node)), default=1)
        if not isinstance(node, Repeated):
            return inside
        unbounded = _UNBOUNDED_TIMES if inside > 1 else 1
        product = inside * max(unbounded if node.high is None else node.high, node.low, 1)
        if inside > 1 and product > self._limits.nested_counts:
            raise ConstraintTooComplex(
                "nested repetitions in a grammar: their counts multiply to more than "
                f"{self._limits.nested_counts}"
            )
        return product
