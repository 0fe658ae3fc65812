"""Operator rules, ``E: E b E | ...``, as the same texts without ambiguity (see ``lowering``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.constraint.grammar.syntax import (
    Alternatives,
    Name,
    Node,
    Repeated,
    Series,
    alternatives,
    series,
)

Option = tuple[Node, ...]


def without_operator_ambiguity(bodies: Mapping[str, Node]) -> dict[str, Node]:
    """The bodies of mutually recursive rules, those of operators rewritten."""
    return {name: _rewrite(name, body, bodies) for name, body in bodies.items()}


def _rewrite(name: str, body: Node, bodies: Mapping[str, Node]) -> Node:
    """``m* a (c | b m* a)*`` for ``E: E b E | E c | m E | a``."""
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
    """An option that is one rule alone, by that rule's options if it has operators of ``name``."""
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
