"""From rules to expressions.

The derivative of a rule that refers to itself before it consumes a byte would never end, so left
recursion is removed. The rules of a component form a left-linear system

    X_i = X_1 R_i1 | ... | X_n R_in | B_i

where no B begins with one of them; it is solved as systems of regular languages are, by
elimination and Arden's lemma: X = X R | B has the solution B R*. The R and B may themselves refer
to the rules further inside. A rule could still follow an empty beginning, so a rule stands for its
*non-empty* texts, and references to a nullable rule are optional.

``E: E b E | E c | m E | a`` (binary, postfix and prefix operators) is first turned into
``m* a (c | b m* a)*``, which has the same texts: an ambiguous grammar would otherwise add a parse
with every operator, and never return to an earlier state.

Rules that do not reach themselves are inlined, so the automaton shares and compresses them like any
other expression.

Ignored text may stand before every token but the first. Every node is therefore lowered in two
ways: as it is within a text, and ``leading``, where its first token is the first of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.constraint.cached_method import cached_method
from app.constraint.grammar.rules import Facts, components, references, strongly_connected
from app.constraint.grammar.syntax import (
    Alternatives,
    Characters,
    Json,
    Name,
    Node,
    Repeated,
    Rules,
    Series,
    Text,
    Token,
    alternatives,
    series,
)
from app.constraint.language.codepoints import Ranges, utf8
from app.constraint.language.expressions import ALL_BYTES, Expression, ExpressionPool, Kind
from app.constraint.language.rewriting import unspelled
from app.constraint.limits import Limits
from app.core.errors import ConstraintTooComplex, UnsatisfiableSchema

IGNORED_BYTES = 32
"""Maximum ignored text between two tokens, so that no answer is endless white space."""

_MAX_RECURSIVE_RULES = 1_000
_MAX_LEFT_RECURSIVE_RULES = 32
_MAX_MEASURE = 500_000
"""Maximum nodes times rounds of computing the lengths of all rules."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """The spelling of a grammar's characters, a prefix code."""

    characters: Callable[[Ranges], Expression]
    """One character of a set."""
    text: Callable[[bytes], bytes]
    """Text in UTF-8."""


def in_utf8(pool: ExpressionPool) -> Spelling:
    """Characters in plain UTF-8."""
    return Spelling(lambda members: utf8(pool, members), lambda text: text)


System = dict[str, Expression]
"""Coefficients of a rule's equation: the text after each rule with which it may begin."""


def lower(
    pool: ExpressionPool,
    grammar: Rules,
    limits: Limits,
    json: Callable[[Any], Expression],
    spelling: Spelling,
) -> Expression:
    """The texts of ``grammar`` in ``pool``; ``json`` gives those of an inline schema.

    Raises ``InvalidSchema``, ``UnsatisfiableSchema`` if no finite text is derived, and
    ``ConstraintTooComplex``. Time is linear in the grammar's size, except for left recursion: cubic
    in the number of rules that are left-recursive through each other. Depth and ambiguity are
    checked by ``check_grammars``, once the pool is complete.
    """
    lowering = _Lowering(pool, grammar, limits, json, spelling)
    root = lowering.root()
    if lowering.facts.rounds * len(pool) > _MAX_MEASURE:
        raise ConstraintTooComplex("the shortest texts of a grammar nest too many rules")
    pool.grammars.append(root)
    return root


class _Lowering:
    def __init__(
        self,
        pool: ExpressionPool,
        grammar: Rules,
        limits: Limits,
        json: Callable[[Any], Expression],
        spelling: Spelling,
    ) -> None:
        self.pool = pool
        self.grammar = grammar
        self.facts = Facts(grammar, limits)
        self._json = json
        self._spelling = spelling
        self._missing = limits.missing
        self._gap: Expression | None = None
        """Ignored text between tokens; None if nothing is ignored."""
        self._rules: dict[tuple[str, bool], Expression] = {}
        """The non-empty texts of every rule, by name and ``leading``."""
        self._component: frozenset[str] = frozenset()
        """The component that is being lowered."""

    def root(self) -> Expression:
        order = components(self.grammar)
        terminals = [c for c in order if self.grammar.rules[c[0]].is_terminal]
        rest = [c for c in order if not self.grammar.rules[c[0]].is_terminal]
        for component in order:
            self.facts.learn(component)
        if not self.facts.has_text(self.grammar.start):
            raise UnsatisfiableSchema("the grammar has no finite text")
        for name in (name for component in order for name in component):
            if not self.facts.has_text(name):
                position = self.grammar.rules[name].position
                raise self.grammar.source.invalid(f"{name} has no finite text", position)
        for component in terminals:
            name = component[0]
            rule = self.grammar.rules[name]
            if any(reference.name in component for reference in references(rule.body)):
                raise self.grammar.source.invalid(
                    f"the terminal {name} refers to itself", rule.position
                )
            self._rules[name, False] = self._nonempty(rule.body, leading=False)
        self._gap = self._between_tokens()
        for component in rest:
            self._lower_component(component)
        start = self._rules[self.grammar.start, self._gap is not None]
        nullable = self.facts.nullable(self.grammar.rules[self.grammar.start].body)
        return self.pool.optional(start) if nullable else start

    def _lower_component(self, component: Sequence[str]) -> None:
        bodies = {name: self.grammar.rules[name].body for name in component}
        modes = (False, True) if self._gap is not None else (False,)
        if len(component) == 1:
            (name,) = component
            if all(reference.name != name for reference in references(bodies[name])):
                for leading in modes:
                    self._rules[name, leading] = self._nonempty(bodies[name], leading=leading)
                return
        if len(component) > _MAX_RECURSIVE_RULES:
            raise ConstraintTooComplex(f"more than {_MAX_RECURSIVE_RULES} rules in one recursion")
        bodies = {name: _without_ambiguity(name, body, bodies) for name, body in bodies.items()}
        self._component = frozenset(component)
        for name in component:
            for leading in modes:
                self._rules[name, leading] = self.pool.declare_rule()
        for leading in modes:
            self._define(bodies, leading=leading)
        self._component = frozenset()

    def _define(self, bodies: dict[str, Node], *, leading: bool) -> None:
        """Give the rules of a component their bodies, without left recursion."""
        systems: dict[str, System] = {}
        bases: dict[str, Expression] = {}
        for name, body in bodies.items():
            systems[name], bases[name] = self._split(body, leading=leading)
        for left in strongly_connected(list(bodies), {n: list(s) for n, s in systems.items()}):
            self._solve(left, systems, bases, leading=leading)
        for name, base in bases.items():
            self.pool.define_rule(self._rules[name, leading], base)

    def _solve(
        self,
        left: Sequence[str],
        systems: dict[str, System],
        bases: dict[str, Expression],
        *,
        leading: bool,
    ) -> None:
        """Eliminate the rules ``left``, which begin with each other, from their equations."""
        pool = self.pool
        if len(left) > _MAX_LEFT_RECURSIVE_RULES:
            raise ConstraintTooComplex(
                f"more than {_MAX_LEFT_RECURSIVE_RULES} rules that begin with each other"
            )
        for name in left:  # rules outside begin with none of these: they stay references
            outside = [
                pool.concatenate(self._rules[other, leading], systems[name].pop(other))
                for other in list(systems[name])
                if other not in left
            ]
            bases[name] = pool.union((bases[name], *outside))
        for index, name in enumerate(left):
            if name in systems[name]:
                again = pool.repeat(systems[name].pop(name))
                bases[name] = pool.concatenate(bases[name], again)
                for other, after in systems[name].items():
                    systems[name][other] = pool.concatenate(after, again)
            for user in (*left[:index], *left[index + 1 :]):
                if name not in systems[user]:
                    continue
                after = systems[user].pop(name)
                bases[user] = pool.union((bases[user], pool.concatenate(bases[name], after)))
                for other, between in systems[name].items():
                    systems[user][other] = pool.union(
                        (systems[user].get(other, pool.empty), pool.concatenate(between, after))
                    )

    def _split(self, node: Node, *, leading: bool) -> tuple[System, Expression]:
        """The non-empty texts of ``node``: by the rule they begin with, and others."""
        pool = self.pool
        if not any(reference.name in self._component for reference in references(node)):
            return {}, self._nonempty(node, leading=leading)
        match node:
            case Name(name=name):
                return {name: pool.epsilon}, pool.empty
            case Alternatives(options=options):
                return self._merge(self._split(option, leading=leading) for option in options)
            case Repeated(body=body, low=low, high=high):
                again = pool.repeat_after_one(self._full(body), low, high)
                return self._then(self._split(body, leading=leading), again)
        assert isinstance(node, Series)
        result: tuple[System, Expression] = ({}, pool.empty)
        rest = pool.epsilon
        for part in reversed(node.parts):
            here = self._then(self._split(part, leading=leading), rest)
            result = self._merge((here, result)) if self.facts.nullable(part) else here
            rest = pool.concatenate(self._full(part), rest)
        return result

    def _then(
        self, split: tuple[System, Expression], rest: Expression
    ) -> tuple[System, Expression]:
        (system, base), pool = split, self.pool
        following = {name: pool.concatenate(after, rest) for name, after in system.items()}
        return following, pool.concatenate(base, rest)

    def _merge(self, splits: Iterable[tuple[System, Expression]]) -> tuple[System, Expression]:
        merged: dict[str, list[Expression]] = {}
        bases = []
        for system, base in splits:
            bases.append(base)
            for name, after in system.items():
                merged.setdefault(name, []).append(after)
        return (
            {name: self.pool.union(afters) for name, afters in merged.items()},
            self.pool.union(bases),
        )

    @cached_method
    def _full(self, node: Node) -> Expression:
        """The texts of ``node`` within a text."""
        pool = self.pool
        match node:
            case Series(parts=parts):
                result = pool.epsilon
                for part in reversed(parts):
                    result = pool.concatenate(self._full(part), result)
                return result
            case Repeated(body=body, low=low, high=high):
                return pool.repeat(self._full(body), low, high)
        nonempty = self._nonempty(node, leading=False)
        return pool.optional(nonempty) if self.facts.nullable(node) else nonempty

    @cached_method
    def _nonempty(self, node: Node, *, leading: bool) -> Expression:
        """The texts of ``node`` without the empty one."""
        pool = self.pool
        match node:
            case Text():
                return pool.literal(self._written(node))
            case Characters(members=members):
                return self._characters(members)
            case Json(schema=schema):
                return self._json(schema)
            case Name(name=name):
                return self._rules[name, leading and not self.grammar.rules[name].is_terminal]
            case Token(body=body):
                return self._tokens([body], leading=leading)
            case Alternatives(options=options):
                tokens = [option.body for option in options if isinstance(option, Token)]
                others = [option for option in options if not isinstance(option, Token)]
                together = [self._tokens(tokens, leading=leading)] if tokens else []
                return pool.union([*together, *self._one_of(others, leading=leading)])
            case Repeated(body=body, low=low, high=high):
                if high == 0:
                    return pool.empty
                first = self._nonempty(body, leading=leading)
                return pool.concatenate(first, pool.repeat_after_one(self._full(body), low, high))
        result, rest = pool.empty, pool.epsilon
        for part in reversed(node.parts):
            here = pool.concatenate(self._nonempty(part, leading=leading), rest)
            result = pool.union((here, result)) if self.facts.nullable(part) else here
            rest = pool.concatenate(self._full(part), rest)
        return result

    @cached_method
    def _characters(self, members: Ranges) -> Expression:
        return self._spelling.characters(members)

    def _tokens(self, bodies: Sequence[Node], *, leading: bool) -> Expression:
        """Any of some tokens, with the ignored text before them."""
        token = self.pool.union(self._one_of(bodies, leading=False))
        return token if leading or self._gap is None else self.pool.concatenate(self._gap, token)

    def _one_of(self, nodes: Sequence[Node], *, leading: bool) -> list[Expression]:
        """The non-empty texts of each; plain texts among them as one tree."""
        texts = [self._written(node) for node in nodes if isinstance(node, Text)]
        others = [node for node in nodes if not isinstance(node, Text)]
        result = [self._nonempty(node, leading=leading) for node in others]
        return [self.pool.one_of(texts), *result] if texts else result

    def _written(self, node: Text) -> bytes:
        """The bytes of a text. Raises ``UnsupportedSchema`` where the tokenizer cannot spell it."""
        text = self._spelling.text(node.value)
        if reason := unspelled(text, self._missing):
            raise self.grammar.source.unsupported("text", reason, node.position)
        return text

    def _between_tokens(self) -> Expression | None:
        if not self.grammar.ignored:
            return None
        pool = self.pool
        kinds = [self._nonempty(node, leading=False) for node in self.grammar.ignored]
        members = [_repeated_bytes(pool, kind) for kind in kinds]
        if all(bits is not None for bits in members):
            every = pool.union(pool.byte(bits) for bits in members if bits is not None)
            return pool.repeat(every, 0, IGNORED_BYTES)
        run = pool.repeat(pool.union(kinds))
        if not pool.regular[run]:
            raise ConstraintTooComplex("the text that %ignore names is too long")
        return pool.intersect((run, pool.repeat(pool.byte(ALL_BYTES), 0, IGNORED_BYTES)))


def _repeated_bytes(pool: ExpressionPool, expression: Expression) -> int | None:
    """The byte set B if the expression is a byte of B or a run of these of any length, or None."""
    kind, operand = pool.kinds[expression], pool.operands[expression]
    if kind == Kind.CONCATENATION:  # as B B*, the non-empty runs
        head, tail = operand
        if pool.kinds[tail] == Kind.REPETITION and pool.operands[tail] == (head, 0, None):
            return _repeated_bytes(pool, head)
    if kind == Kind.REPETITION and operand[1] <= 1 and operand[2] is None:
        return _repeated_bytes(pool, operand[0])
    if kind == Kind.LITERAL and len(operand) == 1:
        return 1 << int(operand[0])
    return int(operand) if kind == Kind.BYTES else None


Option = tuple[Node, ...]


def _without_ambiguity(name: str, body: Node, bodies: Mapping[str, Node]) -> Node:
    """``m* a (c | b m* a)*`` for a body of operators, ``E: E b E | E c | m E | a``."""
    options = [expanded for option in _options(body) for expanded in _expand(name, option, bodies)]
    if not any(_is_operator(option, name) for option in options):
        return body
    prefixes, infixes, postfixes, atoms = [], [], [], []
    for option in options:
        first, last = _is(option[:1], name), _is(option[-1:], name)
        if len(option) == 1 and first:
            continue
        if first and last:
            infixes.append(series(option[1:-1]))
        elif first:
            postfixes.append(series(option[1:]))
        elif last:
            prefixes.append(series(option[:-1]))
        else:
            atoms.append(series(option))
    atom = alternatives(atoms)
    if prefixes:
        atom = Series((Repeated(alternatives(prefixes), 0, None), atom))
    if infixes:
        postfixes.append(Series((alternatives(infixes), atom)))
    return Series((atom, Repeated(alternatives(postfixes), 0, None))) if postfixes else atom


def _expand(name: str, option: Option, bodies: Mapping[str, Node]) -> Sequence[Option]:
    """``option``; if it is only a rule that has operators of ``name``, the options of that rule."""
    if len(option) == 1 and isinstance(option[0], Name):
        other = option[0].name
        if other != name and other in bodies:
            inside = _options(bodies[other])
            if any(_is_operator(each, name) for each in inside):
                return inside
    return [option]


def _options(node: Node) -> list[Option]:
    """The alternatives of a body, each as its parts."""
    options: list[Option] = []
    pending = [node]
    while pending:
        here = pending.pop()
        if isinstance(here, Alternatives):
            pending.extend(reversed(here.options))
        else:
            options.append(here.parts if isinstance(here, Series) else (here,))
    return options


def _is_operator(option: Option, name: str) -> bool:
    return _is(option[:1], name) and _is(option[-1:], name)


def _is(parts: Sequence[Node], name: str) -> bool:
    return len(parts) == 1 and isinstance(parts[0], Name) and parts[0].name == name
